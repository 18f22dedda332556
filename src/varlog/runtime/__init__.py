"""What a process runs on: the real clock and disk, ordered task scopes, deadlines, the event loop. No protocol here."""
