"""Looking at files without a node: `varlog segment dump|verify PATH`. Changes nothing and takes no lock.

A path names a data folder, a replica's folder, or one file in it. A node may be at work on the same
files: its last group may then be seen half written, which is told as a note, not as damage.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from varlog.base.errors import NotFound, Unsupported, VarlogError
from varlog.ports.disk import Disk, File
from varlog.storage import layout
from varlog.storage.follow import Follower
from varlog.storage.layout import FILE_HEADER_BYTES, FileHeader
from varlog.storage.place import read_whole
from varlog.storage.scan import BIND, TRIM
from varlog.storage.sidecar import read_sidecar
from varlog.storage.walk import record_bytes, search_behind, walk_file
from varlog.wire.batch import NO_PRODUCER, BatchHeader
from varlog.wire.record import RECORD_HEADER_BYTES, Record, RecordKind

MOST_DEPTH = 4
"""Folders below the given path that are looked into."""

MOST_FINDINGS = 10_000
"""Of one file: a file that is all noise is told soon enough."""

DUMP_BYTES = 32 << 20
"""Of a file, whose rows are made at once."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    file: str
    offset: int
    slot: int
    """The first slot that may be affected."""
    damage: bool
    """False: worth knowing, but it heals by itself."""
    what: str


@dataclass(frozen=True, slots=True)
class Row:
    """One record, or one fact about a file, for people."""

    file: str
    offset: int
    kind: str
    slot: int | None = None
    size: int | None = None
    """Bytes in the file, header and padding included."""
    details: dict[str, int | str] = field(default_factory=dict)


async def replica_files(disk: Disk, path: str) -> list[str]:
    """The files of replicas at or below `path`, each folder in order."""
    try:
        names = await disk.list(path)
    except NotFound:
        if not await disk.exists(path):
            raise
        return [path]
    return await _files_below(disk, path, names, MOST_DEPTH)


async def _files_below(disk: Disk, folder: str, names: list[str], depth: int) -> list[str]:
    found: list[str] = []
    for name in names:
        path = f"{folder}/{name}" if folder else name
        if _is_replica_file(name):
            found.append(path)
        elif depth:
            try:
                found += await _files_below(disk, path, await disk.list(path), depth - 1)
            except NotFound:
                pass  # a file of another kind
    return found


def _is_replica_file(name: str) -> bool:
    return name.endswith((layout.DATA_SUFFIX, layout.INDEX_SUFFIX)) or name in (
        layout.SPEC,
        layout.BASE,
        layout.FAILED,
        layout.DAMAGED,
        layout.DROPPED,
        layout.COPYING,
    )


def _is_data(path: str) -> bool:
    return layout.slot_of_name(path.rpartition("/")[2]) is not None


# ---------------------------------------------------------------- verify


async def verify(disk: Disk, path: str) -> list[Finding]:
    """Check every checksum and every link between files."""
    files = await replica_files(disk, path)
    headers: dict[str, FileHeader] = {}
    findings: list[Finding] = []
    for name in files:
        if _is_data(name):
            try:
                headers[name] = await _read_header(disk, name)
            except VarlogError as error:
                findings.append(Finding(name, 0, _slot(name), True, error.message))
    for name in files:
        findings += await _verify_one(disk, name, headers, _following(name, headers))
    return findings + _check_chains(files, headers)


async def _verify_one(
    disk: Disk, name: str, headers: dict[str, FileHeader], following: FileHeader | None
) -> list[Finding]:
    if _is_data(name):
        return await _verify_data(disk, name, headers[name], following) if name in headers else []
    try:
        await _check_small(disk, name)
    except VarlogError as error:
        healing = name.endswith(layout.INDEX_SUFFIX)
        return [Finding(name, 0, _slot(name), not healing, error.message + (": made anew at need" if healing else ""))]
    short = name.rpartition("/")[2]
    if short == layout.FAILED:
        return [Finding(name, 0, 0, True, "the replica stopped after a failed write or sync")]
    if short == layout.DAMAGED:
        return [Finding(name, 0, 0, True, "the replica was found damaged, and waits to be made anew from its peers")]
    notes = {layout.DROPPED: "the replica is being removed", layout.COPYING: "the replica is a copy in the making"}
    return [Finding(name, 0, 0, False, notes[short])] if short in notes else []


