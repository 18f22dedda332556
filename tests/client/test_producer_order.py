"""The order of a producer's batches, and the numbers an application gives them, hold in bad times too."""

import pytest
from tests.sim.world import Cluster

from varlog.base.errors import NoSpace, OutcomeUnknown, Timeout, Unavailable
from varlog.client import connect
from varlog.sim.host import Process


def test_a_batch_that_was_never_sent_does_not_leave_its_number_to_the_next() -> None:
    cluster = Cluster()

    async def work(process: Process) -> None:
        async with connect(cluster.servers.url, world=process.world) as opened:
            log = await opened.create_log("l", replicas=1)
            producer = await log.producer(id="etl", timeout=1.0).open()
            cluster.fabric.block([("client", "node1")])
            first = await producer.send_batch([b"zero"], sequence=0)
            with pytest.raises(OutcomeUnknown):
                await first
            await process.clock.sleep(0.5)
            second = await producer.send_batch([b"one"], sequence=1)
            await process.clock.sleep(0.6)
            third = await producer.send_batch([b"two"], sequence=2)
            with pytest.raises(Timeout):
                await second
            cluster.fabric.heal()
            with pytest.raises(Unavailable):
                await third
            with pytest.raises(Unavailable):
                await producer.send_batch([b"three"], sequence=1)
            producer.abort()
            await _check_again(process)

    async def _check_again(process: Process) -> None:
        async with connect(cluster.servers.url, world=process.world) as opened:
            again = await opened.log("l").producer(id="etl").open()
            assert again.next_sequence <= 1
            for number, payload in enumerate((b"zero", b"one", b"two")):
                await (await again.send_batch([payload], sequence=number))
            entries = [entry.payload async for entry in opened.log("l").subscribe(wait=False)]
            assert entries == [b"zero", b"one", b"two"]

    cluster.run(work)


def test_what_is_on_its_way_is_not_overtaken_on_another_stream() -> None:
    """Another user of the log is refused by the stream; this producer's batch there is still unanswered."""
    cluster = Cluster(nodes=2)

    async def work(process: Process) -> None:
        async with connect(cluster.servers.url, world=process.world) as opened:
            log = await opened.create_log("l", replicas=1, streams=2)
            async with log.producer(linger=0.0) as producer:
                await (await producer.send(b"zero"))
                current = producer._outlet._current
                assert current is not None
                address = log._context.routes.place(current.route.members[0]).address
                cluster.fabric.block([("client", address.partition(":")[0])])
                first = await producer.send(b"one")
                await process.clock.sleep(0.1)
                log._context.choice.refuse(current.route, NoSpace("said to another"))
                second = await producer.send(b"two")
                await process.clock.sleep(0.1)
                cluster.fabric.heal()
                acks = [await first, await second]
                assert acks[0].first < acks[1].first
            entries = [entry.payload async for entry in log.subscribe(wait=False)]
            assert entries == [b"zero", b"one", b"two"]

    cluster.run(work)
