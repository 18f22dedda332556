"""A replica of an ended stream, made from what other members hold (C5).

    source    READ whole: producers, then batches with their bindings      another source goes on where one failed
                 |
    here      mark `copying` -> store, sync, bind, read back -> seal, finish -> the mark goes: a replica like any other

Until the mark is gone nobody is told of it: it is in no report, serves no read, and a node that is started
again throws it away; so files are synced one by one, as they are full. While one group of batches is written, the
next one arrives and the one before is read back, checksums included, and compared with what the source sent. What came
from several sources is compared with the last of them once more, slot by slot from both disks. A source that was
trimmed meanwhile, or differs, makes the copy begin anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import Random
from typing import TypeVar

from varlog.base.errors import (
    Corrupt,
    InvalidArgument,
    NoSpace,
    TooLarge,
    Trimmed,
    Unavailable,
    Unsupported,
    VarlogError,
)
from varlog.base.ids import Glsn, NodeId, ReplicaId, Slot
from varlog.base.ranges import Binding
from varlog.node.pace import Pace
from varlog.ports import Clock
from varlog.runtime.timeout import within
from varlog.storage.replica_log import Beginning, DigestRow, ReplicaLog
from varlog.storage.volume import Volume
from varlog.transport.peer import PartStream, Peer, Reply
from varlog.wire.batch import BatchHeader, read_header
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import batches_in

PART_BYTES = 2 << 20
"""Wanted size of what comes at once; less where files are small."""
GROUP_BYTES = 8 << 20
"""Written at once; less where files are small."""
GROUP_BATCHES = 1 << 12
"""The same, where batches are small: each is taken in, staged and compared without a pause for others."""
WINDOW_BYTES = 8 << 20
"""What a source may send ahead."""
SOURCE_TIMEOUT_S = 5.0
"""So long a source may be silent."""
VERIFY_SLOTS = 1 << 14
"""Compared with one question: its answer fits the header of a frame whatever the batches are."""
MOST_PRODUCER_BYTES = 64 << 20
"""Of the table of producers."""
ROUNDS = 3
"""So many times every source must have failed before the copy does."""
PAUSE_S = 0.1
"""After every round of sources."""
TIDY_GROUPS = 8
"""After so many, what is known of full files is moved from memory to disk."""

Connect = Callable[[NodeId], Awaitable[Peer]]
One = TypeVar("One")
Other = TypeVar("Other")


class _SourceFailed(VarlogError):
    """It is of no use; another may be."""


class _Mixed(_SourceFailed):
    """What was taken from it and from others before does not fit together: it alone may do."""


class Copy:
    """One copy, from its first byte until it is complete."""

    def __init__(
        self,
        request: pb.CopyRequest,
        replica: ReplicaId,
        volume: Volume,
        file_bytes: int,
        *,
        connect: Connect,
        clock: Clock,
        random: Random,
        pace: Pace,
    ) -> None:
        self.spec = request.spec
        self.end = Slot(request.end)
        self.sources: Sequence[int] = request.sources
        """To be replaced when others are known."""
        self.task: asyncio.Task[None] | None = None
        self.error: VarlogError | None = None
        """Why it was given up."""
        self._replica = replica
        self._volume = volume
        self._file_bytes = file_bytes
        self._connect = connect
        self._clock = clock
        self._random = random
        self._pace = pace
        self._log: ReplicaLog | None = None
        self._read_back = Slot(0)
        """How far what came from the present source was read back."""

    def status(self) -> pb.ReplicaStatus:
        """How far it is; it counts for nothing yet."""
        stored = self._log.durable if self._log is not None else 0
        return pb.ReplicaStatus(state=pb.REPLICA_COPYING, contiguous=stored)

    async def run(self) -> ReplicaLog:
        """The files of the copy, whole, verified, and still marked. Raises what cannot be helped here."""
        failures = turn = 0
        while True:
            source = NodeId(self.sources[turn % len(self.sources)])
            try:
                return await self._copy_from(source)
            except Trimmed:
                await self.discard()  # everything, and with it the place where it began, is another now
            except _SourceFailed as error:
                failures += 1
                turn += not isinstance(error, _Mixed)
                if failures >= ROUNDS * len(self.sources):
                    raise Unavailable(f"no source could be copied; the last, node {source}: {error.message}") from error
            if failures % len(self.sources) == 0:
                await self._clock.sleep(PAUSE_S)

    async def close(self) -> None:
        """Leave what there is to the next start of the node, which removes it."""
        log, self._log = self._log, None
        if log is not None:
            await log.close()

    async def discard(self) -> None:
        """Close and remove what there is."""
        await self.close()
        await self._volume.drop_copy(self._replica, self.spec.copy)

    async def _copy_from(self, source: NodeId) -> ReplicaLog:
        try:
            peer = await within(self._clock, SOURCE_TIMEOUT_S, self._connect(source))
        except VarlogError as error:
            raise _SourceFailed(error.message) from error
        mixed = self._log is not None
        self._read_back = Slot(0)
        try:
            log = await self._take(peer)
            log.be_lazy(False)
            if log.end is None:
                log.stage_seal()
                await log.sync()  # so that what follows is its witness
                log.stage_finish(self.end)
            await log.sync()
            if not log.durable == log.bound == self.end:
                raise NoSpace(f"there is no room for the bindings of {self._replica}")
            if mixed or self._read_back != self.end:
                await self._verify(peer, log)
        except Corrupt as error:
            await self.discard()
            failure = _Mixed if mixed else _SourceFailed
            raise failure(f"the copy differs: {error.message}") from error
        return log

    # ------------------------------------------------------------ taking

    async def _take(self, peer: Peer) -> ReplicaLog:
        """Everything up to the end, from where the copy stands."""
        log = self._log
        if log is not None and log.appended >= self.end:
            return log
        name = self._replica
        request = pb.ReadRequest(log=name.log, segment=name.segment, stream=name.stream)
        request.part_bytes = min(PART_BYTES, self._file_bytes // 4)
        if log is None:
            request.whole = True
        else:
            request.slot = log.appended
        try:
            stream = peer.stream(Method.READ, request, window_bytes=WINDOW_BYTES, timeout=SOURCE_TIMEOUT_S)
        except VarlogError as error:
            raise _SourceFailed(error.message) from error
        async with stream as parts:
            part = await self._next(parts)
            if log is None:
                log, part = await self._begin(parts, part)
            log.be_lazy(True)
            await self._store_all(log, parts, part)
        if log.appended != self.end:
            raise _SourceFailed(f"{peer.remote} gave slots up to {log.appended} of {self.end}")
        return log

    async def _next(self, parts: PartStream) -> Reply | None:
        try:
            part = await within(self._clock, SOURCE_TIMEOUT_S, anext(parts))
        except StopAsyncIteration:
            return None
        except Trimmed:
            raise
        except VarlogError as error:
            raise _SourceFailed(error.message) from error
        status: pb.ReplicaStatus = part.message.status
        if status.state != pb.REPLICA_FINISHED or not status.contiguous == status.committed == self.end:
            raise _SourceFailed(f"it does not have all of {self._replica}")
        return part

    async def _begin(self, parts: PartStream, part: Reply | None) -> tuple[ReplicaLog, Reply | None]:
        """Take the table of producers, then make the folder; gives what comes behind."""
        producers = bytearray()
        first = part.message if part is not None else pb.ReadPart()
        while part is not None and part.message.producers:
            producers += part.body
            if len(producers) > MOST_PRODUCER_BYTES:
                raise _SourceFailed("its table of producers is too large")
            part = await self._next(parts)
        if part is None or not first.producers or part.message.slot != first.slot:
            raise _SourceFailed("it did not say where it begins")
        beginning = Beginning(Slot(first.slot), Glsn(first.status.trimmed_glsn), bytes(producers))
        try:
            self._log = await ReplicaLog.create_copy(
                self._volume.disk,
                self._volume.folder(self._replica, self.spec.copy),
                self._replica,
                self.spec.SerializeToString(deterministic=True),
                beginning,
                random=self._random,
                file_bytes=self._file_bytes,
            )
        except Corrupt as error:
            raise _SourceFailed(error.message) from error
        return self._log, part

    async def _store_all(self, log: ReplicaLog, parts: PartStream, part: Reply | None) -> None:
        """Group by group: while one is synced, the next arrives and the one before it is read back."""
        following: _Group | BaseException = await self._collect(log.appended, parts, part)
        before = _Group(log.appended)
        count = 0
        while isinstance(following, _Group) and following.parts:
            group = following
            if group.batches:
                log.stage_batches(group.slot, group.batches)
            synced, following, compared = await asyncio.gather(
                log.sync(),
                self._collect(group.end, parts, None, ended=group.last),
                self._compare_back(log, before),
                return_exceptions=True,
            )
            _raise(synced)
            _raise(compared)
            await self._bind(log, group)
            before, count = group, count + 1
            if count % TIDY_GROUPS == 0:
                await log.collect()
        await self._compare_back(log, before)
        _raise(following)  # only now: another source goes on behind what is stored and bound

    async def _collect(self, slot: Slot, parts: PartStream, part: Reply | None, *, ended: bool = False) -> "_Group":
        """Parts from `slot` on, with or without the first, until they are enough for a sync or there are no more."""
        group = _Group(slot, last=ended)
        enough = min(GROUP_BYTES, self._file_bytes // 4)
        while not group.last and group.size < enough and len(group.batches) < GROUP_BATCHES:
            part = part or await self._next(parts)
            if part is None:
                group.last = True
            else:
                group.add(part, self.end)
                await self._pace.spend(len(part.body))
                part = None
        return group

    async def _bind(self, log: ReplicaLog, group: "_Group") -> None:
        try:
            for binding, high_watermark in group.bindings:
                log.stage_binding(binding, high_watermark)
        except InvalidArgument as error:
            await self.discard()
            raise _SourceFailed(error.message) from error

    async def _compare_back(self, log: ReplicaLog, group: "_Group") -> None:
        """What is on disk now is what came, batch by batch, and matches its checksums."""
        low = max(group.slot, log.trimmed)
        wanted = [row for row in group.rows() if row.slot + row.entries > low]
        found: list[DigestRow] = []
        while wanted and low < group.end:
            found += await log.digest(low, group.end)
            low = Slot(found[-1].slot + found[-1].entries)
        if found != wanted:
            raise Corrupt(f"slots from {group.slot} on hold other batches than those that came", group.slot)
        self._read_back = group.end

    # ------------------------------------------------------------ verifying

    async def _verify(self, peer: Peer, log: ReplicaLog) -> None:
        """Both disks hold the same batches under the same positions. What the source has trimmed is trimmed here."""
        low = log.trimmed
        while True:
            high = Slot(min(low + VERIFY_SLOTS, self.end))
            ours, reply = await _both(log.digest(low, high), self._digest(peer, low, high))
            if reply.status.trimmed_glsn > log.trimmed_glsn:
                log.stage_trim(Glsn(reply.status.trimmed_glsn))
                await log.sync()
            if reply.status.trimmed > low:
                if log.trimmed <= low:
                    raise Corrupt(f"trimmed up to slot {log.trimmed} here, to {reply.status.trimmed} there", low)
                low = log.trimmed
                continue
            low = await self._compare(log, low, high, ours, reply)
            if low >= self.end:
                return

    async def _digest(self, peer: Peer, low: Slot, high: Slot) -> pb.DigestReply:
        name = self._replica
        replica = pb.ReplicaId(log=name.log, segment=name.segment, stream=name.stream)
        request = pb.DigestRequest(replica=replica, low=low, high=high, bindings=True)
        try:
            reply = (await peer.call(Method.DIGEST, request, timeout=SOURCE_TIMEOUT_S)).message
        except VarlogError as error:
            raise _SourceFailed(error.message) from error
        assert isinstance(reply, pb.DigestReply)
        return reply

    async def _compare(
        self, log: ReplicaLog, low: Slot, high: Slot, ours: list[DigestRow], reply: pb.DigestReply
    ) -> Slot:
        """One stretch of slots; where to go on."""
        theirs = [DigestRow(Slot(row.slot), row.count, row.content, row.crc) for row in reply.rows]
        if ours != theirs:
            raise Corrupt(f"slots from {low} on hold other batches than those of the source", low)
        end = Slot(ours[-1].slot + ours[-1].entries) if ours else high
        if await log.bindings(low, end) != _bindings(reply):
            raise Corrupt(f"slots from {low} on have other positions than those of the source", low)
        return end


class _Group:
    """Consecutive parts of a source, to be stored with one sync."""

    def __init__(self, slot: Slot, *, last: bool = False) -> None:
        self.slot = self.end = slot
        self.parts = 0
        self.size = 0
        self.last = last
        """Nothing comes behind it."""
        self.batches: list[tuple[memoryview, BatchHeader]] = []
        self.bindings: list[tuple[Binding, int]] = []
        """With their high watermarks."""

    def add(self, part: Reply, limit: Slot) -> None:
        message: pb.ReadPart = part.message
        if message.producers or message.slot != self.end:
            raise _SourceFailed(f"slot {self.end} was asked for, {message.slot} came")
        batches, bindings = _batches(part), _bindings(message)
        count = sum(header.count for _, header in batches)
        if sum(binding.count for binding in bindings) != count or self.end + count > limit:
            raise _SourceFailed(f"its batches from slot {message.slot} on are not those of its bindings")
        self.batches += batches
        self.bindings += [(binding, message.status.high_watermark) for binding in bindings]
        self.parts += 1
        self.size += len(part.body)
        self.end = Slot(self.end + count)

    def rows(self) -> Iterator[DigestRow]:
        slot = self.slot
        for _, header in self.batches:
            yield DigestRow(slot, header.count, pb.SLOT_DATA, header.crc)
            slot = Slot(slot + header.count)


def _raise(result: object) -> None:
    if isinstance(result, BaseException):
        raise result


async def _both(one: Awaitable[One], other: Awaitable[Other]) -> tuple[One, Other]:
    """At the same time. Both have ended when this raises what one of them did."""
    first, second = await asyncio.gather(one, other, return_exceptions=True)
    if isinstance(first, BaseException):
        raise first
    if isinstance(second, BaseException):
        raise second
    return first, second


def _batches(part: Reply) -> list[tuple[memoryview, BatchHeader]]:
    """As they came: their checksums are compared when they are read back from the disk."""
    try:
        found = [(batch, read_header(batch)) for batch in batches_in(part.body)]
    except (Corrupt, TooLarge, Unsupported) as error:
        raise _SourceFailed(error.message) from error
    if any(len(batch) != header.total_bytes for batch, header in found):
        raise _SourceFailed("a batch is not as long as it says")
    return found


def _bindings(message: pb.ReadPart | pb.DigestReply) -> list[Binding]:
    return [Binding(Slot(each.slot), Glsn(each.glsn), each.count) for each in message.bindings]
