"""A replica read once more from its disk, checksum by checksum, while it is at work: the scrub of one replica.

    | header | records ............ | end: what is synced by now | the rest is not looked at

Every file that was there at the beginning is read up to where it was synced when its turn came; behind damage the
walk goes on, so that all of it is known by its slots. A sidecar that is damaged is made anew from the data. On the way
the batches are folded into a fingerprint, by which replicas of a stream that has ended are compared.
"""

from struct import Struct

from crc32c import crc32c

from varlog.base.errors import Corrupt, Unsupported
from varlog.ports.disk import DiskFailed, File
from varlog.storage import layout
from varlog.storage.damage import MOST_RANGES, Damage
from varlog.storage.files import DataFile, Files
from varlog.storage.follow import Follower
from varlog.storage.layout import FILE_HEADER_BYTES, index_name
from varlog.storage.place import read_whole
from varlog.storage.sidecar import NO_GOOD, read_sidecar
from varlog.storage.walk import Pause, walk_file
from varlog.wire.batch import BatchHeader

WINDOW_BYTES = 64 << 10
"""Read and checked at once: others wait no longer than that takes."""

STRETCH_SLOTS = 1 << 16
"""Slots that one number of a fingerprint stands for; a batch belongs to where it begins."""

_BATCH = Struct("<QQI")


class Verification:
    """One pass over the files of a replica."""

    def __init__(self, files: Files, pause: Pause, end: int | None) -> None:
        """`end`: where the replica ends, if it has: what lies beyond is checked, but not part of the fingerprint."""
        self.damage: list[Damage] = []
        self.stretches: dict[int, int] = {}
        """Number of a stretch -> crc over slot, count and crc of its batches."""
        self._files = files
        self._pause = pause
        self._end = end
        self._low: int | None = None
        """The first slot that may be damaged; None: all is well so far."""
        self._what = ""

    async def run(self) -> None:
        last = self._files.last.first_slot
        await self._check_small(layout.SPEC)
        place = self._files.place
        if self._files[0].first_slot or await place.disk.exists(place.path(layout.BASE)):
            await self._check_small(layout.BASE)
        small = len(self.damage)
        await self._check_files(last)
        # What was trimmed away meanwhile does not matter any more.
        first = self._files[0].first_slot
        self.damage[small:] = [each for each in self.damage[small:] if max(each.slot + 1, each.end) > first]

    async def _check_files(self, last: int) -> None:
        """Up to the one that begins at `last`."""
        at = self._files[0].first_slot
        while at <= last:
            file = self._files.find(max(at, self._files[0].first_slot))
            is_last = file is self._files.last
            await self._check_file(file)
            if is_last:
                return
            at = file.end_slot

    async def _check_small(self, name: str) -> None:
        place = self._files.place
        try:
            data = await read_whole(place.disk, place.path(name))
            if name == layout.SPEC:
                layout.decode_spec(data)
            else:
                layout.decode_base(data)
        except NO_GOOD as error:
            self._found(0, 0, f"{name}: {error.message}")

    # ------------------------------------------------------------ one file

    async def _check_file(self, file: DataFile) -> None:
        with self._files.pinned(file):
            try:
                handle = file.handle or await self._files.open(file)
            except NO_GOOD as error:
                self._found(file.first_slot, file.end_slot, f"{file.name} cannot be opened: {error.message}")
                return
            known = len(self.damage)
            await self._check_records(handle, file)
            if len(self.damage) == known:
                await self._check_sidecar(file)

    async def _check_records(self, handle: File, file: DataFile) -> None:
        limit, end_slot = file.end, file.end_slot
        follower = Follower(file.first_slot, on_batch=self._on_batch)
        try:
            await self._check_header(handle, file)
            await self._follow(handle, file, follower, limit)
        except (DiskFailed, Unsupported) as error:
            self._suspect(follower.slot, error.message)
        if self._low is None and follower.slot < end_slot:
            self._suspect(follower.slot, f"{file.name} ends too soon")
        if self._low is not None:
            self._close(end_slot)
        for _, slot, what in follower.problems[:1]:
            self._found(slot, slot, f"{file.name}: {what}")

    async def _check_header(self, handle: File, file: DataFile) -> None:
        try:
            if layout.decode_file_header(await handle.read(0, FILE_HEADER_BYTES)) != file.header:
                raise Corrupt("its header is that of another file")
        except Corrupt as error:
            self._found(file.first_slot, file.first_slot, f"{file.name}: {error.message}")

    async def _follow(self, handle: File, file: DataFile, follower: Follower, limit: int) -> None:
        offset, generation = FILE_HEADER_BYTES, file.header.generation
        while offset < limit and len(self.damage) < MOST_RANGES:
            stop = await walk_file(
                handle, generation, offset, limit, follower.visit, window_bytes=WINDOW_BYTES, pause=self._pause
            )
            if stop.reason is None:
                return
            self._suspect(follower.slot, f"{file.name} at offset {stop.offset}: {stop.reason}")
            offset = await follower.go_on(handle, generation, stop.offset, limit)

    def _on_batch(self, slot: int, header: BatchHeader) -> None:
        if self._low is not None:
            self._close(slot)
        if self._end is not None and slot >= self._end:
            return
        number = slot // STRETCH_SLOTS
        self.stretches[number] = crc32c(_BATCH.pack(slot, header.count, header.crc), self.stretches.get(number, 0))

    async def _check_sidecar(self, file: DataFile) -> None:
        """It is never the only copy of anything: what is wrong with it is put right by the next `collect`."""
        if file.columns is not None:
            return
        place = self._files.place
        try:
            summary, _, _ = await read_sidecar(place.disk, place.path(index_name(file.first_slot)))
            if not file.matches(summary):
                raise Corrupt("the sidecar is that of another file")
        except NO_GOOD:
            if file not in self._files:
                return  # it was trimmed away meanwhile
            await self._rebuild_columns(file)

    async def _rebuild_columns(self, file: DataFile) -> None:
        try:
            columns = await self._files.rebuild(file)
        except NO_GOOD:
            return  # they need a file behind it, which is damaged: that is found when its turn comes
        file.columns = columns if file.columns is None else file.columns

    # ------------------------------------------------------------ damage

    def _suspect(self, slot: int, what: str) -> None:
        """From here on, up to the next batch that is whole."""
        if self._low is None:
            self._low, self._what = slot, what

    def _close(self, slot: int) -> None:
        low, self._low = self._low, None
        if low is not None:
            self._found(low, max(low, slot), self._what)

    def _found(self, slot: int, end: int, what: str) -> None:
        if len(self.damage) < MOST_RANGES:
            self.damage.append(Damage(slot, end, what=what))
