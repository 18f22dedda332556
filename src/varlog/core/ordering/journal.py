"""One segment of a journal as its leader sees it: what it numbered, what each member has, what is committed.

    slots   0 ....... dropped ........ committed ......... end
            |  gone     |  kept for      |  given slots,     |
            |           |  members that  |  and not yet on   |
            |           |  are behind    |  W members        |

The leader gives slots in the order of its batches and changes none of them. A member has a beginning of that
sequence; what W members have is committed, in order: a slot that is on fewer keeps all behind it waiting. When the
segment ends, what lies before its end is in the log, whoever acknowledged it, and nothing else of it is.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from varlog.base.ids import NodeId, Slot
from varlog.base.invariant import invariant
from varlog.core.ordering import leader

Batch = TypeVar("Batch")


class Numbered(NamedTuple, Generic[Batch]):
    """A batch and its slots `[slot, end)`."""

    slot: Slot
    end: Slot
    batch: Batch


class Tenure(Generic[Batch]):
    """Of one leader, over one segment."""

    def __init__(self, members: Iterable[NodeId], ack: int, keep_bytes: int) -> None:
        """`keep_bytes`: how much that is committed is kept for members that lack it."""
        self.end = Slot(0)
        """Of all that was given slots."""
        self.committed = Slot(0)
        self.waiting: deque[Numbered[Batch]] = deque()
        """Not committed yet, in order."""
        self._ack = ack
        self._keep_bytes = keep_bytes
        self._tails: dict[NodeId, Slot] = dict.fromkeys(members, Slot(0))
        self._kept: OrderedDict[Slot, tuple[Slot, bytes]] = OrderedDict()
        self._committed_bytes = 0
        """Kept and committed."""

    def add(self, batch: Batch, count: int, data: bytes) -> None:
        """Give a batch the next slots."""
        slot, self.end = self.end, Slot(self.end + count)
        self.waiting.append(Numbered(slot, self.end, batch))
        self._kept[slot] = (self.end, data)

    def has(self, member: NodeId, tail: Slot) -> list[Numbered[Batch]]:
        """A member has synced all slots below `tail`: the batches that are committed by that, in order."""
        invariant(tail <= self.end, "a member has what was never stored", tail=tail, end=self.end)
        if tail <= self._tails[member]:
            return []
        self._tails[member] = tail
        upto = leader.committed(self._tails.values(), self._ack)
        found = []
        while self.waiting and self.waiting[0].end <= upto:
            numbered = self.waiting.popleft()
            found.append(numbered)
            self.committed = numbered.end
            self._committed_bytes += len(self._kept[numbered.slot][1])
        self._drop()
        return found

    def _drop(self) -> None:
        """What all have, and the oldest of what is committed beyond what may be kept."""
        all_have = min(self._tails.values())
        while self._kept:
            slot, (end, data) = next(iter(self._kept.items()))
            if end > self.committed or (end > all_have and self._committed_bytes <= self._keep_bytes):
                return
            del self._kept[slot]
            self._committed_bytes -= len(data)

    def after(self, slot: Slot, most_bytes: int, until: Slot | None = None) -> tuple[Slot, list[bytes]]:
        """Batches from `slot` on, at least one if there is one, and where they end; none that ends beyond `until`."""
        body: list[bytes] = []
        size = 0
        while size < most_bytes and (kept := self._kept.get(slot)) is not None:
            if until is not None and kept[0] > until:
                break
            slot = kept[0]
            body.append(kept[1])
            size += len(kept[1])
        return slot, body

    def dropped(self, slot: Slot) -> bool:
        """What comes next for a member that stands here is not kept any more."""
        return slot < self.end and slot not in self._kept

    def waits_before(self, end: Slot) -> bool:
        """Whether the outcome of something that waits depends on what lies before `end`."""
        return bool(self.waiting) and self.waiting[0].end <= end

    def finish(self, end: Slot) -> tuple[list[Numbered[Batch]], list[Numbered[Batch]]]:
        """The segment has ended: of what waits, what is in the log, and what certainly is not."""
        invariant(end >= self.committed, "a segment ended before what was acknowledged", end=end)
        left, self.waiting = list(self.waiting), deque()
        return [each for each in left if each.end <= end], [each for each in left if each.end > end]
