"""Every bound that more than one room relies on, with its reason."""

FRAME_BYTES = 32 << 20
"""Largest frame. Checked before memory is taken for it."""

HEADER_BYTES = 16 << 20
"""Largest message header inside a frame: a node with 300,000 replicas tells of all of them in one."""

BATCH_BYTES = 16 << 20
"""Largest encoded batch: it must fit a frame with room for headers."""

BATCH_ENTRIES = 1 << 20
"""Most entries in a batch: bounds what a decoder allocates for offsets."""

ENTRY_BYTES = 8 << 20
"""Largest payload, key or header value of one entry."""

HEADERS_PER_ENTRY = 256
"""Most headers of one entry."""

NAME_CHARACTERS = 128
"""Longest name of a log or a producer."""

PRODUCER_IN_FLIGHT = 64
"""Most batches of one producer on one stream whose outcome is open."""

PRODUCER_WINDOW = 128
"""Batches of a producer whose positions a stream remembers for retries; at least `PRODUCER_IN_FLIGHT`."""

PRODUCERS_PER_STREAM = 100_000
"""Producers a stream remembers; the one that has been silent longest is forgotten first."""

STREAM_IN_FLIGHT_BYTES = 64 << 20
"""Accepted but uncommitted bytes of a stream beyond which its primary answers `Overloaded`."""
