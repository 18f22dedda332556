"""One term of a leading repository: the catalog, the cuts and the nodes, as long as it leads.

A term begins with what the store has and ends when the lead is lost or a commit fails in a way that leaves
open whether it was applied. Nothing of it outlives it: the next leader, be it this process again, reads the
truth from the store. What a term writes is fenced, so one that is over can neither change nor announce anything.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from varlog.base.errors import NotLeader, VarlogError
from varlog.ports import Leadership, MetadataStore, Transaction, World
from varlog.ports.metadata import Change, Versioned
from varlog.repository.absences import Absences
from varlog.repository.catalog import REFUSED, Catalog
from varlog.repository.changes import Changes
from varlog.repository.comparer import Comparer
from varlog.repository.config import RepositoryConfig
from varlog.repository.elections import Elections
from varlog.repository.freshness import Freshness
from varlog.repository.healer import LOOK_S, Healer
from varlog.repository.links import NodeLinks
from varlog.repository.logs import Logs
from varlog.repository.orderer import WINDOW, Orderer
from varlog.repository.positions import Positions
from varlog.repository.rebuilder import Rebuilder
from varlog.repository.reconfigure import Reconfigurer
from varlog.repository.retention import Retention
from varlog.repository.roller import Roller
from varlog.repository.service import Service
from varlog.repository.showing import Showing
from varlog.runtime.scope import Scope
from varlog.transport.peer import Handlers


class Term:
    """`start` it; it has failed once `failed` is done."""

    def __init__(self, world: World, store: MetadataStore, leadership: Leadership, config: RepositoryConfig) -> None:
        self.failed: asyncio.Future[VarlogError] = asyncio.get_running_loop().create_future()
        """With the reason, once this term can do nothing more."""
        self._scope = Scope(self._defect)
        kept = _Watched(store, self._fail)
        changes = Changes()
        self.catalog = Catalog(kept, world.random)
        window = 1 if leadership.sole else WINDOW
        self._orderer = Orderer(kept, world.clock, lambda cuts: self._links.announce(cuts), window)
        self._links = NodeLinks(world.clock, self._scope, self.catalog, self._orderer, config.silent_ms / 1000)
        parts = (world.clock, self.catalog, self._orderer, self._links)
        absences, lost_s = Absences(world.clock, self.catalog, self._links, LOOK_S), config.lost_ms / 1000
        self._links.next_step = Showing(world.clock, self._links, absences, lost_s).next_step
        reconfigurer = Reconfigurer(*parts)
        self._healer = Healer(*parts, self._scope, reconfigurer, changes, absences, lost_s)
        self._roller = Roller(world.clock, self.catalog, self._links, reconfigurer, changes)
        positions = Positions(self._orderer, self._links)
        self._retention = Retention(world.clock, self.catalog, self._links, positions, config.retention_ms / 1000)
        self._elections = Elections(world.clock, self.catalog, self._links, self._scope, reconfigurer, changes)
        self._rebuilder = Rebuilder(
            world.clock, self._scope, self.catalog, self._orderer, self._links, config.rebuild_ms / 1000
        )
        self._comparer = Comparer(world.clock, self.catalog, self._links)
        freshness = Freshness(kept, leadership, self._scope)
        service = Service(
            world,
            config,
            self._scope,
            self.catalog,
            self._orderer,
            self._links,
            Logs(*parts, reconfigurer, changes),
            self._healer,
            self._rebuilder,
            self._comparer,
            self._roller,
            self._retention,
            positions,
            changes,
            freshness,
            self._elections,
        )
        self.handlers: Handlers = service.handlers()

    async def start(self) -> None:
        """Read everything back, then order."""
        await self.catalog.load()
        for log in list(self.catalog.logs.values()):
            await self._orderer.load(log)
        for _ in range(self._orderer.window):
            self._scope.spawn(self._orderer.run(), name="cuts")
        self._scope.spawn(self._orderer.drop_idle(), name="drop cuts")
        self._scope.spawn(self._healer.run(), name="healer")
        self._scope.spawn(self._rebuilder.run(), name="rebuilder")
        self._scope.spawn(self._roller.run(), name="roller")
        self._scope.spawn(self._elections.run(), name="elections")
        self._scope.spawn(self._comparer.run(), name="comparer")
        self._scope.spawn(self._retention.run(), name="retention")

    async def close(self) -> None:
        await self._scope.close()

    def _fail(self, error: VarlogError) -> None:
        self._links.stop()
        if not self.failed.done():
            self.failed.set_result(error)

    def _defect(self, error: BaseException) -> None:
        """A loop ended: nothing more can be ordered here, so this process must not pretend."""
        self._fail(error if isinstance(error, VarlogError) else VarlogError(f"internal error: {error!r}"))
        if not isinstance(error, VarlogError):
            raise error


class _Watched:
    """The term's store: a commit whose outcome is not certain ends the term, whoever asked for it.

    Nothing is given to the store from then on: it would be built on what may not be there.
    """

    def __init__(self, store: MetadataStore, fail: Callable[[VarlogError], None]) -> None:
        self._store = store
        self._fail = fail
        self._failed: VarlogError | None = None

    async def get(self, key: str) -> Versioned | None:
        return await self._store.get(key)

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return await self._store.scan(prefix)

    def watch(self, prefix: str) -> AsyncIterator[Change]:
        return self._store.watch(prefix)

    async def close(self) -> None:
        await self._store.close()

    async def commit(self, transaction: Transaction) -> bool:
        if self._failed is not None:
            raise NotLeader(f"this repository has stopped leading: {self._failed.message}")
        try:
            return await self._store.commit(transaction)
        except REFUSED:
            raise
        except VarlogError as error:
            self._failed = error
            self._fail(error)
            raise
