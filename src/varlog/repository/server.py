"""The repository process: one of several that share a store, of which one leads.

    every repository   listens ──▶ campaigns ──▶ leads: a term ──▶ lost it, or its store failed ──┐
                                       ▲                                                          │
                                       └──────────────────────────────────────────────────────────┘

Who does not lead gathers reports for the one that does (`gathering.py`) and refuses everything else with
`NotLeader`; nodes and clients try the next address they know. When a
term ends its connections are closed, so that everybody looks for the new leader at once. With the embedded store
there is nobody else, and nothing to go on with when that has failed: the process ends.
"""

import asyncio
from collections.abc import Awaitable

from varlog.base.errors import NotLeader, Unavailable, Unsupported, VarlogError
from varlog.ports import ElectiveStore, World
from varlog.ports.disk import DiskFailed
from varlog.repository import keys
from varlog.repository.catalog import Catalog
from varlog.repository.config import RepositoryConfig
from varlog.repository.gathering import Gatherer
from varlog.repository.term import Term
from varlog.runtime.scope import Scope
from varlog.transport.peer import Handlers, Request, Server, serve
from varlog.transport.tcp import advertised
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

ELECTION = "repository"
FOLLOWS_S = 0.3
"""A start that has not brought the lead in so long has brought a follower."""
PAUSE_S = 0.2
"""After a term that failed, before the next try."""


class Repository:
    """One metadata repository. `start` it, wait for whatever the caller likes, `close` it."""

    def __init__(self, world: World, store: ElectiveStore, config: RepositoryConfig) -> None:
        self._world = world
        self._store = store
        self._config = config
        self._scope = Scope(self._defect)
        self._term: Term | None = None
        self._cluster_id = ""
        """Once it is known."""
        self._gatherer = Gatherer(world, store, ELECTION, lambda: self.address)
        self._server: Server | None = None
        self._settled = asyncio.Event()
        """It has led, or another one does."""
        self._failed: asyncio.Future[VarlogError] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Serve; returns when this repository leads, or when another does."""
        self._server = await serve(self._world, self._config.listen, self._handlers())
        self._scope.spawn(self._campaign(), name="campaign")
        self._failed.add_done_callback(lambda _: self._settled.set())
        timer = self._world.clock.call_later(FOLLOWS_S, self._settled.set)
        try:
            await self._settled.wait()
        finally:
            timer.cancel()
        if self._failed.done():
            raise self._failed.result()

    @property
    def address(self) -> str:
        """By which others reach it."""
        if self._server is None:
            raise Unavailable("the repository has not been started")
        return advertised(self._config.advertise, self._server.address)

    @property
    def catalog(self) -> Catalog:
        """Of the present term; raises `NotLeader` in those of others."""
        if self._term is None:
            raise NotLeader("this repository does not lead")
        return self._term.catalog

    @property
    def cluster_id(self) -> str:
        return self.catalog.cluster_id

    async def wait_failed(self) -> VarlogError:
        """Returns only if this repository can no longer work (its store failed), with the reason."""
        return await asyncio.shield(self._failed)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
        await self._scope.close()
        await self._store.close()

    def _defect(self, error: BaseException) -> None:
        if not self._failed.done():
            told = error if isinstance(error, VarlogError) else VarlogError(f"internal error: {error!r}")
            self._failed.set_result(told)
        if not isinstance(error, VarlogError):
            raise error

    # ------------------------------------------------------------ leading

    async def _campaign(self) -> None:
        """For ever: lead whenever nobody else does."""
        while True:
            gathering = self._scope.spawn(self._gatherer.run(), name="gather reports")
            try:
                leadership = await self._store.elect(ELECTION, self.address)
            except DiskFailed:
                raise
            except VarlogError:
                await self._world.clock.sleep(PAUSE_S)
                continue
            finally:
                gathering.cancel()
            term = Term(self._world, self._store.fenced(leadership), leadership, self._config)
            lost = self._scope.spawn(leadership.wait_lost(), name="wait for the end of the lead")
            try:
                await self._lead(term, lost)
            finally:
                self._term = None
                lost.cancel()
                await term.close()
                self._hang_up()
                await leadership.resign()
            await self._world.clock.sleep(PAUSE_S)

    async def _lead(self, term: Term, lost: "asyncio.Task[None]") -> None:
        """Until the lead is lost or the term has failed; raises what no other term could mend."""
        try:
            await term.start()
        except DiskFailed:
            raise
        except VarlogError:
            return  # the store is away: another try after a pause
        self._term = term
        self._settled.set()
        over = asyncio.Event()
        lost.add_done_callback(lambda _: over.set())
        term.failed.add_done_callback(lambda _: over.set())
        await over.wait()
        if term.failed.done() and isinstance(term.failed.result(), DiskFailed):
            raise term.failed.result()

    def _hang_up(self) -> None:
        """Whoever was connected has to find the next leader."""
        if self._server is not None:
            for peer in self._server.peers:
                peer.close()

    # ------------------------------------------------------------ serving

    def _handlers(self) -> Handlers:
        return dict.fromkeys(Method, self._dispatch)

    async def _hello(self, request: Request) -> None:
        """Also in terms of others."""
        if not self._cluster_id:
            found = await self._store.get(keys.CLUSTER)
            if found is None:
                raise NotLeader("this cluster has not begun yet: no repository has led it")
            self._cluster_id = found.value.decode()
        request.reply(pb.HelloReply(cluster_id=self._cluster_id))

    def _dispatch(self, request: Request) -> Awaitable[None] | None:
        if request.method == Method.HELLO:
            return self._hello(request)
        term = self._term
        if term is None:
            if request.pushed:
                if request.method == Method.REPORT:
                    self._gatherer.take(request.message)
                return None
            raise NotLeader("this repository does not lead; ask another")
        handler = term.handlers.get(request.method)
        if handler is None:
            raise Unsupported(f"{request.method.name} is not served here")
        return handler(request)
