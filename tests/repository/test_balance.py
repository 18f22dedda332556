"""Leaders, primaries and new segments go to the least loaded nodes (J2)."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest
from tests.servers import TIMEOUT_S, Servers, run, servers

import varlog
from varlog.base.errors import Unavailable
from varlog.repository import standing

LOGS = 6


def connected(cluster: Servers) -> varlog.Cluster:
    return varlog.connect(f"varlog://{cluster.repository_address}")


def spread(counts: Counter[int], nodes: list[int]) -> int:
    """How many more the busiest has than the idlest."""
    found = [counts[node] for node in nodes]
    return max(found) - min(found)


async def loads(client: varlog.Cluster) -> tuple[Counter[int], Counter[int], list[varlog.LogDescription]]:
    """Of how many open streams each node is a member, and how many it leads or is the primary of."""
    members: Counter[int] = Counter()
    primaries: Counter[int] = Counter()
    logs = await client.logs()
    for log in logs:
        for stream in log.chain[-1].streams:
            if stream.writable:
                members.update(stream.members)
                primaries[stream.members[0]] += 1
    return members, primaries, logs


def test_rolls_and_failovers_spread_open_streams_and_their_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "FIRST_S", 0.0)  # who is back is as good as the others at once

    async def story() -> None:
        async with servers(tmp_path, nodes=5, lost_ms=100) as cluster, connected(cluster) as client:
            for number in range(LOGS):
                ordering = ("leader", "cut")[number % 2]
                await client.create_log(f"log{number}", ordering=ordering, replicas=3)
            everybody = [1, 2, 3, 4, 5]
            for _ in range(3):
                members, primaries, logs = await loads(client)
                assert spread(members, everybody) <= 1
                assert spread(primaries, everybody) <= 1
                await asyncio.gather(*(client.log(log.name).reconfigure(roll=True) for log in logs))
            await cluster.stop_node(2)
            left = [1, 3, 4, 5]
            while (await loads(client))[0][2]:
                await asyncio.sleep(0.05)
            members, primaries, logs = await loads(client)
            assert members.total() == 3 * LOGS
            assert spread(members, left) <= 2, members
            assert spread(primaries, left) <= 2, primaries
            await cluster.start_node(2)  # it comes back with all that has ended, and nothing to do
            for log in logs:
                await client.log(log.name).reconfigure(roll=True)
            members, primaries, _ = await loads(client)
            assert spread(members, everybody) <= 1, members
            assert spread(primaries, everybody) <= 1, primaries

    run(story())


def granting(logs: list[varlog.LogDescription]) -> Counter[int]:
    """For how many logs each node grants positions: for those of which it is the head of the first stream."""
    return Counter(log.chain[-1].streams[0].members[0] for log in logs)


def test_heads_of_chains_and_who_grants_positions_are_spread_also_by_changes_at_the_same_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4, lost_ms=100) as cluster, connected(cluster) as client:

            async def create(number: int) -> None:
                await client.create_log(f"log{number}", ordering="sequencer", replicas=3, streams=2)

            await asyncio.gather(*map(create, range(8)))
            everybody = [1, 2, 3, 4]
            for _ in range(3):
                members, heads, logs = await loads(client)
                assert spread(members, everybody) <= 1, members
                assert spread(heads, everybody) <= 1, heads
                assert spread(granting(logs), everybody) <= 1, granting(logs)
                await asyncio.gather(*(client.log(log.name).reconfigure(roll=True) for log in logs))
            await cluster.stop_node(2)
            left = [1, 3, 4]
            while (await loads(client))[0][2]:
                await asyncio.sleep(0.05)
            members, heads, logs = await loads(client)
            assert members.total() == 3 * 2 * 8
            assert spread(members, left) == 0, "all are on all"
            assert spread(heads, left) <= 2, heads
            assert spread(granting(logs), left) <= 2, granting(logs)
            for log in logs:
                await client.log(log.name).append(b"x")

    run(story())


@pytest.mark.parametrize("ordering", ["cut", "leader", "sequencer"])
def test_a_segment_that_has_grown_is_followed_on_the_nodes_with_least_to_do_and_nothing_moves(
    tmp_path: Path, ordering: str
) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4) as cluster, connected(cluster) as client:
            log = await client.create_log("grows", ordering=ordering, replicas=2, roll_bytes=1 << 20)
            first = (await log.info()).chain[0].streams[0].members
            for number in range(3):  # these make them busy
                other = await client.create_log(f"other{number}", replicas=2)
                await other.reconfigure(members=list(first), replicas=2)
            payloads = [b"%d" % number + bytes(1 << 16) for number in range(20)]
            for payload in payloads:
                await log.append(payload)
            async with asyncio.timeout(TIMEOUT_S):
                while len((info := await log.info()).chain) == 1:
                    await asyncio.sleep(0.02)
            old, new = info.chain
            assert old.streams[0].members == first
            assert sorted((*first, *new.streams[0].members)) == [1, 2, 3, 4], "they had nothing to do"
            assert (await log.append(b"last")).glsn == len(payloads) + 1
            assert [entry.payload async for entry in log.subscribe(1, wait=False)] == [*payloads, b"last"]
            held = [
                (replica.id.segment, number)
                for number, node in cluster.nodes.items()
                for replica in node.replicas.all()
                if replica.id.log == info.id
            ]
            assert sorted(held) == sorted(
                [*((1, node) for node in first), *((2, node) for node in new.streams[0].members)]
            )

    run(story())


def test_a_node_that_cannot_open_replicas_is_not_chosen_again_and_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=4) as cluster, connected(cluster) as client:

            async def refuse(*_: object) -> NoReturn:
                raise Unavailable("too many open files")

            cluster.nodes[1].replicas.create = refuse  # type: ignore[method-assign, assignment]
            with pytest.raises(Unavailable, match="too many open files"):
                await client.create_log("first", replicas=3)
            log = await client.create_log("second", replicas=3)
            assert sorted((await log.info()).chain[0].streams[0].members) == [2, 3, 4]

    run(story())
