"""Where a replica lies, and how its damage is reported: one wording, with replica, slot and what to do."""

from dataclasses import dataclass

from varlog.base.errors import Corrupt, ReplicaFailed, VarlogError
from varlog.base.ids import ReplicaId
from varlog.ports.disk import Disk, replace_file
from varlog.storage.layout import FAILED

ADVICE = "rebuild this replica from its peers; `varlog segment verify` lists all damage"


@dataclass(frozen=True, slots=True)
class Place:
    """One replica's folder on one disk."""

    disk: Disk
    folder: str
    replica: ReplicaId

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def corrupt(self, name: str, slot: int, what: str, offset: int | None = None) -> Corrupt:
        """The error for damage found in file `name`; `slot` is the first that may be affected."""
        where = name if offset is None else f"{name} at offset {offset}"
        error = Corrupt(f"replica {self.replica}, slot {slot}, {where}: {what}; {ADVICE}", slot)
        error.replica = str(self.replica)
        return error


async def mark_failed(place: Place, cause: VarlogError) -> ReplicaFailed:
    """Leave a mark for the next opening, if the disk still takes one: what is there is not trusted again."""
    what = f"replica {place.replica} has stopped: {cause.message}"
    try:
        await replace_file(place.disk, place.path(FAILED), cause.message.encode())
    except VarlogError as second:
        what = f"{what} (and it could not be marked: {second.message})"
    return ReplicaFailed(what)


async def read_whole(disk: Disk, path: str) -> bytes:
    """The content of a small file."""
    file = await disk.open(path)
    try:
        return bytes(await file.read(0, await file.size()))
    finally:
        file.close()
