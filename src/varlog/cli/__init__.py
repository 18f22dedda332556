"""The command line. One family of commands, one file; what they share is in `main`, `output`, `progress`, `config`."""
