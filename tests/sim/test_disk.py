"""The simulated disk as a process meets it: time, full volumes, failing syncs, death."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from tests.sim.world import Small

from varlog.base.errors import NoSpace, VarlogError
from varlog.ports.disk import Disk, DiskFailed, replace_file
from varlog.sim.disk import tree
from varlog.sim.host import Host, Process
from varlog.sim.weather import DiskWeather, Latency


def on_disk(
    work: Callable[[Disk], Coroutine[None, None, None]], *, disk: DiskWeather | None = None, seed: int = 1
) -> Host:
    """Run `work` on a new host to its end."""
    small = Small(seed)
    host = small.host("a", disk=disk)

    async def main() -> None:
        process = host.start(lambda process: work(process.disks[0]))
        assert process.main is not None
        await process.main

    small.run(main())
    return host


def test_a_sync_takes_its_time_and_writes_keep_their_order() -> None:
    weather = DiskWeather(sync=Latency(0.010, 0.0), write=Latency(0.001, 0.0), bytes_per_second=1e15)
    times: list[float] = []

    async def work(disk: Disk) -> None:
        file = await disk.open("f", create=True)
        loop = asyncio.get_running_loop()
        first = loop.time()
        synced = loop.create_task(file.write(0, [b"one"], sync=True))
        second = loop.create_task(file.write(0, [b"two"], sync=False))
        await synced
        times.append(loop.time() - first)
        await second
        times.append(loop.time() - first)

    host = on_disk(work, disk=weather)
    assert tree(host.platters[0])["f"] == b"two"
    assert times == [pytest.approx(0.011), pytest.approx(0.012)]


def test_a_full_volume_refuses_and_goes_on() -> None:
    async def work(disk: Disk) -> None:
        file = await disk.open("f", create=True)
        await file.allocate(900)
        with pytest.raises(NoSpace):
            await file.allocate(1100)
        with pytest.raises(NoSpace):
            await file.write(800, [bytes(300)], sync=True)
        await file.write(800, [b"fits"], sync=True)
        assert bytes(await file.read(800, 4)) == b"fits"
        assert await disk.space() == (100, 1000)

    on_disk(work, disk=DiskWeather(capacity=1000))


def test_a_failing_sync_is_told() -> None:
    small = Small()
    host = small.host("a")
    raised: list[VarlogError] = []

    async def work(process: Process) -> None:
        file = await process.disks[0].open("f", create=True)
        host.platters[0].sync_failures_wanted = 1
        try:
            await file.write(0, [b"x"], sync=True)
        except DiskFailed as error:
            raised.append(error)
        await file.write(0, [b"x"], sync=True)

    async def main() -> None:
        process = host.start(work)
        assert process.main is not None
        await process.main

    small.run(main())
    assert len(raised) == 1


def test_replace_file_leaves_the_old_or_the_new_one_whatever_happens() -> None:
    """A crash at every moment of it, many times."""
    found = set()
    for seed in range(120):
        small = Small(seed)
        host = small.host("a", disk=DiskWeather(sync=Latency(0.004), write=Latency(0.002)))

        async def work(process: Process) -> None:
            await replace_file(process.disks[0], "f", b"old")
            await replace_file(process.disks[0], "f", b"new and longer")

        async def main(host: Host = host, seed: int = seed) -> None:
            host.start(work)
            await asyncio.sleep(0.016 + 0.0003 * seed)
            host.crash(power_loss=True)
            await asyncio.sleep(1)

        small.run(main())
        found.add(tree(host.platters[0]).get("f"))
    assert found <= {None, b"old", b"new and longer"}
    assert {b"old", b"new and longer"} <= found


def test_a_dead_process_writes_no_more() -> None:
    small = Small()
    host = small.host("a", disk=DiskWeather(sync=Latency(1.0, 0.0), write=Latency(0.5, 0.0)))

    async def work(process: Process) -> None:
        file = await process.disks[0].open("f", create=True)
        first = process.spawn(file.write(0, [b"begun"], sync=True), "first")
        process.spawn(file.write(0, [b"never"], sync=True), "second")
        await first

    async def main() -> None:
        host.start(work)
        await asyncio.sleep(1.0)
        host.crash(power_loss=False)
        await asyncio.sleep(10.0)

    small.run(main())
    assert tree(host.platters[0]) == {"f": b"begun"}


def test_completions_wait_while_the_process_is_paused() -> None:
    small = Small()
    host = small.host("a", disk=DiskWeather(sync=Latency(0.1, 0.0)))
    done: list[float] = []

    async def work(process: Process) -> None:
        file = await process.disks[0].open("f", create=True)
        await file.write(0, [b"x"], sync=True)
        done.append(small.loop.now)

    async def main() -> None:
        host.start(work)
        await asyncio.sleep(0.05)
        host.pause(clock_stops=False)
        await asyncio.sleep(3.0)
        assert host.platters[0].file("f").syncing is None
        host.resume()
        await asyncio.sleep(1.0)

    small.run(main())
    assert done == [pytest.approx(3.05)]
