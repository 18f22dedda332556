"""Every bound of archives, with its reason."""

THREADS = 4
"""That read files at once, for all readers of a process: files are read by blocking calls."""

AHEAD = 1
"""Row groups that a reader has read while the one before is used: that, and no more, is in memory of each reader."""

WINDOW = 10_000_000
"""Positions of one partition of a table: no file holds entries of two. A reader plans no further at once."""

WINDOWS_KEPT = 16
"""Of which a reader remembers what files there are."""

ROW_GROUP_ROWS = 32_768
"""Most rows of a row group: what a reader decodes at once."""

BATCH_ENTRIES = 4_096
"""Most entries of a batch that is made of rows."""

BATCH_BYTES = 1 << 20
"""Bytes of payloads, keys and headers at which such a batch is full, unless it has one entry."""

CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 60.0
"""How long S3 may take to be reached, and to answer."""
