"""Bindings: which slots of a stream have which GLSNs."""

from dataclasses import dataclass

from varlog.base.ids import Glsn, Slot


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """Slots `[slot, slot + count)` are GLSNs `[glsn, glsn + count)`."""

    slot: Slot
    glsn: Glsn
    count: int

    @property
    def slot_end(self) -> Slot:
        return Slot(self.slot + self.count)

    @property
    def glsn_end(self) -> Glsn:
        return Glsn(self.glsn + self.count)

    def continues(self, earlier: "Binding") -> bool:
        """Whether both could be written as one."""
        return self.slot == earlier.slot_end and self.glsn == earlier.glsn_end
