"""Connections that carry frames. What requests and answers are is no concern of theirs."""

from collections.abc import Callable, Sequence
from typing import Protocol

from varlog.base.errors import VarlogError
from varlog.wire.frame import Buffer, Frame


class ChannelHandler(Protocol):
    """Who receives what a channel brings. Called on the event loop; must not block or raise."""

    def frame_received(self, frame: Frame) -> None: ...

    def closed(self, error: VarlogError) -> None:
        """Called exactly once, however the channel ends."""
        ...


class Channel(Protocol):
    """One connection. Frames sent in one turn of the event loop leave in one write."""

    remote: str
    """The other end's address, for people."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue one encoded frame; on a closed channel nothing happens."""
        ...

    @property
    def writable(self) -> bool:
        """False while more is queued than the other end takes; see `drained`."""
        ...

    async def drained(self) -> None:
        """Wait until the channel is writable again, or closed."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what is queued and close."""
        ...


class Listener(Protocol):
    address: str
    """host:port as bound, with the real port when 0 was asked for."""

    async def close(self) -> None:
        """Stop accepting; channels that were accepted live on."""
        ...


class Network(Protocol):
    async def connect(self, address: str, handler: Callable[[Channel], ChannelHandler], *, timeout: float) -> Channel:
        """Raises `Unavailable` when nobody answers at `address` in time."""
        ...

    async def listen(self, address: str, handler: Callable[[Channel], ChannelHandler]) -> Listener:
        """Raises `Unavailable` when the address cannot be bound, saying why."""
        ...
