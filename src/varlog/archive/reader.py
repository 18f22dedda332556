"""Archives for the event loop: files are read by threads, a row group ahead of whoever reads."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from varlog.archive.batches import to_batches
from varlog.archive.files import ArchivedRange, Snapshot
from varlog.archive.limits import THREADS
from varlog.base.ids import Glsn, StreamId
from varlog.ports.archive import ArchivedBatch
from varlog.wire.proto import varlog_pb2 as pb

if TYPE_CHECKING:
    import pyarrow

Result = TypeVar("Result")


class FileArchives:
    """Reads archives in folders and on S3, as `varlog.ports.archive.Archives`. Keeps the snapshot it read last."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None

    async def batches(
        self, log: pb.LogInfo, start: Glsn, stop: Glsn, stream: StreamId | None
    ) -> AsyncGenerator[list[ArchivedBatch], None]:
        steps = _Steps(_runs(self._open(log), start, stop, stream))
        try:
            ahead = _on_a_thread(steps.next)
            while (run := await ahead) is not None:
                ahead = _on_a_thread(steps.next)
                if run:
                    yield run
        finally:
            _threads().submit(steps.close)  # waits for the step that may be under way; nobody waits for it

    async def find(self, log: pb.LogInfo, time_us: int) -> Glsn | None:
        snapshot = self._open(log)
        found = await _on_a_thread(lambda: snapshot.find(time_us))
        return None if found is None else Glsn(found)

    def _open(self, log: pb.LogInfo) -> Snapshot:
        archived = archived_range(log)
        if self._snapshot is None or self._snapshot.archived != archived:
            self._snapshot = Snapshot(archived)
        return self._snapshot


def archived_range(log: pb.LogInfo) -> ArchivedRange:
    """What a log's record says of its archive."""
    archive = log.archive
    return ArchivedRange(
        archive.location, archive.metadata, archive.endpoint, archive.region, archive.first, log.archived
    )


class _Steps:
    """A blocking generator that is advanced on threads, one step at a time."""

    def __init__(self, runs: Iterator[list[ArchivedBatch]]) -> None:
        self._runs: Iterator[list[ArchivedBatch]] | None = runs
        self._lock = Lock()

    def next(self) -> list[ArchivedBatch] | None:
        with self._lock:
            return None if self._runs is None else next(self._runs, None)

    def close(self) -> None:
        """Its files are closed as it goes."""
        with self._lock:
            self._runs = None


def _runs(snapshot: Snapshot, start: int, stop: int, stream: int | None) -> Iterator[list[ArchivedBatch]]:
    """The batches of one row group after the other."""
    for file in snapshot.files(start, stop):
        for rows in snapshot.rows(file, start, stop):
            yield to_batches(rows if stream is None else _of_stream(rows, stream))


def _of_stream(rows: "pyarrow.RecordBatch", stream: int) -> "pyarrow.RecordBatch":
    import pyarrow.compute as compute

    return rows.filter(compute.equal(rows["stream"], stream))


def _threads() -> ThreadPoolExecutor:
    return _threads_of(os.getpid())


@cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    """One for each process: a forked one has the pool of its parent, but none of the threads."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="varlog-archive")


def _on_a_thread(work: Callable[[], Result]) -> "asyncio.Future[Result]":
    future = asyncio.get_running_loop().run_in_executor(_threads(), work)
    future.add_done_callback(_heed)
    return future


def _heed(done: "asyncio.Future[Result]") -> None:
    """Who waits gets the error; a step that was read ahead may have nobody."""
    if not done.cancelled():
        done.exception()
