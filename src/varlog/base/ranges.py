"""Bindings: which slots of a stream have which GLSNs."""

from typing import NamedTuple

from varlog.base.ids import Glsn, Slot


class Binding(NamedTuple):
    """Slots `[slot, slot + count)` are GLSNs `[glsn, glsn + count)`."""

    slot: Slot
    glsn: Glsn
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a binding

    @property
    def slot_end(self) -> Slot:
        return Slot(self.slot + self.count)

    @property
    def glsn_end(self) -> Glsn:
        return Glsn(self.glsn + self.count)

    def continues(self, earlier: "Binding") -> bool:
        """Whether both could be written as one."""
        return self.slot == earlier.slot_end and self.glsn == earlier.glsn_end
