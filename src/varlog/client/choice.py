"""Which streams of a log may be written to just now."""

import asyncio
from collections.abc import Callable
from math import inf

from varlog.base.errors import NotFound, ReplicaFailed, Sealed, Unavailable, Unsupported, VarlogError
from varlog.base.ids import StreamId
from varlog.client.limits import REFUSED_SECONDS, TIMEOUT_SECONDS
from varlog.client.routes import Routes, StreamRoute
from varlog.ports import World
from varlog.runtime.scope import Scope


class Choice:
    """The writable streams, less those that refused an append lately. Shared by all who append to a log."""

    def __init__(self, world: World, routes: Routes, scope: Scope) -> None:
        self._world = world
        self._routes = routes
        self._scope = scope
        self._refusals: dict[StreamRoute, tuple[VarlogError, float]] = {}
        self._checking: asyncio.Task[None] | None = None
        self.listeners: list[Callable[[], None]] = []
        """Called when something that was not known is."""

    def candidates(self, stream: StreamId | None) -> list[StreamRoute] | None:
        """The streams to choose from; None: wait, it is being found out. Raises what refuses the append."""
        if self._checking is not None:
            return None
        info = self._routes.info
        if info is None:
            raise NotFound(f"there is no log named {self._routes.name!r}")
        if info.sealed and (sealed := self._routes.sealed) is not None:
            raise sealed
        if info.journal:
            raise Unsupported(
                f"log {self._routes.name!r} is a journal: only its leader appends, inside "
                f"`async with cluster.journal({self._routes.name!r}) as journal, journal.lead() as leader`"
            )
        found = [route for route in self._routes.streams if route.writable and (stream is None or stream == route.id)]
        if not found:
            raise self._nothing_writable(stream)
        if found[0].written_by_clients:
            if stream is not None:
                raise Unsupported("the stream of an entry follows from its position, in a log under `sequencer`")
            found = found[:1]  # it stands for its segment
        if not self._refusals:
            return found
        left = [route for route in found if self._refusal(route) is None]
        if not left:
            error = self._refusal(found[0])
            if isinstance(error, ReplicaFailed | Sealed):
                return None  # another stream is to take its place; who waits for that has a deadline
            raise error if error is not None else Unavailable("no stream takes appends")
        return left

    def refuse(self, route: StreamRoute, error: VarlogError) -> None:
        """A stream takes no appends, at least for now."""
        known = self._routes.streams
        self._refusals = {each: why for each, why in self._refusals.items() if each in known}
        lasts = inf if isinstance(error, Sealed) else REFUSED_SECONDS
        self._refusals[route] = (error, self._world.clock.now() + lasts)
        if isinstance(error, Sealed | NotFound) and self._checking is None:
            # Is it the stream or the log, and where does it end? The repository knows.
            self._checking = self._scope.spawn(self._check(), name=f"check {self._routes.name}")

    async def _check(self) -> None:
        try:
            await self._routes.refresh(TIMEOUT_SECONDS)
        except VarlogError:
            pass  # then the stream's own words have to do
        finally:
            self._checking = None
        for listener in list(self.listeners):
            listener()

    def _refusal(self, route: StreamRoute) -> VarlogError | None:
        known = self._refusals.get(route)
        if known is None:
            return None
        error, until = known
        if self._world.clock.now() < until:
            return error
        del self._refusals[route]
        return None

    def _nothing_writable(self, stream: StreamId | None) -> VarlogError:
        name = self._routes.name
        if stream is None:
            return Unavailable(f"log {name!r} has no writable stream just now")
        if any(route.id == stream for route in self._routes.streams):
            return Sealed(f"stream {stream} of log {name!r} takes no more entries", self._routes.end or 0)
        known = ", ".join(str(route.id) for route in self._routes.streams)
        return NotFound(f"log {name!r} has no stream {stream}; it has {known}")
