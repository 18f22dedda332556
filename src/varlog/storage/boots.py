"""How often a node was started: a counter that takes no room to count.

    boots   0             4096          8192
            +-------------+-------------+
            | count, crc  | count, crc  |     little endian; the crc covers the volume's incarnation and the count
            +-------------+-------------+

A new count goes in place of the older of the two, so a crash leaves at least one whole. Its blocks are there since the
first start: a node starts on a volume without a free one, where its data can be read and trimmed.

A place that holds something and does not match was torn by a crash, or has rotted: then its count may be
one that was used, and the next one is greater by two.
"""

from struct import Struct

from crc32c import crc32c

from varlog.base.errors import Corrupt, NotFound
from varlog.ports.disk import Disk, File

BOOTS = "boots"
_PLACE_BYTES = 4096
_COUNT = Struct("<QI")


async def read_boots(disk: Disk, incarnation: str) -> int:
    """The last count; 0 if there is none yet."""
    try:
        file = await disk.open(BOOTS)
    except NotFound:
        return 0
    try:
        return max(0, *[count or 0 for count in await _counts(file, incarnation)])
    finally:
        file.close()


async def count_boot(disk: Disk, incarnation: str, known: int) -> int:
    """One more than ever before, durable on return; `known` is what another place remembers."""
    file = await _open(disk)
    try:
        counts = await _counts(file, incarnation)
        last = max(0, *[count or 0 for count in counts])
        count = max(known, last) + (2 if None in counts else 1)
        place = 0 if counts[1] == last and last else 1
        await file.write(place * _PLACE_BYTES, [_encode(count, incarnation)], sync=True)
    finally:
        file.close()
    return count


async def _open(disk: Disk) -> File:
    """With both places laid out."""
    try:
        file = await disk.open(BOOTS)
    except NotFound:
        file = await disk.open(BOOTS, create=True)
    try:
        if await file.size() < 2 * _PLACE_BYTES:
            await file.allocate(2 * _PLACE_BYTES)
            await disk.sync_folder("")
    except BaseException:
        file.close()
        raise
    return file


async def _counts(file: File, incarnation: str) -> tuple[int | None, int | None]:
    """Of both places; 0 where nothing was ever written, None where nobody can tell what was."""
    first = await _count(file, 0, incarnation)
    second = await _count(file, _PLACE_BYTES, incarnation)
    if first is None and second is None:
        raise Corrupt(f"the file {BOOTS} of the volume cannot be read: how often the node was started is not known")
    return first, second


async def _count(file: File, offset: int, incarnation: str) -> int | None:
    data = bytes(await file.read(offset, _COUNT.size))
    if not any(data):
        return 0
    if len(data) == _COUNT.size:
        count: int = _COUNT.unpack(data)[0]
        if data == _encode(count, incarnation):
            return count
    return None


def _encode(count: int, incarnation: str) -> bytes:
    return _COUNT.pack(count, crc32c(count.to_bytes(8, "little"), crc32c(incarnation.encode())))
