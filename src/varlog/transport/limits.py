"""Every bound of the transport, with its reason. Those that other rooms share are in `base.limits`."""

CALLS_IN_FLIGHT = 1 << 16
"""Calls of one connection whose answer is awaited; one more is refused as `Overloaded`."""

REQUESTS_IN_HANDLING = 8192
"""Requests of one connection being handled, beyond which it is not read until half are answered."""

BYTES_IN_HANDLING = 64 << 20
"""The same in bytes of their frames."""

REFUSED_REQUESTS = 1024
"""Ids of requests answered with an error that a connection remembers, lest a repeated frame be taken after all."""

REFUSED_SECONDS = 60.0
"""For so long: no frame travels longer, and no connection uses up all its ids in that time."""

ANSWERS_WAITING_BYTES = 8 << 20
"""Answers given while the other end takes nothing, beyond which it is not read either. Two ends that send each
other many large requests must not both stop reading: their answers are small and stay far below this."""

STREAMS_PER_CONNECTION = 4096
"""Streams one end serves on one connection; one more is refused as `Overloaded`."""

PARTS_IN_THE_MAKING = 16
"""Parts of all streams of one connection that take memory and are not sent yet: credit may come for all streams at
once, and what was read for them would be kept until the connection has taken it."""

WINDOW_BYTES = 4 << 20
"""What a reader of a stream takes before it grants more, unless it says otherwise."""

PING_SECONDS = 5.0
"""Who has sent nothing for so long sends a PING."""

SILENT_TICKS = 4
"""So many times PING_SECONDS without a frame, or without a byte taken by the other end, and it counts as dead.
A frame must arrive whole within that time."""

DEADLINE_SECONDS = 0.005
"""Deadlines of one connection are checked at most this often: one timer serves them all."""

EARLY_SECONDS = 0.001
"""Real timers may ring this much early; what is due within it counts as due."""

RECEIVE_BUFFER_BYTES = 64 << 10
"""Reused for every read; what is in it is copied out."""

OWN_BUFFER_BYTES = 16 << 10
"""A frame of at least this size that has not yet arrived whole is received into memory of its own, and a body
of at least this size that has is given out as a view: it keeps no more than the receive buffer's size alive."""

WRITE_HIGH_BYTES = 1 << 20
"""Bytes waiting to be written beyond which a channel is not writable, until a quarter is left."""

WRITE_LIMIT_BYTES = 512 << 20
"""Bytes waiting to be written beyond which the connection is given up: its owner ignored `writable`."""

APART_SECONDS = 0.0001
"""A frame sent no sooner than this after the last one is written on the spot; others gather for one write."""

ON_THE_SPOT_BYTES = 64 << 10
"""Larger frames are not written on the spot."""

GROW_BYTES = 2 << 20
"""Memory taken for a large frame on the strength of its header alone; more is taken as the bytes arrive."""

PREFACE_SECONDS = 10.0
"""How long an accepted connection may take to say what it is."""

CLOSE_SECONDS = 5.0
"""How long a closing connection may take to send what is queued."""

ACCEPTED_CONNECTIONS = 8192
"""Connections of one listener; one more is closed at once."""

LISTEN_BACKLOG = 1024
"""Connections the system may keep waiting to be accepted."""
