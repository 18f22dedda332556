"""Reading one data file from its first record on: what it holds, and how far it can be believed."""

from collections.abc import Callable
from struct import Struct

from varlog.base.errors import Corrupt, InvalidArgument
from varlog.base.ids import Glsn, Slot
from varlog.base.ranges import Binding
from varlog.ports.disk import File
from varlog.runtime.give_way import give_way
from varlog.storage.facts import Facts
from varlog.storage.index import BindingColumn, SparseIndex
from varlog.storage.layout import FILE_HEADER_BYTES, FileHeader
from varlog.storage.walk import Stop, walk_file
from varlog.wire.batch import BatchHeader
from varlog.wire.frame import Buffer
from varlog.wire.record import RECORD_HEADER_BYTES, Record, RecordKind

BIND = Struct("<QQQ")
"""GLSN, count, high watermark."""
TRIM = Struct("<Q")
"""GLSN."""

_BIND = int(RecordKind.BIND)

OnBatch = Callable[[Slot, BatchHeader], None]


def fold(facts: Facts, end_slot: int, kind: int, slot: int, data: Buffer, body: int = 0) -> Binding | None:
    """Apply one record other than a batch; gives the binding it was.

    `end_slot` is one past the last slot stored before it. `InvalidArgument`: it cannot follow, and changed nothing.
    """
    if kind == _BIND:
        glsn, count, high_watermark = BIND.unpack_from(data, body)
        if slot + count > end_slot:
            raise InvalidArgument(f"a binding up to slot {slot + count}, stored are {end_slot}")
        binding = Binding(Slot(slot), Glsn(glsn), count)
        facts.bind(binding, high_watermark)
        return binding
    match kind:
        case RecordKind.TRIM:
            facts.trim(slot, TRIM.unpack_from(data, body)[0])
        case RecordKind.SEAL:
            facts.seal()
        case RecordKind.FINISH:
            facts.finish(slot)
    return None


class FileScan:
    """The fold over one file's records. A record that cannot follow those before it is as bad as a torn one."""

    def __init__(self, header: FileHeader, on_batch: OnBatch | None = None) -> None:
        self.facts: Facts = header.facts.copy()
        self.end_slot = header.first_slot
        self.index = SparseIndex()
        self.bound = BindingColumn(header.facts.committed)
        """All bindings recorded in this file, also those of slots in files before it."""
        self.last_group = FILE_HEADER_BYTES
        """Where the group of the last record began: what lies before was synced before that record was written."""
        self.seal_holds = header.facts.sealed
        """Something was synced behind the seal, or another file begun: damage to it is not taken for a torn tail."""
        self._sealed_at: int | None = None
        """Where the record lies that sealed it, if one of this file did."""
        self._on_batch = on_batch

    def visit(self, data: memoryview, record: Record, header: BatchHeader | None, base: int) -> None:
        offset = base + record.body - RECORD_HEADER_BYTES
        if not FILE_HEADER_BYTES <= record.synced <= offset:
            raise Corrupt(f"a record that claims {record.synced} bytes were synced before it")
        if header is not None:
            self._batch(record, header, offset)
        else:
            try:
                self._other(data, record)
            except InvalidArgument as wrong:
                raise Corrupt(wrong.message) from wrong
            if self.facts.sealed and self._sealed_at is None:
                self._sealed_at = offset
        self.last_group = record.synced
        if self._sealed_at is not None and self._sealed_at < record.synced:
            self.seal_holds = True

    def _batch(self, record: Record, header: BatchHeader, offset: int) -> None:
        if record.slot != self.end_slot:
            raise Corrupt(f"a batch for slot {record.slot} where slot {self.end_slot} comes next")
        self.index.add(record.slot, offset, header.time_us)
        self.end_slot += header.count
        if self._on_batch is not None:
            self._on_batch(Slot(record.slot), header)

    def _other(self, data: memoryview, record: Record) -> None:
        binding = fold(self.facts, self.end_slot, record.kind, record.slot, data, record.body)
        if binding is not None:
            self.bound.add(binding)


async def scan_file(
    file: File, header: FileHeader, limit: int, on_batch: OnBatch | None = None
) -> tuple[FileScan, Stop]:
    """Read records up to `limit` or the first bad one."""
    scan = FileScan(header, on_batch)
    stop = await walk_file(file, header.generation, FILE_HEADER_BYTES, limit, scan.visit, pause=_let_others)
    return scan, stop


async def _let_others(size: int) -> None:
    """A sidecar may be made anew beside appends."""
    await give_way()


def copy_bindings(column: BindingColumn, bound: BindingColumn, limit: int) -> None:
    """Take over into a file's column what another file recorded for its slots below `limit`."""
    low, high = max(bound.start, column.end), min(bound.end, limit)
    if low < high:
        for binding in bound.ranges(low, high):
            column.add(binding)