async def _check_small(disk: Disk, name: str) -> None:
    short = name.rpartition("/")[2]
    if short == layout.SPEC:
        layout.decode_spec(await read_whole(disk, name))
    elif short == layout.BASE:
        layout.decode_base(await read_whole(disk, name))
    elif short.endswith(layout.INDEX_SUFFIX):
        await read_sidecar(disk, name)


def _following(name: str, headers: dict[str, FileHeader]) -> FileHeader | None:
    """The header of the next data file in the same folder."""
    folder = name.rpartition("/")[0]
    later = [other for other in headers if other > name and other.rpartition("/")[0] == folder]
    return headers[min(later)] if later else None


def _check_chains(files: list[str], headers: dict[str, FileHeader]) -> list[Finding]:
    findings: list[Finding] = []
    for name, header in headers.items():
        if header.first_slot != _slot(name):
            findings.append(Finding(name, 0, _slot(name), True, f"its header is that of slot {header.first_slot}"))
        folder = name.rpartition("/")[0]
        earlier = [other for other in headers if other < name and other.rpartition("/")[0] == folder]
        if earlier:
            if header.previous_generation != headers[max(earlier)].generation:
                findings.append(Finding(name, 0, _slot(name), True, "a file before it is missing"))
        elif header.first_slot and len(files) > 1 and f"{folder}/{layout.BASE}".lstrip("/") not in files:
            findings.append(
                Finding(name, 0, 0, True, "the files before it are missing, and nothing says they were trimmed")
            )
    return findings


async def _verify_data(disk: Disk, name: str, header: FileHeader, following: FileHeader | None) -> list[Finding]:
    file = await disk.open(name)
    try:
        return await _verify_records(file, name, header, following)
    except Unsupported as error:
        return [Finding(name, 0, header.first_slot, True, error.message)]
    finally:
        file.close()


async def _verify_records(file: File, name: str, header: FileHeader, following: FileHeader | None) -> list[Finding]:
    size = await file.size()
    findings: list[Finding] = []
    if size < header.size:
        findings.append(Finding(name, size, header.first_slot, True, f"it was made with {header.size} bytes"))
    limit = min(size, following.previous_end) if following is not None else size
    check = Follower(header.first_slot)
    offset = FILE_HEADER_BYTES
    while offset < limit and len(findings) < MOST_FINDINGS:
        stop = await walk_file(file, header.generation, offset, limit, check.visit)
        if stop.reason is None:
            break
        behind = await search_behind(file, header.generation, stop.offset, limit)
        if following is None and behind.synced <= stop.offset:
            if behind.end > stop.offset:
                note = "a group that was being written is torn; it is cut off at the next opening"
                findings.append(Finding(name, stop.offset, check.slot, False, note))
            break
        await check.look_at(file, header.generation, stop.offset, limit)
        findings.append(Finding(name, stop.offset, check.slot, True, stop.reason))
        offset = await check.go_on(file, header.generation, stop.offset, limit)
    findings += [Finding(name, offset, slot, True, what) for offset, slot, what in check.problems[:MOST_FINDINGS]]
    if following is not None and not findings and check.slot != following.first_slot:
        findings.append(Finding(name, limit, check.slot, True, f"slots up to {following.first_slot} are missing"))
    return findings


# ---------------------------------------------------------------- dump


async def dump(disk: Disk, path: str) -> AsyncIterator[Row]:
    """Everything in the files, as far as it can be read; the rest is a row that says why."""
    for name in await replica_files(disk, path):
        try:
            if _is_data(name):
                async for row in _dump_data(disk, name):
                    yield row
            else:
                yield await _dump_small(disk, name)
        except VarlogError as error:
            yield Row(name, 0, "DAMAGE", details={"what": error.message})


