"""Following the records of one data file beyond damage: which slots are whole, and which are not."""

from collections.abc import Callable
from dataclasses import dataclass, field

from varlog.base.errors import Corrupt
from varlog.ports.disk import File
from varlog.storage.walk import next_record
from varlog.wire.batch import BatchHeader
from varlog.wire.record import Record


@dataclass
class Follower:
    """Visits the records of one file, also behind damage."""

    slot: int
    lost: bool = False
    """Behind damage: the next batch may have any slot."""
    problems: list[tuple[int, int, str]] = field(default_factory=list)
    on_batch: Callable[[int, BatchHeader], None] | None = None

    def visit(self, data: memoryview, record: Record, header: BatchHeader | None, base: int) -> None:
        if any(data[record.body + record.length : record.end]):
            offset = base + record.body + record.length
            self.problems.append((offset, record.slot, "padding that is not zero"))
        if header is None:
            return
        if not self.lost and record.slot != self.slot:
            raise Corrupt(f"a batch for slot {record.slot} where slot {self.slot} comes next")
        if self.on_batch is not None:
            self.on_batch(record.slot, header)
        self.slot, self.lost = record.slot + header.count, False

    async def look_at(self, file: File, generation: int, offset: int, limit: int) -> None:
        """Learn the slot of a damaged batch from its record header, if that is whole."""
        found = await next_record(file, generation, offset, min(limit, offset + 64))
        if found is not None and found[0] == offset and found[1] is not None:
            self.slot = found[1]

    async def go_on(self, file: File, generation: int, offset: int, limit: int) -> int:
        """Where the walk may begin again behind damage at `offset`."""
        found = await next_record(file, generation, offset + 8, limit)
        if found is None:
            return limit
        offset, slot = found
        self.lost, self.slot = slot is None, self.slot if slot is None else slot
        return offset
