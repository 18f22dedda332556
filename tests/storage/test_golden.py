"""The bytes on disk, written down: a change here is a change of format, and needs a new version.

The layouts are those of docs/file-format.md; each line below is one field, or the fields of one word.
"""

import re
from random import Random

from tests.storage.crash_disk import CrashDisk
from tests.storage.harness import FOLDER, REPLICA, reopen, run

from varlog.base.ids import Glsn, Slot
from varlog.base.ranges import Binding
from varlog.storage.index import BindingColumn, Columns, SparseIndex
from varlog.storage.layout import FILE_HEADER_BYTES, encode_base
from varlog.storage.producers import ProducerTable
from varlog.storage.replica_log import ReplicaLog
from varlog.storage.sidecar import encode_sidecar
from varlog.wire.batch import check_batch, encode_batch

LEADING_HEX = re.compile(r"(\s*\b([0-9a-f]{2})+\b)+(?=\s\s|$)")

FILE_HEADER = """
    5641524c4f474446  aab01b77 01000000            magic, crc, version
    0700000000000000  01000000 03000000            log, segment, stream
    0000000000000000  0040000000000000             first slot, size
    9d79b1a301000000                               generation
    0000000000000000  0000000000000000             generation and end of the file before
    0000000000000000  0000000000000000             trimmed slot, trimmed GLSN
    0000000000000000  0000000000000000             committed slot, next GLSN
    0000000000000000  ffffffffffffffff             high watermark, end (none)
    00000000 00000000                              flags, zero
"""

BATCH = """
    56524543 01 00 0000 50000000 f42ab856          magic, kind, flags, zero, length, crc
    0000000000000000 9d79b1a301000000              slot, generation
    0010000000000000                               synced
    564c4231 01 00 0000 0058572b 02000000          batch: magic, version, flags, zero, crc, count
    18000000 18000000                              body bytes, raw bytes
    40420f0000000000 0500000000000000              time, sequence
    000102030405060708090a0b0c0d0e0f               producer
    00000000 03000000 06000000 00000000            offsets
    6f6e65 74776f 0000                             values
"""

OTHERS = """
    56524543 02 00 0000 18000000 e3afd2f8 0000000000000000 9d79b1a301000000 7810000000000000    BIND slot 0
    0b00000000000000 0200000000000000 0c00000000000000                                          GLSN, count, hwm
    56524543 04 00 0000 00000000 b9a4d72f 0200000000000000 9d79b1a301000000 7810000000000000    SEAL at slot 2
    56524543 05 00 0000 00000000 72747112 0200000000000000 9d79b1a301000000 7810000000000000    FINISH at slot 2
    56524543 03 00 0000 08000000 4636f82b 0100000000000000 9d79b1a301000000 7810000000000000    TRIM below slot 1
    0b00000000000000                                                                            GLSN
"""

SPEC = """
    5641524c4f475350  30ddf4d2 01000000            magic, crc, version
    0700000000000000  01000000 03000000            log, segment, stream
    0400000000000000  73706563                     length, spec
"""

PRODUCERS = """
    000102030405060708090a0b0c0d0e0f               producer
    0500000000000000 0100000000000000              first sequence, rows
    0000000000000000 0200000000000000              slot, count
"""

BASE = """
    5641524c4f474241  e8374513 01000000            magic, crc, version
    0700000000000000  01000000 03000000            log, segment, stream
    0200000000000000  3000000000000000             first slot, length
"""

SIDECAR = """
    5641524c4f474958  d352e665 01000000            magic, crc, version
    9d79b1a300000001                               generation
    0000000000000000  0200000000000000             first slot, end slot
    7810000000000000  0100000000000000             end, batches
    40420f0000000000  0d00000000000000             largest time, end of GLSNs
    0100000000000000  0100000000000000             rows of index and bindings
    3000000000000000  b1f7ec8500000000             bytes of producers, crc of what follows
    0000000000000000                               zero
    0000000000000000  0010000000000000             index: slot, offset
    40420f0000000000                               largest time
    0000000000000000  0b00000000000000             bindings: slot, GLSN
"""


def golden(text: str) -> bytes:
    """The bytes of each line, up to the two spaces and the word with which its explanation begins."""
    return bytes.fromhex("".join(LEADING_HEX.match(line)[0] for line in text.strip().splitlines()))  # type: ignore[index]


def producers() -> ProducerTable:
    table = ProducerTable()
    table.record(bytes(range(16)), 5, Slot(0), 2)
    return table


def test_data_file_and_spec() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        log = await ReplicaLog.create(disk, FOLDER, REPLICA, b"spec", random=Random(42), file_bytes=16 << 10)
        data = encode_batch([b"one", b"two"], producer=bytes(range(16)), sequence=5, time_us=1_000_000)
        log.stage_batches(Slot(0), [(data, check_batch(data))])
        await log.sync()
        log.stage_binding(Binding(Slot(0), Glsn(11), 2), 12)
        log.stage_trim(Glsn(11))
        log.stage_seal()
        log.stage_finish(Slot(2))
        await log.sync()
        await log.close()
        content = bytes(disk.content(f"{FOLDER}/{0:020d}.data").bytes)
        header = golden(FILE_HEADER)
        assert content[:FILE_HEADER_BYTES] == header.ljust(FILE_HEADER_BYTES, b"\0")
        records = golden(BATCH) + golden(OTHERS)
        assert content[FILE_HEADER_BYTES:] == records.ljust(len(content) - FILE_HEADER_BYTES, b"\0")
        assert bytes(disk.content(f"{FOLDER}/spec").bytes) == golden(SPEC)

    run(scenario())


def test_a_file_written_down_can_be_opened() -> None:
    """Not by what this code writes today, but by the bytes above."""

    async def scenario() -> None:
        disk = CrashDisk()
        await disk.make_folder(FOLDER)
        data = golden(FILE_HEADER).ljust(FILE_HEADER_BYTES, b"\0") + golden(BATCH) + golden(OTHERS)
        for name, content in (("spec", golden(SPEC)), (f"{0:020d}.data", data.ljust(16 << 10, b"\0"))):
            file = await disk.open(f"{FOLDER}/{name}", create=True)
            await file.write(0, [content], sync=True)
        log = await reopen(disk)
        assert (log.durable, log.committed, log.trimmed, log.end, log.next_glsn) == (2, 2, 1, 2, 13)
        assert log.producers.find(bytes(range(16)), 5) == (0, 2)

    run(scenario())


def test_producers_base_and_sidecar() -> None:
    snapshot = run(producers().snapshot(Slot(2)))
    assert snapshot == golden(PRODUCERS)
    assert encode_base(REPLICA, 2, snapshot) == golden(BASE) + golden(PRODUCERS)
    index, bindings = SparseIndex(), BindingColumn(0)
    index.add(0, 4096, 1_000_000)
    bindings.add(Binding(Slot(0), Glsn(11), 2))
    encoded = encode_sidecar(0x01000000A3B1799D, 4216, Columns(index, bindings), snapshot)
    assert encoded == golden(SIDECAR) + golden(PRODUCERS)
