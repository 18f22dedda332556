"""A journal: a log that one client at a time leads, from its own process (seed: shared journal).

    async with cluster.journal("wal") as journal, journal.lead(ttl=5.0) as leader:
        await leader.append(b"event")

Candidates wait in `lead` until they are elected. Everybody else follows: reading a journal is reading a log.
"""

from collections.abc import Iterable, Sequence
from types import TracebackType

from varlog.base.errors import AlreadyExists, InvalidArgument, NotFound, Unsupported
from varlog.client.appender import Appender
from varlog.client.bounds import check_milliseconds, check_seconds
from varlog.client.columns import many_entries, one_entry
from varlog.client.context import LogContext
from varlog.client.entry import Ack
from varlog.client.journal_leader import Leadership
from varlog.client.limits import LEASE_SECONDS
from varlog.client.log import Log
from varlog.client.repository import Doubt
from varlog.wire.batch import Headers
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

ID_BITS = 63


class Journal(Log):
    """A handle on a journal, to be used as `async with`: the first use makes it, with the settings that were given."""

    def __init__(self, context: LogContext, appender: Appender, timeout: float, wanted: pb.CreateLogRequest) -> None:
        super().__init__(context, appender, timeout)
        self._wanted = wanted

    def __repr__(self) -> str:
        return f"<Journal {self.name}>"

    async def __aenter__(self) -> "Journal":
        routes = self._context.routes
        try:
            await routes.refresh(self._timeout)
        except NotFound:
            await self._create()
        info = await routes.resolve(self._timeout)
        if not info.journal:
            raise Unsupported(
                f"log {self.name!r} is no journal: everybody may append to it, and nobody can lead it; "
                "reconfigure(journal=True) makes it one"
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing of it is kept here."""

    async def _create(self) -> None:
        try:
            await self._context.repositories.call(
                Method.CREATE_LOG, self._wanted, timeout=self._timeout, changes=True, doubt=Doubt()
            )
        except AlreadyExists:
            pass  # others come at the same time
        await self._context.routes.refresh(self._timeout)

    def lead(self, *, ttl: float = LEASE_SECONDS, name: str = "", timeout: float | None = None) -> "JournalLeader":
        """A candidate: `async with` waits until it is elected, for ever unless a `timeout` is given.

        A leader that gives no word for `ttl` seconds is replaced. `name` is shown to people; else its address is.
        """
        info = self._context.routes.info
        if info is None:
            raise InvalidArgument("use the journal inside `async with cluster.journal(...)`")
        milliseconds = check_milliseconds(check_seconds(ttl, "ttl"), "ttl")
        if timeout is not None:
            check_seconds(timeout, "a timeout")
        number = self._context.world.random.getrandbits(ID_BITS) or 1
        leader = pb.JournalLeader(id=number, ttl_ms=milliseconds, name=name)
        return JournalLeader(Leadership(self._context, info, leader, self._timeout, timeout))


class JournalLeader:
    """Made by `Journal.lead`; leads inside `async with`, which waits until it is elected."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    def __repr__(self) -> str:
        return f"<JournalLeader of epoch {self.epoch}>"

    async def __aenter__(self) -> "JournalLeader":
        await self._leadership.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See through what was sent, then leave; another may lead at once."""
        await self._leadership.close()

    @property
    def epoch(self) -> int:
        """The segment it leads; 0 if it does not, or not just now."""
        return self._leadership.epoch

    async def append(
        self,
        payload: Buffer,
        *,
        key: Buffer | None = None,
        headers: Headers | None = None,
        compress: bool = False,
        timeout: float | None = None,
    ) -> Ack:
        """Append one event; returns when W members have it on disk. `Fenced` once another has taken over.

        Raises `OutcomeUnknown` if it was sent and not decided in time. Any other error: it is not in the log.
        """
        return await self._leadership.append(one_entry(payload, key, headers), compress, timeout)

    async def append_batch(
        self,
        payloads: Iterable[Buffer],
        *,
        key: Buffer | None = None,
        keys: Sequence[Buffer | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        compress: bool = False,
        timeout: float | None = None,
    ) -> Ack:
        """Append several events, all or none of them, at consecutive positions."""
        return await self._leadership.append(many_entries(payloads, key, keys, headers), compress, timeout)
