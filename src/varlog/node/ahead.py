"""Stores that came before their turn: held in memory until the slots before them are taken (`sequencer` ordering).

    appended |   gap   | held | held |        clients write at the same time, in any order

Nothing that is held is durable, reported or answered. A store whose turn does not come soon is answered with `Gap`,
and its client sees to what is missing.
"""

from dataclasses import dataclass

from varlog.base.errors import Gap, Overloaded, Sealed, VarlogError
from varlog.base.ids import Slot
from varlog.node.replica import Batches, Done, Replica
from varlog.ports import Clock, Timer

HOLD_S = 0.25
"""How long a store waits for those before it."""
HELD_BYTES = 32 << 20
"""Of one replica."""
RETRY_AFTER_MS = 20


@dataclass(slots=True)
class _Held:
    batches: Batches
    size: int
    done: Done
    timer: Timer


class Ahead:
    """Of one replica."""

    def __init__(self, replica: Replica, clock: Clock) -> None:
        self._replica = replica
        self._clock = clock
        self._held: dict[Slot, _Held] = {}
        self._bytes = 0
        self._taking = False
        replica.on_stage = self._take_turns
        replica.on_fail.append(self._fail_all)

    @property
    def first(self) -> Slot | None:
        """The lowest slot that is held."""
        return min(self._held, default=None)

    def hold(self, slot: Slot, batches: Batches, done: Done) -> None:
        """Keep a store until its turn; one that is held for the same slot gives way, and is sent again."""
        earlier = self._held.pop(slot, None)
        if earlier is not None:
            self._let_go(earlier)
            earlier.done(self._gap())
        size = sum(header.total_bytes for _, header in batches)
        if self._bytes + size > HELD_BYTES:
            raise Overloaded(f"{self._bytes} bytes wait for slot {self._replica.log.appended}", RETRY_AFTER_MS)
        self._bytes += size
        self._held[slot] = _Held(batches, size, done, self._clock.call_later(HOLD_S, lambda: self._late(slot)))

    def seal(self) -> None:
        """No turn will come."""
        self._fail_all(Sealed("this replica is sealed", self._replica.log.appended))

    def close(self) -> None:
        for held in self._held.values():
            held.timer.cancel()
        self._held.clear()

    def _take_turns(self) -> None:
        """Something was staged: what comes next may be here."""
        if self._taking or not self._held:
            return
        self._taking = True
        try:
            while (held := self._held.pop(self._replica.log.appended, None)) is not None:
                self._let_go(held)
                self._store(held)
        finally:
            self._taking = False
        for slot in [slot for slot in self._held if slot < self._replica.log.appended]:
            passed = self._held.pop(slot)  # another store went over its slot: sent again, it is compared with that
            self._let_go(passed)
            passed.done(self._gap())

    def _store(self, held: _Held) -> None:
        try:
            if not self._replica.store_at_end(self._replica.log.appended, held.batches, held.done):
                held.done(self._gap())
        except VarlogError as error:
            held.done(error)

    def _late(self, slot: Slot) -> None:
        held = self._held.pop(slot)
        self._bytes -= held.size
        held.done(self._gap())

    def _let_go(self, held: _Held) -> None:
        held.timer.cancel()
        self._bytes -= held.size

    def _gap(self) -> Gap:
        appended = self._replica.log.appended
        return Gap(f"slots from {appended} on are missing", appended)

    def _fail_all(self, error: VarlogError) -> None:
        waiting, self._held, self._bytes = list(self._held.values()), {}, 0
        for held in waiting:
            held.timer.cancel()
            held.done(error)