async def _dump_small(disk: Disk, name: str) -> Row:
    short = name.rpartition("/")[2]
    if layout.is_free_name(short):
        return Row(name, 0, "FREE")
    if short.endswith(layout.INDEX_SUFFIX):
        summary, _, _ = await read_sidecar(disk, name)
        return Row(name, 0, "INDEX", summary.first_slot, details=dict(summary._asdict()))
    data = await read_whole(disk, name)
    if short == layout.SPEC:
        replica, spec = layout.decode_spec(data)
        return Row(name, 0, "SPEC", details={"replica": str(replica), "bytes": len(spec)})
    if short == layout.BASE:
        replica, first, producers = layout.decode_base(data)
        return Row(name, 0, "BASE", first, details={"replica": str(replica), "producer_bytes": len(producers)})
    return Row(name, 0, short.upper(), details={"text": data.decode(errors="replace")})


async def _dump_data(disk: Disk, name: str) -> AsyncIterator[Row]:
    header = await _read_header(disk, name)
    yield Row(name, 0, "FILE", header.first_slot, FILE_HEADER_BYTES, _header_details(header))
    file = await disk.open(name)
    try:
        offset, limit = FILE_HEADER_BYTES, await file.size()
        while True:
            rows = _Rows(name)
            stop = await walk_file(file, header.generation, offset, min(limit, offset + DUMP_BYTES), rows.visit)
            for row in rows.found:
                yield row
            if stop.offset == offset:
                yield Row(name, offset, "END", details={"why": stop.reason or "the end of the file"})
                return
            offset = stop.offset
    finally:
        file.close()


def _header_details(header: FileHeader) -> dict[str, int | str]:
    facts = header.facts
    details: dict[str, int | str] = {
        "replica": str(header.replica),
        "size": header.size,
        "generation": f"{header.generation:016x}",
        "previous_generation": f"{header.previous_generation:016x}",
        "previous_end": header.previous_end,
        "trimmed": facts.trimmed,
        "trimmed_glsn": facts.trimmed_glsn,
        "committed": facts.committed,
        "next_glsn": facts.next_glsn,
        "high_watermark": facts.high_watermark,
        "sealed": int(facts.sealed),
    }
    return details if facts.end is None else details | {"end": facts.end}


class _Rows:
    """Makes rows of the records of a file."""

    def __init__(self, name: str) -> None:
        self.found: list[Row] = []
        self._name = name

    def visit(self, data: memoryview, record: Record, header: BatchHeader | None, base: int) -> None:
        offset = base + record.body - RECORD_HEADER_BYTES
        details: dict[str, int | str] = {"synced": record.synced}
        if header is not None:
            details |= {"count": header.count, "time_us": header.time_us, "crc": f"{header.crc:08x}"}
            if header.producer != NO_PRODUCER:
                details |= {"producer": header.producer.hex(), "sequence": header.sequence}
        elif record.kind == RecordKind.BIND:
            glsn, count, high_watermark = BIND.unpack_from(data, record.body)
            details |= {"glsn": glsn, "count": count, "high_watermark": high_watermark}
        elif record.kind == RecordKind.TRIM:
            details["glsn"] = TRIM.unpack_from(data, record.body)[0]
        kind = RecordKind(record.kind).name
        self.found.append(Row(self._name, offset, kind, record.slot, record_bytes(record.length), details))


async def _read_header(disk: Disk, name: str) -> FileHeader:
    file = await disk.open(name)
    try:
        return layout.decode_file_header(await file.read(0, FILE_HEADER_BYTES))
    finally:
        file.close()


def _slot(name: str) -> int:
    short = name.rpartition("/")[2]
    return layout.slot_of_name(short) or layout.slot_of_name(short, layout.INDEX_SUFFIX) or 0
