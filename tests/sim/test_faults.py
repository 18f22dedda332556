"""Faults strike at their rates, and healing leaves nothing of them."""

import asyncio
from dataclasses import replace
from random import Random

from varlog.sim.climate import draw
from varlog.sim.cluster import SimulatedCluster
from varlog.sim.faults import END_MOMENTS, Nemesis
from varlog.sim.loop import make_loop
from varlog.sim.trace import Trace
from varlog.sim.weather import FaultWeather, NetworkWeather, Shape

KINDS = {
    "bit flipped",
    "commit failed",
    "connection broken",
    "disk filled",
    "killed",
    "partitioned",
    "paused",
    "power lost",
    "stopped",
    "store filled",
    "sync failed",
}


def everything_at_once() -> FaultWeather:
    return FaultWeather(
        node_crashes=5.0,
        repository_crashes=2.0,
        client_crashes=1.0,
        snipes=5.0,
        end_snipes=5.0,
        downtime=0.2,
        pauses=5.0,
        pause_seconds=0.2,
        partitions=5.0,
        partition_seconds=0.2,
        breaks=5.0,
        full_disks=5.0,
        failing_syncs=1.0,
        failing_commits=1.0,
        stops=5.0,
        rot=True,
    )


def test_every_kind_of_fault_strikes_and_is_healed() -> None:
    weather = replace(draw(1), network=NetworkWeather(), shape=Shape(nodes=3))
    loop = make_loop(max_steps=2_000_000)
    trace = Trace(on=True)
    cluster = SimulatedCluster(loop, weather, trace)
    nemesis = Nemesis(cluster, everything_at_once(), Random(1))

    async def main() -> None:
        cluster.start_servers()
        cluster.ready.set()
        await asyncio.sleep(1.0)
        await nemesis.rage(60.0)
        nemesis.heal()
        struck = dict(nemesis.struck)
        await asyncio.sleep(30.0)
        assert nemesis.struck == struck, "nothing strikes after healing"

    try:
        loop.run(main())
        hosts = [*cluster.nodes, *cluster.repositories]
        assert set(nemesis.struck) == KINDS
        assert all(host.up or host is nemesis.rotten for host in hosts)
        assert all(host.process is not None and not host.process.paused for host in hosts)
        assert not any(cluster.fabric.blocked(one.name, other.name) for one in hosts for other in hosts)
        assert not any(platter.taken_by_others for host in hosts for platter in host.platters)
    finally:
        nemesis.stop()
        loop.close()


def test_in_fair_weather_nothing_strikes() -> None:
    weather = replace(draw(1), network=NetworkWeather(), faults=FaultWeather(), shape=Shape(nodes=1))
    loop = make_loop(max_steps=2_000_000)
    cluster = SimulatedCluster(loop, weather, Trace())
    nemesis = Nemesis(cluster, weather.faults, Random(1))

    async def main() -> None:
        cluster.start_servers()
        await nemesis.rage(10.0)
        nemesis.heal()

    try:
        loop.run(main())
        assert nemesis.struck == {}
        assert [host.lives for host in (*cluster.nodes, *cluster.repositories)] == [1, 1]
    finally:
        nemesis.stop()
        loop.close()


def test_crashes_wait_for_what_ends() -> None:
    weather = replace(draw(1), network=NetworkWeather(), shape=Shape(nodes=1))
    loop = make_loop(max_steps=2_000_000)
    cluster = SimulatedCluster(loop, weather, Trace())
    nemesis = Nemesis(cluster, FaultWeather(end_snipes=20.0), Random(1))

    async def main() -> None:
        cluster.start_servers()
        await nemesis.rage(2.0)
        moments = {tripwire.frame for tripwire in cluster.fabric.tripwires}
        assert moments == set(END_MOMENTS)
        nemesis.heal()

    try:
        loop.run(main())
    finally:
        nemesis.stop()
        loop.close()
