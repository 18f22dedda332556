"""Bugs around the `sequencer` ordering: its chains, its junk, its end, its counter."""

import asyncio
from collections.abc import Iterator, Sequence

from varlog.base.errors import Taken
from varlog.base.ids import Glsn, NodeId, Slot, StreamId
from varlog.client import chain, questions, tail
from varlog.client.chain import Chain, Lost, Over
from varlog.client.chain_writer import ChainWriter
from varlog.client.context import LogContext
from varlog.client.routes import StreamRoute
from varlog.client.writer import Carried
from varlog.core.ordering import sequencer as ordering
from varlog.core.ordering.sequencer import Stripes
from varlog.node import settle
from varlog.node.copier import Connect
from varlog.node.replica import Replica
from varlog.node.roles import Roles
from varlog.node.sequencer import Sequencer
from varlog.ports import Clock
from varlog.repository import reconfigure, sealing
from varlog.repository.links import NodeLinks
from varlog.repository.sealing import StreamEnd
from varlog.sim.bugs.registry import bug, swap
from varlog.sim.weather import Weather
from varlog.wire.batch import BatchHeader, junk_batch
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

SLOW = 0.05
"""So many writes dally between their grant and the head."""


def _is_chained(weather: Weather) -> bool:
    """Whether a chain has more than a head."""
    return weather.shape.ordering == "sequencer" and weather.shape.replicas > 1


def _ends_early(weather: Weather) -> bool:
    """Whether segments of several chains end for the loss of a member, in the middle of appends."""
    shape = weather.shape
    lost = weather.faults.node_crashes > 0 and shape.nodes > shape.replicas
    return _is_chained(weather) and shape.streams > 1 and lost and shape.operations_per_second > 10


def _has_a_name(weather: Weather) -> bool:
    """Whether named producers are opened, and what they are told can be checked at the end."""
    shape = weather.shape
    return shape.ordering == "sequencer" and shape.named_producers and not shape.trims and shape.nodes > 1


@bug("an append is answered before the last member has it", _is_chained)
def acked_before_the_last() -> Iterator[None]:
    async def write(self: Chain, slot: Slot, data: Buffer, count: int) -> None:
        for place in range(self._last):
            await self._write_at(place, slot, data)

    with swap(Chain, write=write):
        yield


@bug("a writer that finds its place taken takes that for an earlier try of its own", _is_chained)
def taken_is_taken_for_written() -> Iterator[None]:
    plain = Chain.write

    async def write(self: Chain, slot: Slot, data: Buffer, count: int) -> None:
        if self._context.world.random.random() < SLOW:
            await self._clock.sleep(1.0)  # any writer may be, at any moment; here it is common
        try:
            await plain(self, slot, data, count)
        except Lost:
            pass

    with swap(chain, FILL_SECONDS=0.1), swap(Chain, write=write):
        yield


@bug("who needs a position fills every member that lacks it, and asks the head of nothing", _is_chained)
def filled_behind_the_head() -> Iterator[None]:
    async def complete(self: Chain, need: Slot) -> None:
        for place in range(self._last + 1):
            has = Slot((await self._status(place)).contiguous)
            if has < need:
                pieces = self._stripes.bindings(self.route.index, has, need)
                await self._store(place, has, [junk_batch(piece.count) for piece in pieces])

    with swap(Chain, _complete=complete):
        yield


@bug("readers ask the head, which shows them all that it has", _is_chained)
def read_at_the_head() -> Iterator[None]:
    plain = Roles._take_sequencer_role

    def take_role(self: Roles, replica: Replica, *, new: bool) -> None:
        plain(self, replica, new=new)
        replica.last_of_chain = True

    head = property(lambda self: 0 if self.written_by_clients and self.end is None else None)
    with swap(Roles, _take_sequencer_role=take_role), swap(StreamRoute, first_to_know=head):
        yield


@bug(
    "a sequencer that was started again counts from the beginning of its segment",
    lambda weather: weather.shape.ordering == "sequencer" and weather.shape.tails > 0,
)
def restarted_sequencer_goes_on() -> Iterator[None]:
    plain = Roles._take_sequencer_role

    def take_role(self: Roles, replica: Replica, *, new: bool) -> None:
        plain(self, replica, new=True)

    with swap(Roles, _take_sequencer_role=take_role):
        yield


@bug("a segment ends at its first hole, whatever was acknowledged behind it in other streams", _ends_early)
def end_at_the_first_hole() -> Iterator[None]:
    def end_of(stripes: Stripes, acknowledged: Sequence[int]) -> Glsn:
        return ordering.first_open(stripes, acknowledged)

    with swap(ordering, end_of=end_of):
        yield


