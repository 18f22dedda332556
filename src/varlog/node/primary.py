"""The primary of a stream under `cut`: takes appends, gives them slots, answers when they are bound (S1, S4, S5).

                             .--> [ write and sync here ]  --report--.
    client --APPEND--> [ stage ]                                      >--- cut, advance --reply--> client
                             `--> [ store at every backup ] --report-'

An append is answered by the commit that covers it and by nothing else: never on replication alone.
Its batch goes to this disk and to the backups at the same time, in the order of slots. So a backup may
have on its disk what this one lost in a crash: a primary that was started again takes that back
first (`takeback`), and takes no append before. While it serves, no backup has more than its primary.

A producer's batches arrive in sequence. One that is already here is answered with the position it
has; one that leaves a gap is refused with the sequence to go on from. A producer that has a name goes on with one
stream at a time: once it has been said to go on elsewhere, an earlier process of that name, which knows nothing
of it, can append nothing here that the other appends there.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass

from varlog.base import limits
from varlog.base.errors import (
    Fenced,
    Gap,
    InvalidArgument,
    OutcomeUnknown,
    Overloaded,
    Sealed,
    Unavailable,
    VarlogError,
)
from varlog.base.ids import FIRST_SLOT, Glsn, Slot
from varlog.base.ranges import Binding
from varlog.core.replica import ReplicaState
from varlog.node.replica import Replica
from varlog.transport.peer import Request
from varlog.wire.batch import NO_PRODUCER, BatchHeader, check_batch
from varlog.wire.proto import varlog_pb2 as pb

RETRY_AFTER_MS = 20
"""What an overloaded primary tells its clients to wait."""


@dataclass(slots=True)
class _Waiting:
    """An append that is staged and not yet bound."""

    request: Request
    slot: Slot
    count: int
    size: int

    @property
    def end(self) -> Slot:
        return Slot(self.slot + self.count)


class Primary:
    """Appends of one stream."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._repeated: list[_Waiting] = []
        """Appends that came again while the first is still open."""
        self._elsewhere: OrderedDict[bytes, None] = OrderedDict()
        """Producers that go on with another stream."""
        replica.on_verdict.append(self._committed)
        replica.on_fail.append(self._failed)
        replica.on_finish.append(self._finished)

    # ------------------------------------------------------------ taking appends

    def append(self, request: Request) -> None:
        """Handle APPEND; raises what refuses it."""
        replica = self._replica
        if replica.closed:
            raise Unavailable(replica.closed)
        header = check_batch(request.body)
        size = header.total_bytes
        if size != len(request.body):
            raise InvalidArgument("an append carries exactly one batch")
        if header.producer != NO_PRODUCER and self._is_repeated(request, header):
            return
        if replica.spec.ordering == "sequencer":
            self._refuse_unsettled()
            # Clients store, we only know what is here; and a producer's batches lie on all streams in turns.
            raise OutcomeUnknown(f"{replica.id} does not know this batch; another stream of its segment may")
        if self._elsewhere and header.producer in self._elsewhere:
            raise Fenced("a producer of this name goes on with another stream: open it again", replica.id.segment)
        if self._waiting_bytes > limits.STREAM_IN_FLIGHT_BYTES:
            raise Overloaded(f"{self._waiting_bytes} bytes wait for their place in the order", RETRY_AFTER_MS)
        slot = replica.stage([(request.body, header)])
        self._waiting.append(_Waiting(request, slot, header.count, size))
        self._waiting_bytes += size

    def producer(self, producer: bytes, begin: int, *, begins: bool, leaves: bool) -> tuple[int, int]:
        """What a producer goes on with, and the oldest of its batches whose position is known.

        A stream that does not know him expects `begin`: before, he sent to streams that have ended.
        """
        if self._replica.closed:
            raise Unavailable(self._replica.closed)
        if leaves:
            self._leave(producer)  # first of all: what is not decided yet is to be the last of it
        self._refuse_undecided(producer)
        if begins:
            self._elsewhere.pop(producer, None)
        table = self._replica.log.producers
        if begin and self._replica.state is ReplicaState.OPEN:
            table.begin(producer, begin)
        return table.next_sequence(producer), table.first_sequence(producer)

    def _leave(self, producer: bytes) -> None:
        if self._replica.state is ReplicaState.OPEN:
            self._elsewhere[producer] = None
            if len(self._elsewhere) > limits.PRODUCERS_PER_STREAM:
                self._elsewhere.popitem(last=False)

    def _refuse_undecided(self, producer: bytes) -> None:
        """What is stored and not committed may yet turn out not to be in the log: nobody may go on behind it."""
        log = self._replica.log
        self._refuse_unsettled()
        last = log.producers.find(producer, log.producers.next_sequence(producer) - 1)
        if last is not None and last[0] + last[1] > log.committed:
            raise Unavailable(f"the last batch of this producer in {self._replica.id} waits for its place in the order")

    def _refuse_unsettled(self) -> None:
        """Where the stream ends, or what is in it, is not known here: others may have what this replica lacks."""
        replica = self._replica
        if replica.state is ReplicaState.SEALED:
            raise Unavailable(f"{replica.id} is sealed; where it ends is not known here yet")
        if replica.failure is not None:
            raise Unavailable(replica.failure.message)

    def _is_repeated(self, request: Request, header: BatchHeader) -> bool:
        producers = self._replica.log.producers
        expected = producers.next_sequence(header.producer)
        if header.sequence == expected:
            return False
        if header.sequence > expected and self._replica.spec.ordering == "sequencer":
            return False
        if header.sequence > expected:
            raise Gap(f"this producer's sequence {expected} has not arrived yet", expected)
        found = producers.find(header.producer, header.sequence)
        if found is None:
            # Older than what is remembered, so it lies before all of that; once the oldest that is
            # remembered is bound, so is this one.
            oldest = producers.oldest(header.producer)
            self._answer_when_bound(_Waiting(request, oldest, 0, 0))
        else:
            slot, count = found
            self._answer_when_bound(_Waiting(request, slot, count, 0))
        return True

    def _answer_when_bound(self, waiting: _Waiting) -> None:
        replica = self._replica
        if waiting.end > replica.log.committed:
            if replica.failure is not None:
                raise OutcomeUnknown(replica.failure.message)
            # Those before it whose time is up nobody waits for any more, and each has its bytes.
            self._repeated = [each for each in self._repeated if not each.request.done]
            self._repeated.append(waiting)
        else:
            replica.spawn(self._look_up(waiting), name="look up a repeated append")

    async def _look_up(self, waiting: _Waiting) -> None:
        glsn = 0
        log = self._replica.log
        try:
            if waiting.count and waiting.slot >= log.trimmed:
                glsn = (await log.bindings(waiting.slot, waiting.end))[0].glsn
        except VarlogError as error:
            waiting.request.fail(OutcomeUnknown(error.message))
            return
        waiting.request.reply(pb.AppendReply(glsn=glsn, slot=waiting.slot, count=waiting.count))

    # ------------------------------------------------------------ answering them

    def _committed(self, binding: Binding) -> None:
        end = binding.slot_end
        shift = binding.glsn - binding.slot
        waiting = self._waiting
        while waiting and waiting[0].slot < end:
            first = waiting.popleft()
            self._waiting_bytes -= first.size
            self._reply(first, Glsn(first.slot + shift))
        if self._repeated:
            self._answer_repeated(binding, shift)

    def _answer_repeated(self, binding: Binding, shift: int) -> None:
        still_open: list[_Waiting] = []
        for each in self._repeated:
            if each.end > binding.slot_end:
                still_open.append(each)
            elif each.count and each.slot >= binding.slot:
                self._reply(each, Glsn(each.slot + shift))
            else:
                self._reply(each, Glsn(0))
        self._repeated = still_open

    @staticmethod
    def _reply(waiting: _Waiting, glsn: Glsn) -> None:
        waiting.request.reply(pb.AppendReply(glsn=glsn, slot=waiting.slot, count=waiting.count))

    def _failed(self, error: VarlogError) -> None:
        """What is stored may yet be committed from what was copied before: nobody can tell."""
        self._end_all(FIRST_SLOT, OutcomeUnknown(error.message))

    def _finished(self, end: Slot) -> None:
        """The last cut is known, so what lies beyond it is certainly not in the log (I6)."""
        self._end_all(end, Sealed("the log was sealed before this append got its place"))

    def dropped(self) -> None:
        """The replica is about to be removed: others know what is in the stream."""
        self._end_all(FIRST_SLOT, OutcomeUnknown("this node is no longer a member of the stream"))

    def _end_all(self, start: Slot, error: VarlogError) -> None:
        ended = [each for each in (*self._waiting, *self._repeated) if each.slot >= start]
        self._waiting = deque(each for each in self._waiting if each.slot < start)
        self._waiting_bytes = sum(each.size for each in self._waiting)
        self._repeated = [each for each in self._repeated if each.slot < start]
        for each in ended:
            each.request.fail(error)

    @property
    def idle(self) -> bool:
        return not self._waiting and self._replica.state is ReplicaState.OPEN
