"""A log goes on with fewer copies while there are no nodes for more, and makes up for it when there are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.servers import Servers, run, servers

import varlog

KINDS: list[dict[str, Any]] = [
    {"ordering": "cut"},
    {"ordering": "cut", "streams": 3},
    {"ordering": "sequencer"},
    {"ordering": "sequencer", "streams": 2, "unit": 2},
    {"ordering": "leader"},
    {"ordering": "leader", "replication": "chain"},
]


@asynccontextmanager
async def log_of(folder: Path, nodes: int, **kind: Any) -> AsyncIterator[tuple[Servers, varlog.Log]]:
    async with (
        servers(folder, nodes=nodes, lost_ms=200) as cluster,
        varlog.connect(f"varlog://{cluster.repository_address}") as client,
    ):
        yield cluster, await client.create_log("orders", **kind)


def members_of(info: varlog.LogDescription) -> list[int]:
    """Of each open stream how many there are."""
    return [len(stream.members) for stream in info.chain[-1].streams if stream.writable]


async def payloads(log: varlog.Log) -> list[bytes]:
    return [entry.payload async for entry in log.subscribe(1, wait=False)]


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_with_a_node_for_each_copy_the_loss_of_one_costs_a_copy(
    tmp_path: Path, kind: dict[str, Any], place: str
) -> None:
    """When it is back, entries have as many copies again as are wanted."""

    async def story() -> None:
        async with log_of(tmp_path, 3, replicas=3, **kind) as (cluster, log):
            assert (await log.append(b"a")).glsn == 1
            members = (await log.info()).chain[0].streams[0].members
            lost = members[0 if place == "first" else -1]
            address = cluster.nodes[lost].address
            await cluster.stop_node(lost)
            assert (await log.append(b"b")).glsn == 2
            assert (await log.read(1)).payload == b"a"
            assert await log.tail() == 2
            while members_of(info := await log.info()) != [2] * info.streams:
                await asyncio.sleep(0.01)
            assert (info.replicas, info.ack) == (3, 2)
            assert all(lost not in stream.members for stream in info.chain[-1].streams if stream.writable)
            await cluster.start_node(lost, listen=address)
            while members_of(info := await log.info()) != [3] * info.streams:
                await asyncio.sleep(0.01)
            assert info.chain[-1].ack == (2 if info.chain[-1].replication == "broadcast" else 3)
            while any(len(stream.members) < 3 for part in info.chain for stream in part.streams):
                await asyncio.sleep(0.01)  # what was taken with two members has a third copy, too
                info = await log.info()
            assert (await log.append(b"c")).glsn == 3
            assert await payloads(log) == [b"a", b"b", b"c"]

    run(story())


def test_with_fewer_than_it_may_go_on_with_a_log_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with log_of(tmp_path, 3, replicas=3, ordering="sequencer", ack=3) as (cluster, log):
            await log.append(b"a")
            lost = (await log.info()).chain[0].streams[0].members[-1]
            address = cluster.nodes[lost].address
            await cluster.stop_node(lost)
            with pytest.raises((varlog.Timeout, varlog.OutcomeUnknown)):
                await log.append(b"b", timeout=1.0)
            assert len((await log.info()).chain) == 1
            await cluster.start_node(lost, listen=address)
            assert (await log.append(b"c")).glsn >= 2

    run(story())


def test_two_nodes_of_which_one_fails_go_on_as_one_if_that_is_allowed(tmp_path: Path) -> None:
    """The figure of the design, append with a failed node: two storage nodes, and f = 1."""

    async def story() -> None:
        async with log_of(tmp_path, 2, replicas=2, ordering="sequencer", ack=1) as (cluster, log):
            assert (await log.append(b"a")).glsn == 1
            members = (await log.info()).chain[0].streams[0].members
            await cluster.stop_node(members[0])
            assert (await log.append(b"b")).glsn == 2
            assert (await log.info()).chain[-1].streams[0].members == members[1:]
            assert await payloads(log) == [b"a", b"b"]

    run(story())


def test_what_drains_gets_no_copy_of_what_has_fewer_than_it_wants(tmp_path: Path) -> None:
    async def story() -> None:
        async with log_of(tmp_path, 3, replicas=3, ordering="sequencer") as (cluster, log):
            await log.append(b"a")
            async with varlog.connect(f"varlog://{cluster.repository_address}") as admin:
                await admin.drain_node(2)
                while (await log.info()).chain[-1].streams[0].members.count(2):
                    await asyncio.sleep(0.01)
                await log.append(b"b")
                await log.reconfigure(roll=True)
                await asyncio.sleep(1.0)  # the rebuilder looks every few tenths of a second
                assert [2 in stream.members for part in (await log.info()).chain for stream in part.streams] == [
                    True,
                    False,
                    False,
                ]
                await admin.drain_node(2, undo=True)
                while any(len(part.streams[0].members) < 3 for part in (await log.info()).chain):
                    await asyncio.sleep(0.01)
                assert await payloads(log) == [b"a", b"b"]

    run(story())