@bug("a member fills what it lacks before the end by itself, and does not ask the others for it", _ends_early)
def junk_by_each_member() -> Iterator[None]:
    async def take_nothing(replica: Replica, end: Slot, sources: Sequence[NodeId], connect: Connect) -> None:
        if replica.spec.ordering == "sequencer":
            await settle._fill(replica, replica.log.durable, end)
        else:
            await plain(replica, end, sources, connect)

    plain = settle._take_what_is_missing
    with swap(settle, _take_what_is_missing=take_nothing):
        yield


@bug(
    "what had a place when its segment ended is sent again, without a look at that place",
    lambda weather: weather.shape.ordering == "sequencer",
)
def sent_again_unseen() -> Iterator[None]:
    async def is_there(self: ChainWriter, batch: Carried, index: int, slot: Slot) -> bool:
        await self._over.wait()
        return False

    with swap(ChainWriter, _is_there=is_there):
        yield


@bug(
    "whoever had a producer's name is granted positions",
    lambda weather: _has_a_name(weather) and weather.shape.ghosts > 0,
)
def names_are_everybodys() -> Iterator[None]:
    def check_claim(self: Sequencer, producer: bytes, claim: bytes) -> None:
        return

    with swap(Sequencer, check_claim=check_claim):
        yield


@bug("a named producer goes on behind a batch that is perhaps not in the log", _has_a_name)
def goes_on_behind_a_hole() -> Iterator[None]:
    plain = Chain.write

    def go_on(self: ChainWriter, why: str) -> None:
        return

    async def write(self: Chain, slot: Slot, data: Buffer, count: int) -> None:
        if self._context.world.random.random() < 12 * SLOW:
            await self._clock.sleep(1.5)  # longer than some wait for an answer
        await plain(self, slot, data, count)

    with swap(chain, FILL_SECONDS=0.1), swap(Chain, write=write), swap(ChainWriter, _break=go_on):
        yield


@bug(
    "what is sent again to a slot is refused, though it is what is there",
    lambda weather: weather.shape.ordering == "sequencer",
)
def same_again_is_taken() -> Iterator[None]:
    async def compare(self: Replica, slot: Slot, header: BatchHeader) -> None:
        if slot >= self.log.trimmed:
            raise Taken(f"slot {slot} of {self.id} is taken", slot)

    with swap(Replica, _compare=compare):
        yield


@bug(
    "what an old sequencer has granted is told as the tail, though its segment takes no more",
    lambda weather: weather.shape.ordering == "sequencer" and weather.shape.tails > 0,
)
def tail_of_a_sealed_segment() -> Iterator[None]:
    plain = questions.complete_last_segment

    async def complete(context: LogContext, last: questions.LastSegment, end: int) -> None:
        try:
            await plain(context, last, end)
        except Over:
            pass  # nobody writes it any more, so there is nothing to complete

    with swap(questions, complete_last_segment=complete), swap(tail, complete_last_segment=complete):
        yield


def _changes_are_not_recorded(weather: Weather) -> bool:
    """Whether a change may fail between the seal and the record, and others answer when it is tried again."""
    faults = weather.faults
    return (
        _is_chained(weather)
        and weather.shape.streams > 1
        and faults.outages > 0
        and faults.node_crashes + faults.absences > 0
    )


@bug(
    "members are finished, and filled with junk, before it is on record where the segment ends",
    _changes_are_not_recorded,
)
def junk_before_the_record() -> Iterator[None]:
    plain = sealing.seal_members

    async def seal_members(links: NodeLinks, clock: Clock, log: pb.LogInfo) -> tuple[dict[StreamId, StreamEnd], int]:
        ends, until = await plain(links, clock, log)
        segment = log.chain[-1]
        calls = []
        for stream in segment.streams if segment.ordering == "sequencer" else ():
            name = pb.ReplicaId(log=log.id, segment=segment.epoch, stream=stream.id)
            end = ends[StreamId(stream.id)]
            for node in stream.members:
                others = [other for other in stream.members if other != node]
                request = pb.FinishRequest(
                    replica=name, base=segment.base, end=end.slot, sources=others, junk_slot=end.junk
                )
                calls.append(links.ask(NodeId(node), Method.FINISH, request))
        await asyncio.gather(*calls, return_exceptions=True)
        return ends, until

    with swap(reconfigure, seal_members=seal_members):
        yield
