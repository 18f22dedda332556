"""The log as an endless table: a streaming query reads it from one position to the next.

    offset   {"cluster": ..., "log": 7, "from": 1, "next": 1001, "parts": 2}     everything below `next` was delivered

The log is totally ordered, so one number says where a query is; with the ids of cluster and log a checkpoint
cannot be taken for that of another. Spark keeps the offsets, and asks for the same range again after a crash:
the same range is the same rows. `from` says where the range before it begins, `parts` into how many tasks it is cut.
They lie in the checkpoint too because a sink knows what it has by the task it came from: a micro-batch that is repeated
must be cut as it was the first time, whatever the options say by then. For the first one Spark keeps no start: it asks
for it anew each time, and by then `earliest` may be later, and `latest` is.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from varlog import sync
from varlog.base.errors import InvalidArgument
from varlog.spark.limits import TAIL_SECONDS
from varlog.spark.options import Options
from varlog.spark.reading import Part, count_parts, even_parts, read_part
from varlog.spark.span import check_same, extent, find_start, not_trimmed

if TYPE_CHECKING:
    import pyarrow

Offset = dict[str, Any]


class _Open:
    """The connection that the driver keeps while a query runs, and what it identifies."""

    def __init__(self, options: Options) -> None:
        self.cluster = sync.connect(options.cluster, timeout=options.timeout)
        self.cluster.__enter__()
        try:
            self.log = self.cluster.log(options.log)
            self.log_id = self.log.info().id
            self.ids = {"cluster": self.cluster.status().cluster_id, "log": self.log_id}
        except BaseException:
            self.cluster.close()
            raise
        self._end = 0
        self._asked_at = 0.0

    def end(self) -> int:
        """One past the tail; not asked for more often than need be."""
        now = time.monotonic()
        if not self._end or now - self._asked_at > TAIL_SECONDS:
            end = self.log.tail() + 1
            if end != self._end:  # who has nothing new to read need not know of whom
                check_same(self.log.name, self.log_id, self.log.info().id)
            self._end, self._asked_at = end, now
        return self._end


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query, in a process beside the driver; a copy without connection goes to every task."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.stop is not None:
            raise InvalidArgument("the option 'stop' is for batch reads: a streaming read has no end")
        self._options = options
        self._schema = schema
        self._opened: _Open | None = None
        self._target: int | None = None
        """Where a query that takes only what is there now ends."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _open(self) -> _Open:
        if self._opened is None:
            self._opened = _Open(self._options)
        return self._opened

    # ------------------------------------------------------------ in the driver

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        log = self._open.log
        return self._offset(find_start(log, extent(log), self._options))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        begin, opened = self._checked(start), self._open
        end = opened.end() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        if end <= begin:
            return start
        parts = count_parts(opened.cluster, opened.log, begin, end, self._options)
        return {**self._offset(end), "from": begin, "parts": parts}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.max_entries_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """For the progress report: how far the query could be."""
        return self._offset(self._open.end())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._open.log.tail() + 1

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        first, stop, log = self._checked(start), self._checked(end), self._open.log_id
        if start != end:
            first = end.get("from", first)
        parts = even_parts(log, first, stop, end.get("parts", 1))
        if first < stop:
            known = extent(self._open.log)
            check_same(known.name, log, known.log)
            left = not_trimmed(first, known, self._options)
            parts = [Part(log, max(part.start, left), max(part.stop, left)) for part in parts]
        return list(parts)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the log keeps its entries until they are trimmed."""

    def stop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.cluster.close()

    def _offset(self, position: int) -> Offset:
        return {**self._open.ids, "next": position}

    def _checked(self, offset: Offset) -> int:
        """The position of an offset; a checkpoint of another log or cluster is refused."""
        position = offset.get("next")
        if not isinstance(position, int):
            raise InvalidArgument(f"the checkpoint is not one of a varlog source: it has the offset {offset}")
        for what, own in self._open.ids.items():
            if offset.get(what) != own:
                raise InvalidArgument(
                    f"the checkpoint is of another {what} ({offset.get(what)}) than log {self._options.log!r} at "
                    f"{self._options.cluster} ({own}): use the checkpoint that belongs to it, or a new one"
                )
        return position

    # ------------------------------------------------------------ in a task

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        assert isinstance(partition, Part)
        return read_part(self._options, self._schema, partition)
