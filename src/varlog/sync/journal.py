"""A journal and its leader, without await."""

from collections.abc import Iterable, Sequence
from types import TracebackType

from varlog import client
from varlog.client.limits import LEASE_SECONDS
from varlog.sync.log import Log
from varlog.sync.thread import LoopThread
from varlog.wire.batch import Headers
from varlog.wire.frame import Buffer


class Journal(Log):
    """See `varlog.Journal`; to be used as `with`."""

    def __init__(self, journal: client.Journal, thread: LoopThread) -> None:
        super().__init__(journal, thread)
        self._journal = journal

    def __enter__(self) -> "Journal":
        self._thread.run(self._journal.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._journal.__aexit__(kind, error, trace))

    def lead(self, *, ttl: float = LEASE_SECONDS, name: str = "", timeout: float | None = None) -> "JournalLeader":
        async def candidate() -> client.JournalLeader:
            return self._journal.lead(ttl=ttl, name=name, timeout=timeout)

        return JournalLeader(self._thread.run(candidate()), self._thread)


class JournalLeader:
    """See `varlog.JournalLeader`; to be used as `with`."""

    def __init__(self, leader: client.JournalLeader, thread: LoopThread) -> None:
        self._leader = leader
        self._thread = thread

    def __enter__(self) -> "JournalLeader":
        self._thread.run(self._leader.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._leader.__aexit__(kind, error, trace))

    @property
    def epoch(self) -> int:
        return self._leader.epoch

    def append(
        self,
        payload: Buffer,
        *,
        key: Buffer | None = None,
        headers: Headers | None = None,
        compress: bool = False,
        timeout: float | None = None,
    ) -> client.Ack:
        return self._thread.run(
            self._leader.append(payload, key=key, headers=headers, compress=compress, timeout=timeout)
        )

    def append_batch(
        self,
        payloads: Iterable[Buffer],
        *,
        key: Buffer | None = None,
        keys: Sequence[Buffer | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        compress: bool = False,
        timeout: float | None = None,
    ) -> client.Ack:
        return self._thread.run(
            self._leader.append_batch(payloads, key=key, keys=keys, headers=headers, compress=compress, timeout=timeout)
        )
