"""What a replica knows besides its batches: trim point, bindings so far, seal and end.

Facts are a fold over the records of the files, in file order. The same fold runs when records are
written and when they are read back, so both always agree; each data file's header carries the facts
as of its beginning, so that a file can be removed without losing what it said.

    0 ........ trimmed ........ committed ........ appended
      gone      |  bound, readable  |  stored, not yet bound
"""

from dataclasses import dataclass, replace

from varlog.base.errors import InvalidArgument
from varlog.base.ranges import Binding


@dataclass(slots=True)
class Facts:
    """Positions are half-open ends; 0 is nothing yet."""

    trimmed: int = 0
    """Slots below are gone."""
    trimmed_glsn: int = 0
    """Entries at or below this GLSN are gone, also those that will be bound there only later."""
    committed: int = 0
    """Slots below are bound."""
    next_glsn: int = 0
    """One past the last bound GLSN; 0 while nothing is bound."""
    high_watermark: int = 0
    """Highest GLSN issued by the cut of the last binding."""
    sealed: bool = False
    end: int | None = None
    """Where the segment ends, once it is finished."""

    def copy(self) -> "Facts":
        return replace(self)

    def bind(self, binding: Binding, high_watermark: int) -> None:
        """Slots get their GLSNs, without a gap in slots and never going back in GLSNs."""
        slot, glsn, count = binding
        if count <= 0 or slot != self.committed or glsn < self.next_glsn or glsn < 1:
            raise InvalidArgument(
                f"binding of slot {binding.slot} (+{binding.count}) to GLSN {binding.glsn} does not follow "
                f"slot {self.committed}, GLSN {self.next_glsn}"
            )
        self.committed = slot + count
        self.next_glsn = glsn + count
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
        if self.trimmed_glsn >= glsn:
            covered = min(self.trimmed_glsn + 1, self.next_glsn) - glsn
            self.trimmed = max(self.trimmed, slot + covered)

    def trim(self, slot: int, glsn: int) -> None:
        """The trim point never moves back, and never beyond what is bound."""
        self.trimmed = max(self.trimmed, min(slot, self.committed))
        self.trimmed_glsn = max(self.trimmed_glsn, glsn)

    def seal(self) -> None:
        self.sealed = True

    def finish(self, end: int) -> None:
        """The end, once given, stays."""
        if self.end not in (None, end) or end < self.committed:
            raise InvalidArgument(f"cannot end at slot {end}: committed {self.committed}, end {self.end}")
        self.sealed = True
        self.end = end
