"""Bugs around the `leader` ordering: its quorums, its end, its recovery."""

from collections.abc import Iterable, Iterator, Sequence

from varlog.base.ids import Glsn, NodeId, Slot
from varlog.core.ordering import leader as leader_ordering
from varlog.core.replica import ReplicaState
from varlog.node.relay import Relay
from varlog.node.replica import Batches, Done, Replica
from varlog.node.roles import Roles
from varlog.repository import sealing
from varlog.repository.links import slots_of
from varlog.repository.sealing import Sealing
from varlog.runtime.scope import Scope
from varlog.sim.bugs.registry import bug, swap
from varlog.sim.weather import Weather
from varlog.wire.proto import varlog_pb2 as pb

SEALED_LATE_S = 0.02


def _is_led(weather: Weather) -> bool:
    """Whether a leader has others beside it, so that there is a quorum to get wrong."""
    return weather.shape.ordering == "leader" and weather.shape.replicas > 1


def _may_lose_two(weather: Weather) -> bool:
    return weather.faults.lost_nodes > 1


def _a_node_leads(weather: Weather) -> bool:
    """A client that leads is a new one after a crash, and takes no answer of a member that is sealed."""
    return _is_led(weather) and not weather.shape.journal


@bug("a leader answers when its own disk has an entry", _is_led)
def leader_acks_alone() -> Iterator[None]:
    def committed(tails: Iterable[Slot], ack: int) -> Slot:
        return max(tails)

    with swap(leader_ordering, committed=committed):
        yield


@bug("two copies acknowledge, however many are asked for", lambda weather: _is_led(weather) and _may_lose_two(weather))
def two_acknowledge() -> Iterator[None]:
    plain = leader_ordering.committed

    def committed(tails: Iterable[Slot], ack: int) -> Slot:
        return plain(tails, min(ack, 2))

    with swap(leader_ordering, committed=committed):
        yield


@bug("a segment ends by the word of the first member that answers", _is_led)
def seal_quorum_too_small() -> Iterator[None]:
    def seal_quorum(members: int, ack: int) -> int:
        return 1

    def end_of(tails: Sequence[Slot], members: int, ack: int, acknowledged: Slot | None = None) -> Slot:
        return max(tails)

    with swap(leader_ordering, seal_quorum=seal_quorum, end_of=end_of), swap(sealing, GRACE_S=0.0):
        yield


@bug("what silent members may have is not counted when a segment ends", _is_led)
def silent_members_have_nothing() -> Iterator[None]:
    def end_of(tails: Sequence[Slot], members: int, ack: int, acknowledged: Slot | None = None) -> Slot:
        return leader_ordering.committed(tails, ack)

    with swap(leader_ordering, end_of=end_of):
        yield


@bug("a leader that was started again goes on with its segment", _a_node_leads)
def restarted_leader_goes_on() -> Iterator[None]:
    plain = Roles.take

    def take_role(self: Roles, replica: Replica, scope: Scope, *, new: bool) -> None:
        plain(self, replica, scope, new=new or replica.spec.ordering == "leader")

    with swap(Roles, take=take_role):
        yield


@bug("a seal is answered at once, and what is on its way is still stored behind the tail it told", _a_node_leads)
def seal_overtakes_stores() -> Iterator[None]:
    def late(self: Replica) -> None:
        if self.state is ReplicaState.OPEN and self.log.failure is None:
            self.log.stage_seal()
            self._want_sync()

    async def seal(self: Replica) -> None:
        self._clock.call_later(SEALED_LATE_S, late, self)

    with swap(Replica, seal=seal):
        yield


@bug("a member is finished without what it lacks before the end", _is_led)
def finished_without_settling() -> Iterator[None]:
    async def settle(_: Roles, replica: Replica, request: pb.FinishRequest) -> None:
        replica.release(Glsn(request.base), Slot(request.end))

    plain = Replica.finish

    async def finish(self: Replica, end: Slot) -> None:
        await plain(self, min(end, self.log.durable))

    with swap(Roles, settle=settle), swap(Replica, finish=finish):
        yield


def _has_a_middle(weather: Weather) -> bool:
    """Whether a chain has a member with others behind it, and some of them are out at times."""
    faults = weather.faults
    shape = weather.shape
    chained = bool(shape.replication) and not shape.journal
    return chained and shape.replicas > 2 and faults.node_crashes + faults.snipes > 0


def _loses_its_head_soon(weather: Weather) -> bool:
    """Several are out at once, and are replaced before they could hand on what they answered for."""
    often = weather.faults.snipes > 0 or weather.faults.absences > 0
    return _has_a_middle(weather) and weather.shape.lost_ms <= 100 and often


@bug("a member of a chain answers when it has an entry itself", _loses_its_head_soon)
def chain_answers_early() -> Iterator[None]:
    with swap(Relay, _stored=property(lambda self: self._replica.log.durable)):
        yield


@bug("a segment ends by what its members reported last: nobody is sealed before that is decided", _is_led)
def end_without_a_fence() -> Iterator[None]:
    async def seal(self: Sealing, node: NodeId) -> None:
        row = self._links.row(node, self._name)
        if row is None:
            self._refused(node, "it has not reported")
        else:
            self._sealed(node, pb.ReplicaStatus(contiguous=slots_of(row)))

    with swap(Sealing, _seal=seal):
        yield


@bug(
    "a member takes what it is given as the next, whether or not something before it was lost",
    lambda weather: _is_led(weather) and not weather.network.in_order,
)
def stored_over_a_gap() -> Iterator[None]:
    at_end, anywhere = Replica.store_at_end, Replica.store

    def place(self: Replica, slot: Slot) -> Slot:
        return min(slot, self.log.appended) if self.spec.ordering == "leader" else slot

    def store_at_end(self: Replica, slot: Slot, batches: Batches, done: Done | None = None) -> bool:
        return at_end(self, place(self, slot), batches, done)

    async def store(self: Replica, slot: Slot, batches: Batches, *, settle: bool) -> None:
        await anywhere(self, place(self, slot), batches, settle=settle)

    with swap(Replica, store_at_end=store_at_end, store=store):
        yield
