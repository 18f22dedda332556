"""The repository process: joins the catalog, the orderer and the node links to a port and a store."""

import asyncio

from varlog.base.errors import Unavailable, VarlogError
from varlog.ports import MetadataStore, World
from varlog.repository.catalog import Catalog
from varlog.repository.config import RepositoryConfig
from varlog.repository.healer import Healer
from varlog.repository.links import NodeLinks
from varlog.repository.orderer import Orderer
from varlog.repository.rebuilder import Rebuilder
from varlog.repository.service import Service
from varlog.runtime.scope import Scope
from varlog.transport.peer import Server, serve


class Repository:
    """One metadata repository. `start` it, wait for whatever the caller likes, `close` it."""

    def __init__(self, world: World, store: MetadataStore, config: RepositoryConfig) -> None:
        self._world = world
        self._store = store
        self._config = config
        self._scope = Scope(self._defect)
        self._catalog = Catalog(store, world.random)
        self._orderer = Orderer(store, world.clock, lambda cuts: self._links.announce(cuts))
        self._links = NodeLinks(world.clock, self._scope, self._catalog, self._orderer, config.silent_ms / 1000)
        self._closing = asyncio.Lock()
        self._healer = Healer(
            world.clock, self._catalog, self._orderer, self._links, self._closing, config.lost_ms / 1000
        )
        self._rebuilder = Rebuilder(
            world.clock, self._scope, self._catalog, self._orderer, self._links, config.rebuild_ms / 1000
        )
        self._server: Server | None = None
        self._failed: asyncio.Future[VarlogError] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Read everything back, then serve."""
        await self._catalog.load()
        for log in list(self._catalog.logs.values()):
            await self._orderer.load(log)
        service = Service(
            self._world,
            self._config,
            self._scope,
            self._catalog,
            self._orderer,
            self._links,
            self._rebuilder,
            self._closing,
        )
        self._scope.spawn(self._orderer.run(), name="cuts")
        self._scope.spawn(self._orderer.drop_idle(), name="drop cuts")
        self._scope.spawn(self._healer.run(), name="healer")
        self._scope.spawn(self._rebuilder.run(), name="rebuilder")
        self._server = await serve(self._world, self._config.listen, service.handlers())

    @property
    def address(self) -> str:
        if self._server is None:
            raise Unavailable("the repository has not been started")
        return self._server.address

    @property
    def cluster_id(self) -> str:
        return self._catalog.cluster_id

    def _defect(self, error: BaseException) -> None:
        """The cut loop ended: nothing more can be ordered here, so this process must not pretend."""
        if not self._failed.done():
            told = error if isinstance(error, VarlogError) else VarlogError(f"internal error: {error!r}")
            self._failed.set_result(told)
        if not isinstance(error, VarlogError):
            raise error

    async def wait_failed(self) -> VarlogError:
        """Returns only if this repository can no longer work (its store failed), with the reason."""
        return await asyncio.shield(self._failed)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
        await self._scope.close()
        await self._store.close()
