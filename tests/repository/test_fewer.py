"""A log goes on with fewer copies while there are no nodes for more, and makes up for it when there are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.servers import Servers, run, servers

import varlog
from varlog.base.errors import Unavailable
from varlog.cli.describe import copies_of, log_row, missing_from
from varlog.ports.disk import DiskFailed
from varlog.repository import standing

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


async def made_up(cluster: Servers) -> None:
    """Nothing that has an entry lacks a copy any more."""
    async with varlog.connect(f"varlog://{cluster.repository_address}") as admin:
        while any(stream.trouble for stream in (await admin.status()).logs[0].streams):
            await asyncio.sleep(0.02)


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
            await made_up(cluster)  # what was taken with two members has a third copy, too
            info = await log.info()
            assert all(len(stream.members) == 3 for part in info.chain for stream in part.streams if stream.end_slot)
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
                while 2 in (await log.info()).chain[-1].streams[0].members:
                    await asyncio.sleep(0.01)
                await log.append(b"b")
                thin = (await log.reconfigure(roll=True)).chain[-2].epoch
                await asyncio.sleep(1.0)  # the rebuilder looks every few tenths of a second
                assert 2 not in (await log.info()).chain[thin - 1].streams[0].members
                await admin.drain_node(2, undo=True)
                while 2 not in (await log.info()).chain[thin - 1].streams[0].members:
                    await asyncio.sleep(0.01)
                assert await payloads(log) == [b"a", b"b"]

    run(story())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_node_that_opens_nothing_does_not_stop_a_log_that_has_enough_others(
    tmp_path: Path, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "FIRST_S", 60.0)

    async def story() -> None:
        async with log_of(tmp_path, 3, replicas=3, **kind) as (cluster, log):
            await log.append(b"a")
            sick = (await log.info()).chain[0].streams[0].members[-1]

            async def refuse(*_: object) -> NoReturn:
                raise Unavailable("too many open files")

            cluster.nodes[sick].replicas.create = refuse  # type: ignore[method-assign, assignment]
            for replica in cluster.nodes[sick].replicas.all():
                replica.fail(DiskFailed("an input or output error"))
            assert (await log.append(b"b")).glsn == 2
            while members_of(info := await log.info()) != [2] * info.streams:
                await asyncio.sleep(0.01)
            assert await payloads(log) == [b"a", b"b"]

    run(story())


@pytest.mark.parametrize("kind", [{"ordering": "cut"}, {"ordering": "leader"}], ids=str)
def test_a_node_that_opens_nothing_for_one_log_has_no_other_begin_anew(tmp_path: Path, kind: dict[str, Any]) -> None:
    """What has fewer copies than are wanted goes on as it is while there is no node for more that can be counted on."""
    refused = asyncio.Event()

    async def refuse(*_: object) -> NoReturn:
        refused.set()
        raise Unavailable("too many open files")

    async def story() -> None:
        async with (
            log_of(tmp_path, 3, replicas=3, **kind) as (cluster, log),
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            logs = [log, await client.create_log("others", replicas=3, **kind)]
            await cluster.stop_node(3)
            for each in logs:
                await each.append(b"a")
                while members_of(await each.info()) != [2]:
                    await asyncio.sleep(0.01)
            before = [(await each.info()).chain[-1] for each in logs]
            sick = await cluster.start_node(3)
            sick.replicas.create = refuse  # type: ignore[method-assign, assignment]
            await refused.wait()
            await asyncio.sleep(0.5)
            assert [(await each.info()).chain[-1] for each in logs] == before

    run(story())


@pytest.mark.parametrize("kind", [{"ordering": "cut"}, {"ordering": "sequencer"}], ids=str)
def test_a_log_that_waits_is_told_to_go_on_with_fewer(tmp_path: Path, kind: dict[str, Any]) -> None:
    async def story() -> None:
        async with log_of(tmp_path, 3, replicas=3, ack=3, **kind) as (cluster, log):
            await log.append(b"a")
            await cluster.stop_node(3)
            info = await log.reconfigure(ack=2)
            assert (info.replicas, info.ack, members_of(info)) == (3, 2, [2])
            assert (await log.append(b"b")).glsn == 2
            if info.ordering == "cut":
                assert members_of(await log.reconfigure(streams=3)) == [2, 2, 2]
            info = await log.reconfigure(ordering="leader")
            assert (info.replicas, info.ack, members_of(info)) == (3, 2, [2])
            info = await log.reconfigure(ordering="sequencer", streams=2)
            assert (info.replicas, info.ack, members_of(info)) == (3, 2, [2, 2])
            assert await payloads(log) == [b"a", b"b"]

    run(story())


def test_what_is_said_of_a_log_with_fewer_copies(tmp_path: Path) -> None:
    """It is open, not stalled; and once fewer are wanted nothing is missing."""

    async def story() -> None:
        async with log_of(tmp_path, 3, replicas=3, ordering="cut") as (cluster, log):
            await log.append(b"a")
            lost = (await log.info()).chain[0].streams[0].members[-1]
            await cluster.stop_node(lost)
            await log.append(b"b")
            async with varlog.connect(f"varlog://{cluster.repository_address}") as admin:
                cluster_status = await admin.status()
                [status] = cluster_status.logs
                assert [stream.trouble for stream in status.streams if stream.thin] == ["has 2 of 3 copies"]
                assert log_row(status)["state"] == "open"
                assert "1 of 3 copies of stream 2" in missing_from(status, cluster_status)
                assert copies_of(status.log) == "2 for now, 3 wanted, of which an acknowledgement needs 2"
                await log.reconfigure(replicas=2)
                await admin.remove_node(lost, force=True)
                cluster_status = await admin.status()
                [status] = cluster_status.logs
                assert [stream.trouble for stream in status.streams] == ["", "", ""]
                assert missing_from(status, cluster_status) == []
                assert copies_of(status.log) == "2, of which an acknowledgement needs 2"

    run(story())
