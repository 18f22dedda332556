"""Real nodes and a real repository in this process, spoken to in the raw protocol."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from varlog.metadata.sqlite import SqliteStore
from varlog.node import NodeConfig, StorageNode
from varlog.repository import Repository, RepositoryConfig
from varlog.runtime.disk import RealDisk
from varlog.transport.peer import Peer, Reply, connect
from varlog.transport.world import real_world
from varlog.wire.batch import encode_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

TIMEOUT_S = 60.0


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 3 * TIMEOUT_S))


class Servers:
    """A repository and nodes that can be stopped and started one by one; stopping closes files as they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = real_world()
        self.settings: dict[str, Any] = {}
        """Of every repository."""
        self.repository: Repository | None = None
        self.repository_address = "127.0.0.1:0"
        self.nodes: dict[int, StorageNode] = {}

    async def start_repository(self, **settings: Any) -> Repository:
        store = await SqliteStore.open(self.folder / "repository")
        config = RepositoryConfig(listen=self.repository_address, **(self.settings | settings))
        self.repository = Repository(self.world, store, config)
        await self.repository.start()
        self.repository_address = self.repository.address
        return self.repository

    async def stop_repository(self) -> None:
        assert self.repository is not None
        await self.repository.close()

    async def start_node(self, number: int, **settings: Any) -> StorageNode:
        config = NodeConfig(repositories=(self.repository_address,), file_bytes=1 << 20, **settings)
        node = StorageNode(self.world, [RealDisk(self.folder / f"node{number}")], config)
        await node.start()
        self.nodes[number] = node
        while not node.connected:
            await asyncio.sleep(0.005)
        return node

    async def stop_node(self, number: int) -> None:
        await self.nodes.pop(number).close()

    async def close(self) -> None:
        for number in list(self.nodes):
            await self.stop_node(number)
        if self.repository is not None:
            await self.repository.close()

    async def to_repository(self) -> Peer:
        return await connect(self.world, self.repository_address, {}, timeout=TIMEOUT_S)

    async def to_node(self, number: int) -> Peer:
        return await connect(self.world, self.nodes[number].address, {}, timeout=TIMEOUT_S)

    async def create_log(self, name: str = "orders", replicas: int = 3, streams: int = 1, ack: int = 0) -> pb.LogInfo:
        request = pb.CreateLogRequest(name=name, ordering="cut", replicas=replicas, streams=streams, ack=ack)
        peer = await self.to_repository()
        log = (await peer.call(Method.CREATE_LOG, request, timeout=TIMEOUT_S)).message
        assert isinstance(log, pb.LogInfo)
        peer.close()
        return log


@asynccontextmanager
async def servers(folder: Path, nodes: int = 3, **settings: Any) -> AsyncIterator[Servers]:
    folder.mkdir(exist_ok=True)
    made = Servers(folder)
    made.settings = settings
    await made.start_repository()
    try:
        for number in range(1, nodes + 1):
            await made.start_node(number)
        yield made
    finally:
        await made.close()


def batch(*payloads: bytes, producer: bytes = b"producer-one-16b", sequence: int = 0) -> bytes:
    return bytes(encode_batch(payloads, producer=producer, sequence=sequence))


async def append(peer: Peer, log: pb.LogInfo, data: bytes, stream: int = 1, timeout: float = TIMEOUT_S) -> Reply:
    request = pb.AppendRequest(log=log.id, segment=1, stream=stream)
    return await peer.call(Method.APPEND, request, [data], timeout=timeout)


async def read_parts(peer: Peer, log: pb.LogInfo, **start: Any) -> list[Reply]:
    request = pb.ReadRequest(log=log.id, segment=1, stream=start.pop("stream", 1), **start)
    return [part async for part in peer.stream(Method.READ, request, timeout=TIMEOUT_S)]
