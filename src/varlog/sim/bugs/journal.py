"""Bugs around journals: what their leader takes for committed, what it tells, and what becomes of it at the end."""

from collections import deque
from collections.abc import Iterator

from varlog.base.ids import Slot
from varlog.client import Journal, JournalLeader
from varlog.client.journal_lines import LedSegment, _Line
from varlog.core.ordering import leader as leader_ordering
from varlog.core.ordering import tail as tail_ordering
from varlog.core.ordering.journal import Numbered, Tenure
from varlog.sim.bugs.registry import bug, swap
from varlog.sim.weather import Weather
from varlog.transport.peer import Reply
from varlog.wire.proto import varlog_pb2 as pb


def _is_journal(weather: Weather) -> bool:
    """Whether a client leads several members, so that there is a quorum to get wrong."""
    return weather.shape.journal and weather.shape.replicas > 1


@bug("a leader takes all that it has sent for committed when its segment ends", _is_journal)
def fenced_leader_acks() -> Iterator[None]:
    def finish(self: Tenure[object], end: Slot) -> tuple[list[Numbered[object]], list[Numbered[object]]]:
        left, self.waiting = list(self.waiting), deque()
        return left, []

    with swap(Tenure, finish=finish):
        yield


@bug("a leader appends anew what it had sent when its segment ends, wherever that ended", _is_journal)
def appended_again() -> Iterator[None]:
    def finish(self: Tenure[object], end: Slot) -> tuple[list[Numbered[object]], list[Numbered[object]]]:
        left, self.waiting = list(self.waiting), deque()
        return [], left

    with swap(Tenure, finish=finish):
        yield


@bug("a leader tells its members that all is committed which it has sent", _is_journal)
def released_ahead() -> Iterator[None]:
    plain = LedSegment.request

    def request(self: LedSegment, slot: Slot) -> pb.StoreRequest:
        message = plain(self, slot)
        message.committed = self.tenure.end
        return message

    with swap(LedSegment, request=request):
        yield


@bug("an answer of a member counts for all that was sent to it, whatever has arrived", _is_journal)
def answer_counts_for_all() -> Iterator[None]:
    plain = _Line._judge

    def judge(self: _Line, reply: Reply) -> Slot:
        found = plain(self, reply)
        self._segment.has(self.node, max(found, self._cursor))
        return found

    with swap(_Line, _judge=judge):
        yield


@bug("the tail of a journal is what enough of those have that answer, whoever is silent", _is_journal)
def tail_without_the_silent() -> Iterator[None]:
    def tail_between(tails: list[Slot], members: int, ack: int) -> tuple[Slot, Slot]:
        least = leader_ordering.committed(tails, ack)
        return least, least

    with swap(tail_ordering, tail_between=tail_between):
        yield


@bug("a candidate goes on with the segment of another, at whatever the first member has that answers", _is_journal)
def segment_goes_on_under_another() -> Iterator[None]:
    plain_lead, plain_judge = Journal.lead, _Line._judge

    def lead(self: Journal, *, ttl: float, name: str = "", timeout: float | None = None) -> JournalLeader:
        made = plain_lead(self, ttl=ttl, name=name, timeout=timeout)
        made._leadership._id = made._leadership._lease._leader.id = 1
        return made

    def judge(self: _Line, reply: Reply) -> Slot:
        if not self._tenure.end:
            self._tenure.end = self._tenure.committed = Slot(reply.message.contiguous)
        return plain_judge(self, reply)

    with swap(Journal, lead=lead), swap(_Line, _judge=judge):
        yield
