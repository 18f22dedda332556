"""READ: raw runs of committed records, by slot, GLSN or time, once or for ever."""

from varlog.base.errors import InvalidArgument, NotWritten, Trimmed, Unavailable
from varlog.base.ids import Glsn, Slot
from varlog.base.ranges import Binding
from varlog.core.replica import ReplicaState
from varlog.node.replica import Replica
from varlog.storage.replica_log import Run
from varlog.transport.peer import Request
from varlog.wire.batch import read_header
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, walk_records

PART_BYTES = 256 << 10
"""Size of a part when the reader names none."""
MOST_PART_BYTES = 4 << 20


async def serve_read(request: Request, replica: Replica) -> None:
    """Answer one READ with parts until its limit, its stop or, with `wait`, its caller ends it."""
    message = request.message
    assert isinstance(message, pb.ReadRequest)
    if replica.failure is not None and (message.stored or message.whole or not replica.gave_up):
        raise replica.failure
    try:
        await _serve(request, message, replica)
    except InvalidArgument as error:
        if not replica.gone:
            raise
        raise Unavailable(f"{replica.id} is not here any more") from error  # its files were closed meanwhile


async def _serve(request: Request, message: pb.ReadRequest, replica: Replica) -> None:
    if message.stored:
        await _serve_stored(request, message, replica)
    elif message.whole:
        start = await _serve_producers(request, replica)
        await _Reading(request, message, replica, start).run()
    else:
        await _Reading(request, message, replica).run()


async def _serve_stored(request: Request, message: pb.ReadRequest, replica: Replica) -> None:
    """For a primary that takes back what it lost: everything durable from a slot on, once."""
    slot = Slot(message.slot)
    while True:
        await request.sendable()
        async with request.peer.making:
            end = replica.log.durable
            run = await replica.log.read(slot, end, min(message.part_bytes or PART_BYTES, MOST_PART_BYTES))
            last = run.end >= end
            part = pb.ReadPart(slot=run.slot, status=replica.status())
            await request.part(part, [run.data] if len(run.data) else (), end=last)
        if last:
            return
        slot = run.end


async def _serve_producers(request: Request, replica: Replica) -> Slot:
    """For a copy: what is known of producers before the first batch that is there, in one part or more.

    With it the copy knows of every batch that this replica knows of, also of those that are trimmed.
    """
    log = replica.log
    if replica.state is not ReplicaState.FINISHED:
        raise Unavailable(f"{replica.id} is not finished: there is no end yet up to which it could be copied")
    start = log.trimmed
    first = (await log.read(start, log.committed, 1, 1)).slot
    table = memoryview(await log.producers.snapshot(first))
    for at in range(0, max(1, len(table)), PART_BYTES):
        status = replica.status()
        status.trimmed_glsn = log.trimmed_glsn
        part = pb.ReadPart(slot=first, status=status, producers=True)
        await request.part(part, [table[at : at + PART_BYTES]] if len(table) else ())
    return start


