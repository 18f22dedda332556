"""A node that many logs have as a member dies: real servers, in a simulated cluster, on virtual time."""

from typing import Any

import pytest
from tests.sim.world import Cluster

import varlog
from varlog.base.ids import LogId
from varlog.client import connect
from varlog.repository.reconfigure import Reconfigurer
from varlog.sim.host import Host, Process

LOGS = 24
POLL_S = 0.01
LOST_S = 10.0
"""Until a node that is silent counts as lost, with much to spare."""
REPLACED_S = 0.15
"""What all of them may take, from the moment in which the first has another member."""


async def members(client: varlog.Cluster) -> dict[str, list[int]]:
    """Of each log, those of its open streams."""
    return {
        log.name: [node for stream in log.chain[-1].streams if stream.writable for node in stream.members]
        for log in await client.logs()
    }


async def number_of(client: varlog.Cluster, host: Host) -> int:
    (found,) = [node.id for node in await client.nodes() if node.address.startswith(f"{host.name}:")]
    return found


@pytest.mark.parametrize("ordering", ["cut", "leader", "sequencer"])
def test_all_logs_of_a_node_that_is_stopped_get_others_in_its_place_together(ordering: str) -> None:
    """It keeps its connections, and says nothing any more. Whoever waited for it, or healed one log after the other,
    would take seconds."""
    world = Cluster(nodes=5, lost_ms=1000)

    async def work(process: Process) -> None:
        clock = process.clock
        async with connect(world.servers.url, world=process.world) as client:
            logs = [await client.create_log(f"log{number}", ordering=ordering, replicas=3) for number in range(LOGS)]
            for log in logs:
                await log.append(b"before")
            lost = await number_of(client, world.servers.nodes[0])
            hurt = [name for name, nodes in (await members(client)).items() if lost in nodes]
            assert len(hurt) > LOGS / 2
            world.servers.nodes[0].pause(clock_stops=False)
            stopped = clock.now()
            healed: dict[str, float] = {}
            while len(healed) < len(hurt):
                await clock.sleep(POLL_S)
                assert clock.now() - stopped < LOST_S
                now = await members(client)
                for name in hurt:
                    if name not in healed and lost not in now[name]:
                        healed[name] = clock.now()
            assert max(healed.values()) - min(healed.values()) < REPLACED_S
            counts = [sum(nodes.count(node) for nodes in now.values()) for node in range(1, 6) if node != lost]
            assert max(counts) - min(counts) <= 2, "what is placed at the same time is spread all the same"
            for log in logs:
                await log.append(b"after")

    world.run(work)


def test_logs_that_take_no_appends_are_healed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose leader is lost; the others have as many members left as have to acknowledge."""
    world = Cluster(nodes=4, lost_ms=1000)
    order: list[int] = []
    plain = Reconfigurer.next_segment

    async def next_segment(self: Reconfigurer, number: LogId, *arguments: Any, **settings: Any) -> None:
        order.append(number)
        await plain(self, number, *arguments, **settings)

    monkeypatch.setattr(Reconfigurer, "next_segment", next_segment)

    async def work(process: Process) -> None:
        async with connect(world.servers.url, world=process.world) as client:
            for number in range(LOGS):
                await client.create_log(f"log{number}", ordering="leader", replicas=3)
            lost = await number_of(client, world.servers.nodes[0])
            members = {log.id: log.chain[-1].streams[0].members for log in await client.logs()}
            hurt = [log for log, nodes in members.items() if lost in nodes]
            led = [log for log in hurt if members[log][0] == lost]
            assert hurt[: len(led)] != led, "as they come they would not be the first"
            world.servers.nodes[0].crash(power_loss=False)
            while len(order) < len(hurt):
                await process.clock.sleep(POLL_S)
            assert sorted(order[: len(led)]) == led

    world.run(work)
