"""A volume: one data folder of a node. Knows whose it is, and which replicas lie on it.

    identity                            cluster, node, incarnation
    boots                               how often the node was started, see `boots`
    replicas/<log>.<segment>.<stream>/  one folder a replica, see `layout`; of a copy with its number

While a damaged replica is copied anew, both folders are there; once the copy is complete, it alone counts.

The incarnation is made when the volume is formatted: a node that comes back with an empty disk is
another node, whatever id it claims.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from crc32c import crc32c

from varlog.base.errors import Corrupt, InvalidArgument, NotFound, Unsupported, VarlogError, WrongCluster
from varlog.base.ids import Epoch, LogId, ReplicaId, StreamId
from varlog.ports.disk import Disk, replace_file
from varlog.storage import layout
from varlog.storage.boots import count_boot, read_boots
from varlog.storage.folders import drop_folder, is_unfinished
from varlog.storage.place import read_whole

IDENTITY = "identity"
REPLICAS = "replicas"
FORMAT = 1
_NOT_OURS_BUT_FINE = ("lock", "lost+found", f"{IDENTITY}{layout.NEW_SUFFIX}", REPLICAS)
"""What may lie on a volume that has not been formatted: `replicas` is made before the identity is written."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose volume this is."""

    cluster_id: str
    """Empty until the node has joined one."""
    node_id: int
    """0 until the node has joined a cluster."""
    incarnation: str
    boot: int
    """Grows with every start of the node."""
    volume: int
    """Number of this volume among the node's, from 0 on."""


class Volume:
    """One formatted data folder."""

    def __init__(self, disk: Disk, identity: Identity) -> None:
        self.disk = disk
        self.identity = identity
        self.garbage: list[tuple[ReplicaId, str]] = []
        """Folders that were half dropped or half copied when it was opened: they count for nothing, and are to go."""
        self.trouble = ""
        """Why it could not say lately how much space it has, for people."""
        self._total_bytes = 0

    @property
    def name(self) -> str:
        """For people: where the disk lies, if it says so."""
        return str(getattr(self.disk, "name", "") or f"volume {self.identity.volume}")

    @classmethod
    async def open(cls, disk: Disk, random: Random) -> "Volume":
        """Read whose volume this is; an empty folder is formatted. See `garbage` for what is to be removed."""
        names = await disk.list("")
        if IDENTITY in names:
            identity = _decode(await read_whole(disk, IDENTITY))
            boots = await read_boots(disk, identity.incarnation)
            volume = cls(disk, replace(identity, boot=max(identity.boot, boots)))
        else:
            volume = await cls._format(disk, names, random)
        await volume._sweep()
        return volume

    @classmethod
    async def _format(cls, disk: Disk, names: list[str], random: Random) -> "Volume":
        foreign = [name for name in names if name not in _NOT_OURS_BUT_FINE]
        if foreign:
            raise InvalidArgument(f"the data folder is neither empty nor a volume: it holds {foreign[0]!r}")
        await disk.make_folder(REPLICAS)
        if await disk.list(REPLICAS):
            raise Corrupt("the data folder holds replicas but no identity")
        incarnation = f"{random.getrandbits(128):032x}"
        volume = cls(disk, Identity("", 0, incarnation, 0, 0))
        await volume.save_identity(volume.identity)
        return volume

    async def save_identity(self, identity: Identity) -> None:
        """Durable on return."""
        await replace_file(self.disk, IDENTITY, _encode(identity))
        self.identity = identity

    async def begin_boot(self) -> None:
        """Count one more start of the node; works on a full volume, but for the first time."""
        known = self.identity
        self.identity = replace(known, boot=await count_boot(self.disk, known.incarnation, known.boot))

    async def join(self, cluster_id: str, node_id: int) -> None:
        """The node belongs to this cluster, under this id, from now on for ever."""
        known = self.identity
        if (known.cluster_id, known.node_id) == (cluster_id, node_id):
            return
        if known.cluster_id not in ("", cluster_id) or known.node_id not in (0, node_id):
            raise WrongCluster(
                f"the volume belongs to node {known.node_id} of cluster {known.cluster_id}, "
                f"not to node {node_id} of {cluster_id}"
            )
        await self.save_identity(replace(known, cluster_id=cluster_id, node_id=node_id))

    async def space(self) -> tuple[int, int]:
        """Free and total bytes; none are free where the disk cannot say, so that nothing new comes here."""
        try:
            free, self._total_bytes = await self.disk.space()
        except VarlogError as error:
            self.trouble = error.message
            return 0, self._total_bytes
        self.trouble = ""
        return free, self._total_bytes

    # ------------------------------------------------------------ replicas

    def folder(self, replica: ReplicaId, copy: int = 0) -> str:
        """Where a replica lies that was made by the copy with this number; 0: it was opened empty."""
        return f"{REPLICAS}/{replica}.{copy}" if copy else f"{REPLICAS}/{replica}"

    async def found(self) -> "list[Found]":
        """Folders that were created in full, in order; of one replica the newest last."""
        found = []
        for name in await self.disk.list(REPLICAS):
            names = await self._names_in(name)
            if layout.SPEC in names and layout.COPYING not in names and layout.DROPPED not in names:
                found.append(Found(*_parse(name), self, f"{REPLICAS}/{name}"))
        return sorted(found, key=lambda each: each[:2])

    async def replicas(self) -> list[ReplicaId]:
        """Those that were created in full, in order."""
        return list(dict.fromkeys(each.replica for each in await self.found()))

    async def folders(self, replica: ReplicaId) -> list[str]:
        """All there is of a replica, open or failed or half made, older copies first."""
        names = [name for name in await self.disk.list(REPLICAS) if f"{name}.".startswith(f"{replica}.")]
        return [f"{REPLICAS}/{name}" for name in sorted(names, key=lambda name: (len(name), name))]

    async def drop_copy(self, replica: ReplicaId, copy: int) -> None:
        """Remove what one copy has made so far."""
        await drop_folder(self.disk, self.folder(replica, copy))

    async def _sweep(self) -> None:
        await self.disk.make_folder(REPLICAS)
        for name in await self.disk.list(REPLICAS):
            names = await self._names_in(name)
            folder = f"{REPLICAS}/{name}"
            if await is_unfinished(self.disk, folder, names):
                await drop_folder(self.disk, folder)
            elif layout.DROPPED in names or layout.COPYING in names:
                # Who hears that it is not here takes it for gone: its mark must not be lost any more.
                await self.disk.sync_folder(folder)
                self.garbage.append((_parse(name)[0], folder))
            elif name.count(".") > 2:
                # The mark of a copy in the making is gone; whether for good is certain only after this.
                await self.disk.sync_folder(folder)
        await self.disk.sync_folder(REPLICAS)  # a folder that only the cache knows would be lost with all in it
        await self.disk.sync_folder("")

    async def _names_in(self, name: str) -> list[str]:
        try:
            return await self.disk.list(f"{REPLICAS}/{name}")
        except NotFound:
            return []  # a stray file


