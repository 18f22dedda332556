"""What is wrong with a replica that goes on serving the rest: ranges of slots, kept in its folder."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MOST_RANGES = 64
"""Kept of one replica: what is damaged all over is replaced just the same."""
NAMED = 4
"""So many ranges are named for people, the others counted."""


class Damage(NamedTuple):
    """Slots `[slot, end)` with GLSNs in `[glsn, glsn_end)`; no slots: something else than batches is damaged."""

    slot: int
    end: int
    glsn: int = 0
    glsn_end: int = 0
    """0: not bound, or trimmed."""
    what: str = ""

    def __str__(self) -> str:
        if self.slot >= self.end:
            return f"what lies beside slot {self.slot}"
        slots = f"slots {self.slot} to {self.end - 1}" if self.end > self.slot + 1 else f"slot {self.slot}"
        if not self.glsn_end:
            return slots
        return f"{slots} (positions {self.glsn} to {self.glsn_end - 1})"


def describe(damage: Sequence[Damage]) -> str:
    """For people: where, and what was found first."""
    named = ", ".join(map(str, damage[:NAMED]))
    more = f" and {len(damage) - NAMED} more" if len(damage) > NAMED else ""
    return f"{named}{more}: {damage[0].what}" if damage[0].what else f"{named}{more}"


def encode(damage: Iterable[Damage]) -> bytes:
    return json.dumps([each._asdict() for each in damage], indent=1).encode() + b"\n"


def decode(data: bytes) -> list[Damage]:
    """What cannot be read any more is damage, too."""
    try:
        return [Damage(**each) for each in json.loads(data)] or [Damage(0, 0)]
    except (ValueError, TypeError):
        return [Damage(0, 0, what="and its list of damage cannot be read")]
