"""A whole cluster in this process: for tests, notebooks and first steps.

    async with varlog.local_cluster(nodes=3) as cluster:
        log = await cluster.create_log("orders")

The repository and the nodes are the real ones, on real files and loopback sockets; only the processes
are missing. In a temporary folder unless one is given.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from varlog.base.errors import InvalidArgument
from varlog.client import Cluster, connect
from varlog.metadata.sqlite import SqliteStore
from varlog.node import NodeConfig, StorageNode
from varlog.ports import World
from varlog.repository import Repository, RepositoryConfig
from varlog.runtime.disk import RealDisk
from varlog.runtime.timeout import deadline
from varlog.transport.world import real_world

START_TIMEOUT_S = 20.0
POLL_S = 0.005


@asynccontextmanager
async def local_cluster(
    nodes: int = 3, *, folder: str | Path | None = None, file_bytes: int = 16 << 20
) -> AsyncIterator[Cluster]:
    """A connected cluster of one repository and some nodes; ends with the block. A given folder is kept."""
    if not 1 <= nodes <= 64:
        raise InvalidArgument(f"a local cluster has 1 to 64 nodes, not {nodes}")
    async with AsyncExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(TemporaryDirectory(prefix="varlog-", ignore_cleanup_errors=True))
        world = real_world()
        repository = await _start_repository(world, Path(folder) / "repository")
        stack.push_async_callback(repository.close)
        started = []
        for number in range(1, nodes + 1):
            node = await _start_node(world, Path(folder) / f"node{number}", repository.address, file_bytes)
            stack.push_async_callback(node.close)
            started.append(node)
        async with deadline(world.clock, START_TIMEOUT_S):
            while not all(node.connected for node in started):
                await world.clock.sleep(POLL_S)
        yield await stack.enter_async_context(connect(f"varlog://{repository.address}", world=world))


async def _start_repository(world: World, folder: Path) -> Repository:
    store = await SqliteStore.open(folder)
    repository = Repository(world, store, RepositoryConfig(listen="127.0.0.1:0"))
    await repository.start()
    return repository


async def _start_node(world: World, folder: Path, repository: str, file_bytes: int) -> StorageNode:
    config = NodeConfig(repositories=(repository,), file_bytes=file_bytes)
    node = StorageNode(world, [RealDisk(folder)], config)
    await node.start()
    return node