class _Reading:
    def __init__(self, request: Request, message: pb.ReadRequest, replica: Replica, start: Slot | None = None) -> None:
        self._start = start
        self._request = request
        self._message = message
        self._replica = replica
        self._part_bytes = min(message.part_bytes or PART_BYTES, MOST_PART_BYTES)
        self._batches_left = message.max_batches

    async def run(self) -> None:
        slot: Slot | None = None
        while True:
            await self._request.sendable()
            async with self._request.peer.making:
                first = slot is None
                # No pause from here to the look at what is committed: to a search by time that found nothing, what is
                # committed behind it is no answer.
                slot = await self._first_slot() if slot is None else slot
                run, bindings, last = await self._next(slot)
                last = last or (run.end >= self._replica.log.committed and self._is_last())
                if run.end > run.slot or first or last:
                    await self._send(run, bindings, last)
            if last:
                return
            slot = run.end
            await self._replica.committed_beyond(slot)
            if self._replica.gone:
                raise Unavailable(f"{self._replica.id} is not here any more")
            if self._replica.failure is not None and not self._replica.gave_up:
                raise self._replica.failure

    def _is_last(self) -> bool:
        """At the committed end: does the stream of parts end here?"""
        return not self._message.wait or self._replica.log.end is not None

    async def _first_slot(self) -> Slot:
        message, log = self._message, self._replica.log
        if self._start is not None:
            return self._start
        match message.WhichOneof("start"):
            case "glsn":
                return await log.find_glsn(Glsn(message.glsn))
            case "time_us":
                return await log.find_time(message.time_us)
            case "slot":
                if message.slot < log.trimmed:
                    raise Trimmed(f"slots below {log.trimmed} are trimmed", log.trimmed_glsn + 1)
                if message.slot > log.committed and not message.wait:
                    raise NotWritten(f"slot {message.slot} is not committed", log.committed)
                return Slot(message.slot)
            case _:
                raise InvalidArgument("a read begins at a slot, a GLSN or a time")

    async def _next(self, slot: Slot) -> tuple[Run, list[Binding], bool]:
        """The next run, its bindings, and whether it is the last by the reader's own limits."""
        log = self._replica.log
        if slot >= log.committed and self._replica.failure is not None:
            raise self._replica.failure
        if slot >= log.committed:
            return Run(slot, slot, memoryview(b"")), [], False
        try:
            run = await log.read(slot, log.committed, self._part_bytes, self._batches_left)
            bindings = await self._bindings(slot, run)
        except Trimmed as trimmed:
            raise Trimmed(trimmed.message, log.trimmed_glsn + 1) from trimmed
        stop = self._message.stop_glsn
        if stop and bindings[-1].glsn_end > stop:
            return *_cut(run, bindings, stop), True
        return run, bindings, self._count_batches(run)

    async def _bindings(self, slot: Slot, run: Run) -> list[Binding]:
        """Of all batches of the run, also where the trim point lies inside the first of them.

        While we waited for the disk it may have moved beyond `slot`, the reader's position, where nothing
        is known any more of what lies before it.
        """
        log = self._replica.log
        self._refuse_trimmed(slot)
        bindings = await log.bindings(max(run.slot, log.trimmed), run.end)
        self._refuse_trimmed(slot)
        first = bindings[0]
        missing = first.slot - run.slot
        if missing:
            bindings[0] = Binding(run.slot, Glsn(first.glsn - missing), first.count + missing)
        return bindings

    def _refuse_trimmed(self, slot: Slot) -> None:
        trimmed = self._replica.log.trimmed
        if slot < trimmed:
            raise Trimmed(f"slots below {trimmed} are trimmed")

    def _count_batches(self, run: Run) -> bool:
        if not self._message.max_batches:
            return False
        self._batches_left -= run.batches
        return self._batches_left <= 0

    async def _send(self, run: Run, bindings: list[Binding], last: bool) -> None:
        part = pb.ReadPart(slot=run.slot, status=self._replica.status())
        for binding in bindings:
            part.bindings.add(slot=binding.slot, glsn=binding.glsn, count=binding.count)
        await self._request.part(part, [run.data] if len(run.data) else (), end=last)


def _cut(run: Run, bindings: list[Binding], stop: int) -> tuple[Run, list[Binding]]:
    """The batches that begin before GLSN `stop`, of which one at least does not."""
    limit = next(each.slot + max(0, stop - each.glsn) for each in bindings if each.glsn_end > stop)
    offset, end = 0, run.slot
    for record in walk_records(run.data):
        if record.kind == RecordKind.BATCH:
            if record.slot >= limit:
                break
            end = Slot(record.slot + read_header(run.data, record.body).count)
        offset = record.end
    left = [Binding(each.slot, each.glsn, min(each.count, end - each.slot)) for each in bindings if each.slot < end]
    return Run(run.slot, end, run.data[:offset]), left
