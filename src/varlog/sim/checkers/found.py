"""Find (a promise of the client): the first position, of those committed before the call, at or after a time.

With none such the answer is one past the tail, where an entry of any time may come later.
"""

from collections.abc import Iterator

from varlog.sim.checkers.base import LogHistory, Violation, describe, highest_before


class _Highest:
    """The largest value in a range of positions, while values are being filled in."""

    def __init__(self, size: int) -> None:
        self._size = 1
        while self._size < size:
            self._size *= 2
        self._tree = [-1] * (2 * self._size)

    def put(self, at: int, value: int) -> None:
        at += self._size
        while at:
            self._tree[at] = max(self._tree[at], value)
            at //= 2

    def within(self, low: int, high: int) -> int:
        best = -1
        low, high = low + self._size, high + self._size
        while low < high:
            if low & 1:
                best = max(best, self._tree[low])
                low += 1
            if high & 1:
                high -= 1
                best = max(best, self._tree[high])
            low, high = low // 2, high // 2
        return best


def check(history: LogHistory) -> Iterator[Violation]:
    final = history.final
    if final is None or not final.times_us:
        return
    times = dict(zip(final.glsns, final.times_us, strict=True))
    asked = highest_before([(trim.start, trim.upto) for trim in history.losses])
    known = sorted(history.seen_positions())
    highest = _Highest(final.tail + 2)
    filled, reach = 0, 0
    for find in sorted(history.finds, key=lambda find: find.start):
        while filled < len(known) and known[filled][0] < find.start:
            # Whoever saw a position saw that all below are committed.
            for glsn in range(reach + 1, min(known[filled][1], final.tail) + 1):
                highest.put(glsn, times.get(glsn, -1))
            reach = max(reach, known[filled][1])
            filled += 1
        if find.glsn is None or find.end is None:
            continue
        if find.glsn <= reach and times.get(find.glsn, find.time_us) < find.time_us:
            yield history.violation("find", f"{describe(find)}, whose time is {times[find.glsn]}")
        low = min(asked(find.end) + 1, final.tail + 1)
        if highest.within(low, max(low, min(find.glsn, final.tail + 1))) >= find.time_us:
            yield history.violation("find", f"{describe(find)}, but an earlier entry is as late")
