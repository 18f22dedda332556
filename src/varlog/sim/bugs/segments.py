"""Bugs at the seams between segments that end: where they end, who is a member, who may read on."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from varlog.base.ids import Glsn, LogId, NodeId, Slot
from varlog.client import routes
from varlog.client.reader import StreamReader
from varlog.client.routes import StreamRoute
from varlog.node.replica import Replica
from varlog.node.roles import Roles
from varlog.repository.opening import candidates, describe_replica
from varlog.repository.reconfigure import Reconfigurer, Settings
from varlog.sim.bugs.registry import bug, swap
from varlog.sim.weather import Weather
from varlog.transport.peer import Reply
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def _numbered_by_members(weather: Weather) -> bool:
    """Whether a segment ends by being sealed, with more on some members than on others."""
    return weather.shape.ordering != "cut" and weather.shape.replicas > 1


@bug("a member is finished with all that it has, also behind the end of its segment", _numbered_by_members)
def sealed_member_keeps_all() -> Iterator[None]:
    settle_to, finish_at = Roles.settle, Replica.finish

    async def settle(self: Roles, replica: Replica, request: pb.FinishRequest) -> None:
        await settle_to(self, replica, request)
        if not request.take:
            replica.release(Glsn(request.base), replica.log.durable)

    async def finish(self: Replica, end: Slot) -> None:
        await finish_at(self, end if self.spec.ordering == "cut" else max(end, self.log.durable))

    with swap(Roles, settle=settle), swap(Replica, finish=finish):
        yield


def _is_read_while_it_ends(weather: Weather) -> bool:
    """Whether somebody follows a log whose segments end under him again and again."""
    shape = weather.shape
    return shape.subscribers > 0 and (shape.reshapes > 0 or shape.roll_seconds > 0)


def _is_read_while_it_is_sealed(weather: Weather) -> bool:
    return _numbered_by_members(weather) and _is_read_while_it_ends(weather)


@bug("who reads takes what a sealed node shows for the end of its stream", _is_read_while_it_is_sealed)
def ends_where_the_node_does() -> Iterator[None]:
    plain = StreamReader._take

    def take(self: StreamReader, node: NodeId, part: Reply) -> None:
        plain(self, node, part)
        status: pb.ReplicaStatus = part.message.status
        sealed = status.state in (pb.REPLICA_SEALED, pb.REPLICA_FINISHED)
        if sealed and self.cursor is not None and self.cursor >= status.committed:
            self.at_stop = True

    with swap(StreamReader, _take=take):
        yield


@bug("a stream that has ended without an entry is taken for one that has no end yet", _is_read_while_it_ends)
def empty_has_no_end() -> Iterator[None]:
    plain = routes._route

    def route(info: pb.LogInfo, segment: pb.SegmentInfo, index: int, stream: pb.StreamInfo) -> StreamRoute:
        made = plain(info, segment, index, stream)
        return replace(made, end=made.end or None)

    with swap(routes, _route=route):
        yield


def _has_spare_nodes(weather: Weather) -> bool:
    """Whether a node leads, and others than its members are there to take the place of one that is lost."""
    shape, faults = weather.shape, weather.faults
    led = shape.ordering == "leader" and not shape.journal and shape.replicas > 1
    return led and shape.nodes > shape.replicas and faults.node_crashes + faults.absences > 0


@bug("a lost member is replaced inside the segment: its leader goes on, and never hears of it", _has_spare_nodes)
def member_replaced_inside() -> Iterator[None]:
    plain = Reconfigurer.next_segment

    async def next_segment(
        self: Reconfigurer, number: LogId, wanted: Settings, nodes: Collection[NodeId] = (), **more: Any
    ) -> None:
        log = self._catalog.log(number)
        segment = log.chain[-1]
        stream, there = segment.streams[0], self._links.connected()
        lost = [node for node in stream.members[1:] if node not in there]
        free = [node for node in candidates(self._catalog, self._links) if node not in stream.members]
        leads = segment.ordering == wanted.ordering == "leader" and stream.members[0] in there and not log.journal
        if not (more.get("stay") and leads and lost and free):
            await plain(self, number, wanted, nodes, **more)
            return
        members = [free[0] if node == lost[0] else node for node in stream.members]
        spec = describe_replica(log, segment, segment.streams, stream)
        spec.members[:] = members
        await self._links.call(free[0], Method.OPEN, pb.OpenRequest(spec=spec))

        def change(changed: pb.LogInfo) -> None:
            changed.chain[-1].streams[0].members[:] = members

        await self._catalog.change_log(number, change)

    with swap(Reconfigurer, next_segment=next_segment):
        yield
