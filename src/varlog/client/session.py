"""One producer id on one stream: what was sent, what an answer means, what to send again. Pure.

    acked ...  | 5      6      7  | 8      9  |
               | on their way     | to send   |
               ^ floor            ^ send_next ^ next_sequence

Sequences are dense, and a stream takes a producer's batches in sequence only. So nothing behind a
batch that was never taken can be in the log, and that is what makes the outcome of a send decidable:

- *acked*: it is in the log.
- *refused*: certainly not in the log, now or later (I6). Some refusals are final by their nature
  (the stream is sealed, the bytes are unacceptable), whatever else is on its way. Any other is final
  only when no transmission of the batch is open or was lost; as long as one is, the batch goes on
  being sent. After a final refusal the session is over: its sequence would leave a hole, so the
  batches behind it, which are as certainly not in the log, go on under another producer id.
- *unknown*: every other case, until one of the above. A batch is only ever sent again under the
  sequence it has, so it is in the log at most once (I5).

A stream forgets producers that are silent for long; it then expects less than what it acked before.
Batches whose every transmission was answered with that are certainly not in the log either. This
leans on one thing: a producer is forgotten only when no frame of his is on its way any more. A late
copy of sequence 0 would else be taken for the first batch of a new producer, and be there twice. It
holds as long as fewer than `PRODUCERS_PER_STREAM` others come to a stream while a frame travels.
"""

from typing import Generic, NamedTuple, TypeVar

from varlog.base.invariant import invariant

Batch = TypeVar("Batch")


class Flight(Generic[Batch]):
    """A batch under one sequence of one session. A batch that goes on elsewhere begins another."""

    __slots__ = ("batch", "open", "round", "sequence", "unknown")

    def __init__(self, batch: Batch, sequence: int) -> None:
        self.batch = batch
        self.sequence = sequence
        self.open = 0
        """Transmissions whose answer is awaited."""
        self.unknown = 0
        """Transmissions whose answer will never come."""
        self.round = 0
        """Of the last transmission."""


class Transmission(NamedTuple, Generic[Batch]):
    """One time that a batch was put on the wire."""

    flight: Flight[Batch]
    round: int
    floor: int
    """Everything below had been acked when this was sent."""


class Session(Generic[Batch]):
    """The sequence of one producer on one stream."""

    def __init__(self, producer: bytes, next_sequence: int = 0, claim: bytes = b"") -> None:
        """`claim`: by what the sequencer knows which of several producers of one name may go on."""
        self.producer = producer
        self.claim = claim
        self.next_sequence = next_sequence
        self.unresolved: dict[int, Flight[Batch]] = {}
        """By sequence, in order."""
        self.over = False
        """Takes no more batches; those in `unresolved` are seen to their end."""
        self.forgotten = False
        """The stream no longer knows this producer: nothing is sent any more."""
        self._send_next = next_sequence
        self._round = 0

    # ------------------------------------------------------------ sending

    def add(self, batch: Batch) -> Flight[Batch]:
        """Give a batch the next sequence."""
        invariant(not self.over, "a batch for a session that is over", producer=self.producer)
        flight = Flight(batch, self.next_sequence)
        self.unresolved[flight.sequence] = flight
        self.next_sequence += 1
        return flight

    def to_send(self) -> Flight[Batch] | None:
        """The next batch that nobody carries, or that must be carried again."""
        while self._send_next < self.next_sequence and not self.forgotten:
            flight = self.unresolved.get(self._send_next)
            if flight is not None and (not flight.open or flight.round < self._round):
                return flight
            self._send_next += 1
        return None

    def sent(self, flight: Flight[Batch]) -> Transmission[Batch]:
        """The batch is on the wire."""
        flight.open += 1
        flight.round = self._round
        self._send_next = flight.sequence + 1
        return Transmission(flight, self._round, next(iter(self.unresolved)))

    def send_again(self) -> None:
        """Carry everything again, without waiting for the answers to what is on its way."""
        if self.unresolved:
            self._round += 1
            self._send_next = min(self._send_next, next(iter(self.unresolved)))

    # ------------------------------------------------------------ answers

    def acked(self, transmission: Transmission[Batch]) -> bool:
        """It is in the log. True for the first answer that says so."""
        flight = transmission.flight
        flight.open -= 1
        if self.unresolved.get(flight.sequence) is not flight:
            return False
        del self.unresolved[flight.sequence]
        return True

    def lost(self, transmission: Transmission[Batch]) -> None:
        """No answer came, or one that does not tell: it may have been taken."""
        transmission.flight.open -= 1
        transmission.flight.unknown += 1
        self._carry_again(transmission.flight)

    def put_off(self, transmission: Transmission[Batch]) -> None:
        """Not taken this time, perhaps the next."""
        transmission.flight.open -= 1
        self._carry_again(transmission.flight)

    def gap(self, transmission: Transmission[Batch], expected: int) -> bool:
        """Not taken: the stream has nothing from `expected` on. False: an old answer, that was acted on."""
        transmission.flight.open -= 1
        if expected < transmission.floor:
            self.over = self.forgotten = True
            return True
        news = transmission.round == self._round and bool(self.unresolved)
        if news:
            # Whatever was sent behind the gap gets the same answer; their rounds say that it is an old one.
            self._round += 1
            self._send_next = min(self._send_next, max(expected, next(iter(self.unresolved))))
        self._carry_again(transmission.flight)
        return news

    def refused(self, transmission: Transmission[Batch], *, final: bool) -> list[Batch] | None:
        """Not taken, with an error. If that settles it: the batches behind it, to go on elsewhere; else None.

        `final` says that no transmission of these bytes was or will be taken, by the nature of the error.
        """
        flight = transmission.flight
        flight.open -= 1
        if not self._is_open(flight):
            return None
        if not final and (flight.open or flight.unknown):
            self._carry_again(flight)
            return None
        self.over = True
        behind = [each for sequence, each in self.unresolved.items() if sequence > flight.sequence]
        for each in (flight, *behind):
            del self.unresolved[each.sequence]
        return [each.batch for each in behind]

    def abandoned(self) -> tuple[list[Batch], list[Batch]] | None:
        """Of a forgotten session, once no answer is awaited: what is certainly not in the log, and what may be."""
        if not self.forgotten or any(each.open for each in self.unresolved.values()):
            return None
        return self.given_up()

    def given_up(self) -> tuple[list[Batch], list[Batch]]:
        """Wait for no more answers: what is certainly not in the log, and what may be."""
        left = list(self.unresolved.values())
        self.unresolved.clear()
        certain = [each.batch for each in left if not each.open and not each.unknown]
        return certain, [each.batch for each in left if each.open or each.unknown]

    # ------------------------------------------------------------

    def _is_open(self, flight: Flight[Batch]) -> bool:
        return self.unresolved.get(flight.sequence) is flight

    def _carry_again(self, flight: Flight[Batch]) -> None:
        if not flight.open and self._is_open(flight):
            self._send_next = min(self._send_next, flight.sequence)
