"""What replicas that were dropped leave on the volumes, on its way out.

To remove gigabytes takes seconds where the disk is told of each block, and much longer where many replicas go at once.
Nobody waits for that who makes a replica, but of the same name, nor who starts the node: only the marks, by which a
start knows that a folder is to go, are written before a replica counts as gone. What cannot be removed is tried again.

All names of a volume are changed by one thread, which takes what it is given in order. So one folder is removed at a
time: whoever makes a replica beside hundreds that go has one step of one of them before each of his own.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from varlog.base.errors import VarlogError
from varlog.base.ids import ReplicaId
from varlog.ports import Clock
from varlog.runtime.scope import Scope, result_of
from varlog.storage.folders import drop_folder, mark_dropped
from varlog.storage.volume import Volume

AGAIN_S = 5.0
"""After something could not be removed, before it is tried again."""


class Folder(NamedTuple):
    """Of a replica, on its way out."""

    volume: Volume
    path: str
    marked: bool
    """Else a start of the node would find a replica in what is left."""


class Removals:
    """Of one node."""

    def __init__(self, volumes: Sequence[Volume], clock: Clock, scope: Scope, tell: Callable[[str], None]) -> None:
        """Folders are removed in `scope`; `tell` is for what goes wrong, in words for people."""
        self._volumes = volumes
        self._clock = clock
        self._scope = scope
        self._tell = tell
        self._going: dict[ReplicaId, asyncio.Task[None]] = {}
        self._folders: dict[ReplicaId, list[Folder]] = {}
        """What of it is going."""
        self._turns: dict[Volume, asyncio.Lock] = {}

    async def mark(self, replica: ReplicaId, keep: str = "") -> list[Folder]:
        """All there is of a replica, but for the folder `keep` and what is going already.

        From now on a start of the node removes it; where there was no room for a mark, nothing but `settled` says so.
        """
        left = []
        for volume in self._volumes:
            found = await volume.folders(replica)
            # As of now: while the next volume is looked at, some of it may be gone.
            going = [(folder.volume, folder.path) for folder in self._folders.get(replica, ())]
            left += [(volume, path) for path in found if path != keep and (volume, path) not in going]
        return [Folder(volume, path, await mark_dropped(volume.disk, path)) for volume, path in left]

    def begin(self, replica: ReplicaId, folders: list[Folder]) -> None:
        """Remove what was marked, behind what is being removed of the same replica."""
        self._folders.setdefault(replica, []).extend(folders)
        work = self._remove(replica, folders, self._going.get(replica))
        self._going[replica] = self._scope.spawn(work, name=f"remove {replica}")

    def begin_garbage(self) -> None:
        """Remove what was on its way out when the node stopped."""
        for volume in self._volumes:
            for replica, path in volume.garbage:
                self.begin(replica, [Folder(volume, path, marked=True)])
            volume.garbage.clear()

    def removes(self, replica: ReplicaId) -> bool:
        """Something of it is on its way out."""
        return replica in self._going

    async def ended(self, replica: ReplicaId) -> None:
        """Nothing of it is being removed."""
        while (going := self._going.get(replica)) is not None:
            await result_of(going, "the node ends")

    async def settled(self, replica: ReplicaId) -> None:
        """Whatever happens to the node, it will not have the replica any more."""
        if not all(folder.marked for folder in self._folders.get(replica, ())):
            await self.ended(replica)

    async def _remove(self, replica: ReplicaId, folders: list[Folder], before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        for folder in folders:
            await self._remove_one(folder)
            self._folders[replica].remove(folder)
        if self._going[replica] is asyncio.current_task():
            del self._going[replica], self._folders[replica]

    async def _remove_one(self, folder: Folder) -> None:
        told = False
        turn = self._turns.setdefault(folder.volume, asyncio.Lock())
        while True:
            try:
                async with turn:
                    await drop_folder(folder.volume.disk, folder.path)
                return
            except VarlogError as error:
                if not told:
                    self._tell(f"{folder.path} on {folder.volume.name} cannot be removed now: {error.message}")
                told = True
            await self._clock.sleep(AGAIN_S)
