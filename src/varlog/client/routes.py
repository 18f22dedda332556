"""What a client knows of one log: its chain, its streams, and where their replicas are. Kept fresh by a watch."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from varlog.base.errors import NotFound, Sealed, Unavailable, VarlogError
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, Slot, StreamId
from varlog.client.limits import ATTEMPT_SECONDS, TIMEOUT_SECONDS
from varlog.client.repository import Repositories, pause
from varlog.client.together import Together
from varlog.core.ordering.sequencer import Stripes
from varlog.ports import World
from varlog.runtime.scope import Scope
from varlog.transport.pool import Place
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """A stream, and the nodes that hold it; the first of them is its primary."""

    log: LogId
    segment: Epoch
    id: StreamId
    members: tuple[NodeId, ...]
    writable: bool
    end: Slot | None
    """Of a finalized stream."""
    first: Glsn
    """All its entries are at this position or later,"""
    until: Glsn | None
    """and before this one, once it has ended."""
    ordering: str = "cut"
    index: int = 0
    """Which stream of its segment it is."""

    @property
    def written_by_clients(self) -> bool:
        """Down the chain of its members, at positions that were granted before."""
        return self.ordering == "sequencer"

    @property
    def first_to_know(self) -> int | None:
        """The member that hears first of what is in the log; None: all at about the same time."""
        return len(self.members) - 1 if self.written_by_clients and self.end is None else None

    def may_hold(self, glsn: int) -> bool:
        """Whether a position can be one of this stream."""
        return self.first <= glsn and (self.until is None or glsn < self.until)


class Routes:
    """One log by name. Asked for at its first use; a log that was removed is asked for again."""

    def __init__(self, name: str, repositories: Repositories, world: World, scope: Scope, zone: str = "") -> None:
        """`zone`: where this client is; empty if it does not matter."""
        self.name = name
        self.info: pb.LogInfo | None = None
        """As last heard; None: not asked yet, or gone."""
        self.streams: tuple[StreamRoute, ...] = ()
        self.listeners: list[Callable[[], None]] = []
        """Called after every change."""
        self._places: dict[NodeId, Place] = {}
        self._zone = zone
        self._zones: dict[NodeId, str] = {}
        self._repositories = repositories
        self._world = world
        self._scope = scope
        self._watch: asyncio.Task[None] | None = None
        self._questions: Together[None] = Together(world.clock, scope, f"look up {name}")

    # ------------------------------------------------------------ looking

    def place(self, node: NodeId) -> Place:
        """Where a node is, as last heard."""
        try:
            return self._places[node]
        except KeyError:
            raise Unavailable(f"the address of node {node} is not known") from None

    def near(self, route: StreamRoute) -> int:
        """Which member to read from first: one in this client's zone, if there is any, by chance among several.

        Where one knows first of what is in the log, that one.
        """
        if route.first_to_know is not None:
            return route.first_to_know
        members = range(len(route.members))
        same = [each for each in members if self._zone and self._zones.get(route.members[each]) == self._zone]
        return self._world.random.choice(same or members)

    def now(self, route: StreamRoute) -> StreamRoute:
        """The same stream as it is by now."""
        same = (route.log, route.segment, route.id)
        return next((each for each in self.streams if (each.log, each.segment, each.id) == same), route)

    def stripes(self, route: StreamRoute) -> Stripes:
        """How positions lie in the segment of a stream."""
        assert self.info is not None, "a stream of a log that is known"
        segment = self.info.chain[route.segment - 1]
        return Stripes(Glsn(segment.base), segment.unit or 1, len(segment.streams))

    def siblings(self, route: StreamRoute) -> list[StreamRoute]:
        """All streams of a segment, in their order."""
        return [each for each in self.streams if (each.log, each.segment) == (route.log, route.segment)]

    @property
    def sealed(self) -> Sealed | None:
        """The error that says so, if the log was sealed."""
        if self.info is None or not self.info.sealed:
            return None
        end = self.end
        return Sealed(f"log {self.name!r} is sealed; its last position is {(end or 1) - 1}", end or 0)

    @property
    def end(self) -> Glsn | None:
        """One past the last position, once that is fixed for good."""
        if self.info is None or not self.info.sealed:
            return None
        return Glsn(self.info.chain[-1].end)

    # ------------------------------------------------------------ asking

    async def resolve(self, timeout: float) -> pb.LogInfo:
        """What is known of the log; raises `NotFound` if there is none of this name."""
        if self.info is None:
            await self.refresh(timeout)
        if self.info is None:
            raise NotFound(f"there is no log named {self.name!r}")
        return self.info

    async def refresh(self, timeout: float) -> None:
        """Ask the repository now; several who ask at once share the answer."""
        await self._questions.ask(self._ask, timeout)

    def refresh_soon(self) -> None:
        """Something did not fit: ask, but let nobody wait for it."""
        if not self._questions.is_asking and self.info is not None:
            self._scope.spawn(self._refresh_quietly(), name=f"refresh {self.name}")

    def adopt(self, info: pb.LogInfo) -> None:
        """News from a call that returned the log."""
        self._update(info)
        self._start_watch()

    def forget(self, log: LogId) -> None:
        """It was removed: what its members may say until they hear of that is no answer any more."""
        if self.info is not None and self.info.id == log:
            self._gone()

    async def _ask(self, timeout: float) -> None:
        try:
            found = await self._repositories.call(Method.GET_LOG, pb.GetLogRequest(name=self.name), timeout=timeout)
            self.adopt(cast(pb.LogInfo, found))
        except NotFound:
            self._gone()
            raise

    async def _refresh_quietly(self) -> None:
        try:
            await self.refresh(TIMEOUT_SECONDS)
        except VarlogError:
            pass  # whoever uses the log meets the error himself

    # ------------------------------------------------------------ watching

    def _start_watch(self) -> None:
        if self._watch is None:
            self._watch = self._scope.spawn(self._keep_watching(), name=f"watch {self.name}")

    async def _keep_watching(self) -> None:
        failures = 0
        try:
            while self.info is not None:
                heard = await self._watch_once()
                failures = 0 if heard else failures + 1
                self._repositories.moved()
                await self._world.clock.sleep(pause(self._world, failures))
        finally:
            self._watch = None

    async def _watch_once(self) -> bool:
        """Take what one watch brings, until it ends. Whether it brought anything."""
        heard = False
        try:
            peer = await self._repositories.peer(ATTEMPT_SECONDS)
            async with peer.stream(
                Method.WATCH_LOG, pb.GetLogRequest(name=self.name), timeout=ATTEMPT_SECONDS
            ) as parts:
                async for part in parts:
                    heard = True
                    self._update(part.message)
        except NotFound:
            self._gone()
        except VarlogError:
            pass  # the repository is away or has moved: asked again after a pause
        return heard

    # ------------------------------------------------------------ news

    def _update(self, info: pb.LogInfo) -> None:
        known = self.info
        if known is not None and (info.id, info.version) < (known.id, known.version):
            return
        self.info = info
        self._places = {NodeId(node.node_id): Place(node.address, node.node_id) for node in info.nodes}
        self._zones = {NodeId(node.node_id): node.zone for node in info.nodes}
        self.streams = tuple(
            _route(info, segment, index, stream)
            for segment in info.chain
            for index, stream in enumerate(segment.streams)
        )
        self._tell()

    def _gone(self) -> None:
        self.info = None
        self.streams = ()
        self._tell()

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()


def _route(info: pb.LogInfo, segment: pb.SegmentInfo, index: int, stream: pb.StreamInfo) -> StreamRoute:
    finalized = stream.state == pb.STREAM_FINALIZED
    return StreamRoute(
        log=LogId(info.id),
        segment=Epoch(segment.epoch),
        id=StreamId(stream.id),
        members=tuple(NodeId(node) for node in stream.members),
        writable=not finalized and segment.state == pb.SEGMENT_OPEN and not info.sealed,
        end=Slot(stream.end_slot) if finalized else None,
        first=Glsn(stream.from_glsn or segment.base),
        until=Glsn(stream.until_glsn) if finalized and stream.until_glsn else None,
        ordering=segment.ordering,
        index=index,
    )
