"""A log, as an application uses it. Every call has a deadline and ends in a typed error."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import cast

from varlog.base.errors import OutcomeUnknown, Timeout, Unavailable
from varlog.base.ids import Glsn, ProducerToken
from varlog.client.appender import Appender
from varlog.client.archiving import record_archive
from varlog.client.bounds import check_position, check_seconds, check_stream
from varlog.client.columns import Columns, check_compression, many_entries, one_entry
from varlog.client.context import LogContext
from varlog.client.describe import ArchiveDescription, LogDescription, describe_log
from varlog.client.entry import Ack, Entry
from varlog.client.errors import unsupported
from varlog.client.limits import LINGER_SECONDS, PATIENCE_SECONDS, PRODUCER_BATCH_BYTES, PRODUCER_BYTES
from varlog.client.lookup import find_time, read_entry
from varlog.client.producer import Producer
from varlog.client.questions import ask_by_id, ask_tail, time_left
from varlog.client.reconfigure import reconfiguration, reconfigure_log
from varlog.client.replica import Replica
from varlog.client.retry import Retry, check_token
from varlog.client.subscription import Subscription
from varlog.client.tail import fresh_tail
from varlog.core.capabilities import capabilities
from varlog.runtime.timeout import within
from varlog.wire.batch import Headers
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


class Log:
    """A handle on one log. Made without asking anybody; the first use looks the log up."""

    def __init__(self, context: LogContext, appender: Appender, timeout: float) -> None:
        self._context = context
        self._appender = appender
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<Log {self.name}>"

    @property
    def name(self) -> str:
        return self._context.routes.name

    # ------------------------------------------------------------ writing

    async def append(
        self,
        payload: Buffer,
        *,
        key: Buffer | None = None,
        headers: Headers | None = None,
        expect: int | None = None,
        stream: int | None = None,
        compress: bool = False,
        timeout: float | None = None,
    ) -> Ack:
        """Append one entry; returns when it is durable on all replicas and has its place in the order.

        Appends that wait at the same time travel together. `stream` chooses a log stream; else one that
        answers is chosen. With `expect` it gets that position or none: `Conflict` if another has it, or it was
        given up as the entry was long on its way (under `sequencer`). Raises `OutcomeUnknown` if the entry was sent
        and not answered in time: its `token`, given to `retry`, settles it. Any other error: the entry is not in
        the log.
        """
        plain = key is None and headers is None and expect is None and timeout is None and not compress
        if plain and type(payload) is bytes and (stream is None or type(stream) is int):
            future = self._appender.try_append(payload, stream, self._timeout)
            if future is not None:
                return await future
        return await self._append(one_entry(payload, key, headers), expect, stream, compress, timeout)

    async def append_batch(
        self,
        payloads: Iterable[Buffer],
        *,
        key: Buffer | None = None,
        keys: Sequence[Buffer | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        expect: int | None = None,
        stream: int | None = None,
        compress: bool = False,
        timeout: float | None = None,
    ) -> Ack:
        """Append several entries, all or none of them, at consecutive positions.

        `key` and a single mapping of `headers` go to every entry; `keys` and a list of headers one by one.
        With `expect`, as in `append`, the first gets that position or none does. In a log of several streams it is also
        a `Conflict` that the batch does not fit there before the edge of a stripe: what is left before the edge is then
        given up, and behind it, at `Conflict.tail + 1`, the batch fits.
        """
        return await self._append(many_entries(payloads, key, keys, headers), expect, stream, compress, timeout)

    async def _append(
        self, columns: Columns, expect: int | None, stream: int | None, compress: bool, timeout: float | None
    ) -> Ack:
        seconds = self._seconds(timeout)
        if expect is not None:
            left = time_left(self._context, seconds)
            await self._refuse("conditional_append", left)
            seconds = left()
        if compress:
            check_compression()
        position = None if expect is None else check_position(expect, "expect")
        return await self._appender.append(columns, check_stream(stream), compress, seconds, position)

    async def _refuse(self, capability: str, left: Callable[[], float]) -> None:
        """By what the log is now: what is known of it may be from before it was changed."""
        info = await self._context.routes.resolve(left())
        if capability not in _capabilities(info):
            await self._context.routes.refresh(left())
            info = await self._context.routes.resolve(left())
        if capability not in _capabilities(info):
            raise unsupported(capability, info.ordering)

    async def retry(self, token: object, *, timeout: float | None = None) -> Ack:
        """Settle an append that ended in `OutcomeUnknown`, by its `token`: never is it in the log twice.

        If it is there, this is its Ack; if not, it is appended now. Raises `OutcomeUnknown` again when it
        still cannot be told, and `Sealed` or, where positions are granted before they are written, `Junk` when it is
        certainly not there and never will be.
        """
        checked = check_token(token)
        seconds = self._seconds(timeout)
        left = time_left(self._context, seconds)
        await self._context.routes.resolve(seconds)
        open_one = self._appender.find(checked, left())
        if open_one is not None:
            return await self._await_open(open_one, checked, left())
        return await Retry(self._context, checked).run(left())

    async def _await_open(self, future: "asyncio.Future[Ack]", token: ProducerToken, seconds: float) -> Ack:
        try:
            return await within(self._context.world.clock, seconds, asyncio.shield(future))
        except Timeout as late:
            error = OutcomeUnknown("the append was sent again, and not answered in time")
            error.token = token
            raise error from late

    def producer(
        self,
        *,
        linger: float = LINGER_SECONDS,
        id: str | None = None,
        stream: int | None = None,
        max_batch_bytes: int = PRODUCER_BATCH_BYTES,
        max_in_flight_bytes: int = PRODUCER_BYTES,
        compress: bool = False,
        timeout: float | None = None,
    ) -> Producer:
        """A pipelined producer; see `Producer`. `timeout` is that of each send, from when it was taken."""
        return Producer(
            self._context,
            linger=linger,
            id=id,
            stream=check_stream(stream),
            max_batch_bytes=max_batch_bytes,
            max_in_flight_bytes=max_in_flight_bytes,
            compress=compress,
            timeout=self._seconds(timeout),
        )

    # ------------------------------------------------------------ reading

    async def read(self, glsn: int, *, timeout: float | None = None) -> Entry:
        """The entry at a position, of nodes or archive; `NotWritten` beyond the tail, `Trimmed` if it is gone."""
        return await read_entry(self._context, check_position(glsn, "glsn"), self._seconds(timeout))

    def subscribe(
        self,
        start: int | None = 1,
        stop: int | None = None,
        *,
        stream: int | None = None,
        wait: bool = True,
        junk: bool = False,
        timeout: float | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> Subscription:
        """Entries from position `start` on, in order, before `stop` if that is given.

        It goes on for ever, waiting at the tail, and ends only at `stop` or at the end of a sealed log; with
        `wait=False` it ends at what is the tail when it begins. `start=None` begins at the first entry that
        is still there. `stream` gives the entries of one log stream alone. What the nodes have trimmed comes from
        the log's archive; where that has not got it, `Trimmed` is raised, also to one who falls behind the trim point.
        `patience` is how many seconds it bears that no replica of a stream answers or, of one that has ended, that none
        has more though there is more, before it raises `Unavailable`; what was read stays read. With `junk`,
        `batches()` also gives batches that stand for positions which were given up (`ReadBatch.junk`).
        """
        return Subscription(
            self._context,
            start=None if start is None else check_position(start, "start"),
            stop=None if stop is None else check_position(stop, "stop"),
            stream=check_stream(stream),
            wait=wait,
            junk=junk,
            timeout=self._seconds(timeout),
            patience=check_seconds(patience, "patience"),
        )

    async def tail(self, *, timeout: float | None = None) -> Glsn:
        """The last committed position, 0 if there is none; at least everything acked before the call began."""
        return await fresh_tail(self._context, self._seconds(timeout))

    async def find(self, time: datetime | float, *, timeout: float | None = None) -> Glsn:
        """The first position at or after a time; one past the tail if there is none yet.

        `time` is a datetime with a zone, or seconds since 1970 as `time.time()` gives them. An entry's time
        is that of its batch, by the clock of the client that sent it: later positions may have earlier times.
        """
        return await find_time(self._context, time, self._seconds(timeout))

    # ------------------------------------------------------------ keeping

    async def trim(self, upto: int, *, timeout: float | None = None) -> None:
        """Give up everything at or below a position, for good; returns when every replica has done so.

        What of it is in the log's archive can still be read, from there.
        """
        position = check_position(upto, "upto", 0)
        left = time_left(self._context, self._seconds(timeout))
        if (await self._context.routes.resolve(left())).ordering == "sequencer":
            await ask_tail(self._context, left())  # what is trimmed is written before
        await ask_by_id(
            self._context,
            Method.TRIM_LOG,
            lambda log: pb.TrimLogRequest(log=log, upto=position),
            left(),
            changes=True,
        )

    async def seal(self, *, timeout: float | None = None) -> Glsn:
        """Close the log for good; returns its end, one past its last position."""
        answer = await ask_by_id(
            self._context,
            Method.SEAL_LOG,
            lambda log: pb.SealLogRequest(log=log),
            self._seconds(timeout),
            changes=True,
        )
        info = cast(pb.LogInfo, answer)
        self._context.routes.adopt(info)
        return Glsn(info.chain[-1].end)

    async def record_archive(
        self, archive: ArchiveDescription, *, expected: int, timeout: float | None = None
    ) -> LogDescription:
        """Say that the archive holds everything before `archive.stop`: for whoever writes archives.

        `expected` is where it ended before, 0 if the log had none. `Conflict` says that it ends elsewhere by now:
        another has archived meanwhile, and what it did is to be taken over. A new archive begins empty.
        """
        return describe_log(await record_archive(self._context, archive, expected, self._seconds(timeout)))

    async def reconfigure(
        self,
        *,
        ordering: str | None = None,
        replicas: int | None = None,
        streams: int | None = None,
        ack: int | None = None,
        unit: int | None = None,
        members: Sequence[int] = (),
        roll_bytes: int | None = None,
        roll_seconds: float | None = None,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
        retain_archived: bool | None = None,
        roll: bool = False,
        pin: Sequence[str] = (),
        unpin: Sequence[str] = (),
        replication: str | None = None,
        journal: bool | None = None,
        timeout: float | None = None,
    ) -> LogDescription:
        """Change what the log is made of, while it is used; what is not given stays as it is.

        More or fewer `streams` come and go inside the segment. Another `ordering`, number of `replicas` or `ack`, other
        `members` (node ids), or `roll`, end the segment and begin the next: nothing is lost, doubled or reordered,
        and no data moves. `roll_bytes` and `roll_seconds` are the limits at which that happens by itself. What is older
        than `retain_seconds`, or more than the newest `retain_bytes`, is trimmed by and by; 0 takes a limit away.
        With `retain_archived` nothing of that goes before it is archived. A change that would take away a capability
        which the log is pinned to (`pin`, until `unpin`) is refused. `replication`, under `leader`, is "broadcast" or
        "chain". `journal=True` makes it a journal, which is under `leader`, and which only the client appends to that
        leads it; with `journal=False` or an `ordering` that journals do not have it is one no longer, and its leader
        ends in `Fenced`.
        """
        request = reconfiguration(
            ordering=ordering,
            replicas=replicas,
            streams=streams,
            ack=ack,
            unit=unit,
            members=members,
            roll_bytes=roll_bytes,
            roll_seconds=roll_seconds,
            retain_bytes=retain_bytes,
            retain_seconds=retain_seconds,
            retain_archived=retain_archived,
            roll=roll,
            pin=pin,
            unpin=unpin,
            replication=replication,
            journal=journal,
        )
        return describe_log(await reconfigure_log(self._context, request, self._seconds(timeout)))

    # ------------------------------------------------------------ looking

    async def info(self, *, timeout: float | None = None) -> LogDescription:
        """The log's settings and streams, asked for anew."""
        left = time_left(self._context, self._seconds(timeout))
        await self._context.routes.refresh(left())
        return describe_log(await self._context.routes.resolve(left()))

    @property
    def capabilities(self) -> frozenset[str]:
        """What the log's ordering can do. Known once the log was looked up: by any call, `info()` for one."""
        info = self._context.routes.info
        if info is None:
            raise Unavailable(f"log {self.name!r} was not looked up yet: await log.info() first")
        return _capabilities(info)

    def _seconds(self, timeout: float | None) -> float:
        if timeout is None:
            return self._timeout
        return check_seconds(timeout, "a timeout")


def _capabilities(info: pb.LogInfo) -> frozenset[str]:
    return capabilities(info.ordering, streams=info.streams, journal=info.journal)


def replica_of(log: Log, segment: int, stream: int, node: int, *, timeout: float | None = None) -> Replica:
    """What one node has of one stream of a log: for whoever compares copies, not to read the log."""
    return Replica(log._context, segment, stream, node, log._seconds(timeout))
