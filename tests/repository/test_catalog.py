"""What the catalog commits, on a real store: no more than has changed, and never more at once than a store takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from tests.servers import TIMEOUT_S, run, servers

from varlog.base.errors import Conflict, NoSpace, TooLarge
from varlog.base.ids import LogId, NodeId
from varlog.metadata.sqlite import SqliteStore
from varlog.ports import Transaction
from varlog.repository import keys
from varlog.repository.catalog import Catalog, members_of
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

ETCD_BYTES = 3 << 19
"""More than this etcd does not take at once."""


class Narrow(SqliteStore):
    """Takes no more at once than etcd, and for a while maybe nothing."""

    committed: list[Transaction]
    left: int | None = None
    """So many commits are taken yet; None: any number."""

    async def commit(self, transaction: Transaction) -> bool:
        if sum(map(len, transaction.put.values())) > ETCD_BYTES:
            raise TooLarge("a metadata transaction is too large", ETCD_BYTES)
        if self.left == 0:
            raise NoSpace("the store is full")
        if self.left is not None:
            self.left -= 1
        self.committed.append(transaction.copy())
        return await super().commit(transaction)


@asynccontextmanager
async def loaded(folder: Path) -> AsyncIterator[tuple[Narrow, Catalog]]:
    store = await Narrow.open(folder)
    assert isinstance(store, Narrow)
    store.committed = []
    try:
        catalog = Catalog(store, Random(1))
        await catalog.load()
        yield store, catalog
    finally:
        await store.close()


def asking(node: int, boot: int = 1, free: int = 1 << 30, path: str = "/data") -> pb.RegisterRequest:
    volumes = [pb.Volume(path=path, free_bytes=free, total_bytes=1 << 40)]
    return pb.RegisterRequest(
        node_id=node, incarnation=f"i{node}", address=f"10.0.0.{node}:1", boot=boot, volumes=volumes
    )


def ended(number: LogId, streams: int) -> pb.LogInfo:
    """A log with very many ended streams, all of them on nodes 1 and 2."""
    made = [pb.StreamInfo(id=each, members=[1, 2], state=pb.STREAM_FINALIZED) for each in range(1, streams + 1)]
    return pb.LogInfo(id=number, name=f"log{number}", chain=[pb.SegmentInfo(epoch=1, streams=made)])


def nothing() -> None:
    pass


# ---------------------------------------------------------------- nodes that come back


def test_a_node_whose_connection_broke_comes_back_though_the_store_is_full(tmp_path: Path) -> None:
    async def story() -> None:
        async with loaded(tmp_path) as (store, catalog):
            await catalog.register(asking(1))
            await catalog.drain_node(NodeId(1), True)
            store.left = 0
            again = await catalog.register(asking(1, free=7))
            assert (again.id, again.draining, again.volumes[0].free_bytes) == (1, True, 7)
            assert catalog.nodes[NodeId(1)] == again, "what is shown of one that is away is how full it was last"
            for other in (asking(1, boot=2), asking(1, path="/other")):
                with pytest.raises(NoSpace):
                    await catalog.register(other)
            store.left = None
            await catalog.register(asking(1, boot=2))
        async with loaded(tmp_path) as (_, catalog):
            assert (catalog.nodes[NodeId(1)].boot, catalog.nodes[NodeId(1)].draining) == (2, True)

    asyncio.run(story())


# ---------------------------------------------------------------- nodes that go


@asynccontextmanager
async def crowded(folder: Path) -> AsyncIterator[tuple[Narrow, Catalog]]:
    """Nodes 1 and 2 have ended streams of more logs than one transaction takes; some logs are gone."""
    async with loaded(folder) as (store, catalog):
        for node in (1, 2):
            await catalog.register(asking(node))
        for _ in range(6):
            await catalog.add_log(ended(await catalog.reserve_log([NodeId(1)]), 30_000))
        for nodes in ([1, 2], [1], [2]):
            await catalog.reserve_log([NodeId(node) for node in nodes])
        store.committed.clear()
        yield store, catalog


def on_two(catalog: Catalog) -> list[int]:
    return [log for log, info in catalog.logs.items() if 2 in members_of(info)]


def test_a_node_leaves_more_than_one_transaction_takes(tmp_path: Path) -> None:
    async def story() -> None:
        async with crowded(tmp_path) as (store, catalog):
            told: list[tuple[int, int]] = []
            catalog.left = lambda log, node: told.append((log.id, node))
            assert sum(info.ByteSize() for info in catalog.logs.values()) > ETCD_BYTES
            await catalog.remove_node(NodeId(2), nothing)
            assert told == [(log, 2) for log in catalog.logs]
            assert len(store.committed) > 1
            assert keys.removed(NodeId(2)) in store.committed[-1].put
            named = [key for each in store.committed for key in (*each.put, *each.delete) if key.startswith(keys.GONE)]
            assert named == [keys.gone(LogId(7)), keys.gone(LogId(9))], "those that did not name it stay as they are"
        async with loaded(tmp_path) as (_, catalog):
            assert (on_two(catalog), list(catalog.nodes), catalog.removed) == ([], [1], {2: "i2"})
            assert {log: list(nodes) for log, nodes in catalog.gone.items()} == {7: [1], 8: [1]}

    asyncio.run(story())


def test_a_removal_that_ends_half_way_can_be_asked_for_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with crowded(tmp_path) as (store, catalog):
            told: list[int] = []
            catalog.left = lambda log, _: told.append(log.id)
            store.left = 1
            with pytest.raises(NoSpace):
                await catalog.remove_node(NodeId(2), nothing)
            there = on_two(catalog)
            assert 0 < len(there) < 6
            assert told == [log for log in catalog.logs if log not in there], "as far as it is in the store"
            store.left = None
            asked = 0

            def refuse() -> None:
                nonlocal asked
                asked += 1
                if asked == 3:
                    raise Conflict("who has a whole copy has left")

            with pytest.raises(Conflict):
                await catalog.remove_node(NodeId(2), refuse)
            assert len(on_two(catalog)) < len(there)
            there = on_two(catalog)
        async with loaded(tmp_path) as (_, catalog):
            assert (on_two(catalog), list(catalog.nodes), catalog.removed) == (there, [1, 2], {})
            assert [log for log, nodes in catalog.gone.items() if 2 in nodes] == [7, 9]
            await catalog.remove_node(NodeId(2), nothing)
            assert (on_two(catalog), list(catalog.nodes), list(catalog.gone)) == ([], [1], [7, 8])

    asyncio.run(story())


# ---------------------------------------------------------------- logs that are gone


def test_a_node_that_lost_its_replicas_of_a_removed_log_is_not_waited_for_once_it_has_listed_all(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await cluster.create_log("orders")
            await cluster.stop_node(2)
            for file in (tmp_path / f"node2/replicas/{log.id}.1.1").iterdir():
                file.unlink()
            (tmp_path / f"node2/replicas/{log.id}.1.1").rmdir()
            peer = await cluster.to_repository()
            await peer.call(Method.REMOVE_LOG, pb.RemoveLogRequest(name="orders"), timeout=TIMEOUT_S)
            assert cluster.repository is not None
            catalog = cluster.repository.catalog
            while list(catalog.gone[LogId(log.id)]) != [2]:
                await asyncio.sleep(0.02)
            await cluster.start_node(2)
            while catalog.gone:
                await asyncio.sleep(0.02)

    run(story())


def test_a_node_that_never_had_any_of_a_removed_log_is_forgotten_when_it_lists_what_it_has(tmp_path: Path) -> None:
    """Without a restart: its list had not come yet when the log was removed."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            log = await cluster.create_log("orders", replicas=2)
            assert cluster.repository is not None
            catalog = cluster.repository.catalog
            members = log.chain[0].streams[0].members
            [other] = [node for node in catalog.nodes if node not in members]
            assert cluster.repository._term is not None
            links = cluster.repository._term._links
            links._links[other].listed, links._links[other].owes = None, True
            await catalog.remove_log(catalog.logs[LogId(log.id)])
            assert other in catalog.gone[LogId(log.id)]
            while catalog.gone:
                await asyncio.sleep(0.02)

    run(story())


def test_a_journal_of_an_older_record_is_one_in_all_its_segments(tmp_path: Path) -> None:
    async def story() -> None:
        async with loaded(tmp_path) as (store, catalog):
            number = await catalog.reserve_log([NodeId(1)])
            chain = [pb.SegmentInfo(epoch=epoch, ordering="leader") for epoch in (1, 2)]
            await catalog.add_log(pb.LogInfo(id=number, name="wal", ordering="leader", journal=True, chain=chain))
            again = Catalog(store, Random(2))
            await again.load()
            assert [segment.journal for segment in again.log(number).chain] == [True, True]

            def switch(log: pb.LogInfo) -> None:
                log.journal = False
                log.chain.add(epoch=3, ordering="cut")

            await again.change_log(number, switch)
            await catalog.load()
            assert [segment.journal for segment in catalog.log(number).chain] == [True, True, False]

    run(story())
