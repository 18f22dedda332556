"""Every bound of the Spark room, with its reason."""

TIMEOUT_SECONDS = 30.0
"""How long a question to the cluster may take, unless the option `timeout` says otherwise."""

BATCH_ROWS = 32_768
"""Rows of a record batch that is handed to Spark. Larger ones cost memory and gain nothing."""

BATCH_BYTES = 4 << 20
"""Bytes at which a record batch is handed on, however few rows it has."""

PARTITION_BYTES = 64 << 20
"""What one task reads, unless the option `partitionBytes` says otherwise."""

MOST_PARTITIONS = 10_000
"""Beyond it, partitions get larger instead: each costs the driver memory and time."""

SMALL_ENTRIES = 20_000
"""So few entries are one partition: nobody is asked how large they are."""

WRITE_ENTRIES = 16_384
"""Entries of a batch that the sink appends."""

WRITE_BYTES = 4 << 20
"""Bytes at which such a batch is full."""

WRITES_AT_ONCE = 4
"""Batches on their way before the sink waits for all of them: what it keeps to send again."""

WRITES_PER_NAME = 64
"""Batches under one producer's name; then comes the next name. Fewer than the log remembers of a producer."""

WRITE_PATIENCE_SECONDS = 120.0
"""How long a task goes on trying when the log takes nothing: longer than a lost node is waited for."""

WRITE_PAUSE_SECONDS = 0.2
"""Between two such tries."""

IDENTITY_CHARACTERS = 80
"""Longest option `identity`: the numbers of batch, task and name are put behind it."""

TAIL_SECONDS = 0.05
"""For so long a tail is not asked for again: Spark looks for news every 10 ms while there are none."""

AUDIT_ENTRIES = 1_000_000
"""Most entries of a copy that one task of an audit reads: each may be a batch of its own."""

MOST_FAULTS = 1_000
"""Of one kind, in a report; a log that is hurt in more places needs no longer list."""

IMPORT_BYTES = 32 << 20
"""Of the files that one task of an import reads; always the same, as a repeated import must be cut in the same way."""

ARCHIVE_ROUNDS = 10
"""How often a run of the archive goes on from what another has archived meanwhile."""