class Found(NamedTuple):
    """A replica's folder."""

    replica: ReplicaId
    copy: int
    volume: Volume
    folder: str


async def newest(volumes: Sequence[Volume]) -> tuple[list[Found], list[Found]]:
    """Of each replica on the volumes of a node the folder that counts; and those that it has replaced.

    Of two that were made by the same copy nobody can say which counts: `Corrupt`.
    """
    found = sorted([each for volume in volumes for each in await volume.found()], key=lambda each: each[:2])
    for before, after in pairwise(found):
        if before[:2] == after[:2]:
            raise Corrupt(
                f"{after.folder} lies on two volumes, {before.volume.name} and {after.volume.name}: "
                "start the node without the volume that is not its own, or move one of the two folders away"
            )
    counting = {each.replica: each for each in found}
    return list(counting.values()), [each for each in found if counting[each.replica] is not each]


def _parse(name: str) -> tuple[ReplicaId, int]:
    try:
        log, segment, stream, *copy = map(int, name.split("."))
        (number,) = copy or (0,)
    except ValueError as wrong:
        raise Corrupt(f"{REPLICAS}/{name} is not named like a replica") from wrong
    return ReplicaId(LogId(log), Epoch(segment), StreamId(stream)), number


def _encode(identity: Identity) -> bytes:
    """Readable for people; the checksum is over the other fields, so that no flipped digit makes another node of it."""
    fields = {"format": FORMAT, **asdict(identity)}
    return json.dumps(fields | {"crc": _crc(fields)}, indent=2, sort_keys=True).encode() + b"\n"


def _crc(fields: dict[str, Any]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())


def _decode(data: bytes) -> Identity:
    try:
        fields = json.loads(data)
        crc = fields.pop("crc")
        if crc != _crc(fields):
            raise Corrupt(f"the file {IDENTITY} of the volume does not match its checksum")
        version = fields.pop("format")
        if version != FORMAT:
            raise Unsupported(f"the volume has format {version}, this release knows {FORMAT}")
        return Identity(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as wrong:
        raise Corrupt(f"the file {IDENTITY} of the volume cannot be read: {wrong}") from wrong
