"""The same surface without await: one event loop on a thread of its own, and thin wrappers around it.

    with varlog.sync.connect("varlog://127.0.0.1:7700") as cluster:
        cluster.log("orders").append(b"x")

There is no logic here: every call is handed to the loop's thread and waited for. Objects may be used
from several threads, but for the loop's own, on which futures of a producer call what was to be called
when they are done. A subscription brings whole batches over from the loop's thread, not entries.
"""

from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

from varlog import client
from varlog.base.errors import Unavailable
from varlog.client.limits import TIMEOUT_SECONDS
from varlog.ports import World
from varlog.sync.journal import Journal, JournalLeader
from varlog.sync.log import Log, Producer, Subscription
from varlog.sync.thread import LoopThread

__all__ = ["Cluster", "Journal", "JournalLeader", "Log", "Producer", "Subscription", "connect"]

Result = TypeVar("Result")


def connect(url: str, *, timeout: float = TIMEOUT_SECONDS, zone: str = "", world: World | None = None) -> "Cluster":
    """See `varlog.connect`; to be used as `with`."""
    return Cluster(client.connect(url, timeout=timeout, zone=zone, world=world))


class Cluster:
    """See `varlog.Cluster`."""

    def __init__(self, cluster: client.Cluster) -> None:
        self._cluster = cluster
        self._thread: LoopThread | None = None

    def __enter__(self) -> "Cluster":
        thread = LoopThread()
        try:
            thread.run(self._cluster.__aenter__())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See `varlog.Cluster.close`; what other threads wait for ends in an error. A forked process lets it go."""
        if self._thread is not None:
            self._thread.check_caller()
        thread, self._thread = self._thread, None
        if thread is not None and thread.alive:
            try:
                thread.run(self._cluster.close())
            finally:
                thread.stop()

    def __repr__(self) -> str:
        return repr(self._cluster)

    def create_log(
        self,
        name: str,
        *,
        ordering: str = "cut",
        replicas: int = 3,
        streams: int = 1,
        ack: int | None = None,
        unit: int | None = None,
        roll_bytes: int = 0,
        roll_seconds: float = 0.0,
        retain_bytes: int = 0,
        retain_seconds: float = 0.0,
        retain_archived: bool = False,
        journal: bool = False,
        pin: Sequence[str] = (),
        replication: str = "",
        timeout: float | None = None,
    ) -> "Log":
        work = self._cluster.create_log(
            name,
            ordering=ordering,
            replicas=replicas,
            streams=streams,
            ack=ack,
            unit=unit,
            roll_bytes=roll_bytes,
            roll_seconds=roll_seconds,
            retain_bytes=retain_bytes,
            retain_seconds=retain_seconds,
            retain_archived=retain_archived,
            journal=journal,
            pin=pin,
            replication=replication,
            timeout=timeout,
        )
        return Log(self._run(work), self._running)

    def log(self, name: str) -> "Log":
        async def handle() -> client.Log:
            return self._cluster.log(name)  # whatever all handles of a log share is made on the loop's thread alone

        return Log(self._run(handle()), self._running)

    def journal(
        self,
        name: str,
        *,
        replicas: int = 3,
        ack: int | None = None,
        roll_bytes: int = 0,
        roll_seconds: float = 0.0,
        replication: str = "",
        timeout: float | None = None,
    ) -> "Journal":
        async def handle() -> client.Journal:
            return self._cluster.journal(
                name,
                replicas=replicas,
                ack=ack,
                roll_bytes=roll_bytes,
                roll_seconds=roll_seconds,
                replication=replication,
                timeout=timeout,
            )

        return Journal(self._run(handle()), self._running)

    def logs(self, *, timeout: float | None = None) -> list[client.LogDescription]:
        return self._run(self._cluster.logs(timeout=timeout))

    def remove_log(self, name: str, *, timeout: float | None = None) -> None:
        self._run(self._cluster.remove_log(name, timeout=timeout))

    def nodes(self, *, timeout: float | None = None) -> list[client.NodeDescription]:
        return self._run(self._cluster.nodes(timeout=timeout))

    def drain_node(self, node: int, *, undo: bool = False, timeout: float | None = None) -> client.NodeDescription:
        return self._run(self._cluster.drain_node(node, undo=undo, timeout=timeout))

    def check_node(self, node: int, *, timeout: float | None = None) -> client.NodeCheck:
        return self._run(self._cluster.check_node(node, timeout=timeout))

    def scrub_node(self, node: int, *, timeout: float | None = None) -> client.NodeDescription:
        return self._run(self._cluster.scrub_node(node, timeout=timeout))

    def remove_node(self, node: int, *, force: bool = False, timeout: float | None = None) -> None:
        self._run(self._cluster.remove_node(node, force=force, timeout=timeout))

    def status(self, *, timeout: float | None = None) -> client.ClusterStatus:
        return self._run(self._cluster.status(timeout=timeout))

    @property
    def _running(self) -> LoopThread:
        if self._thread is None:
            raise Unavailable("not connected: use the cluster inside `with varlog.sync.connect(...)`")
        return self._thread

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._thread is None:
            work.close()
        return self._running.run(work)
