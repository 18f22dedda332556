"""A replica's files: staged in memory, written in groups, recovered after any crash. Sees disks only as `Disk`."""
