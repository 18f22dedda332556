"""One copy of a stream by itself."""

import pytest
from tests.client.test_end_to_end import on_cluster

import varlog
from varlog import Cluster
from varlog.client.log import replica_of
from varlog.client.replica import StoredBatch


def test_every_copy_shows_the_same_batches() -> None:
    async def story(cluster: Cluster) -> None:
        log = await cluster.create_log("log", replicas=2, streams=2)
        expected: dict[int, list[tuple[int, int]]] = {1: [], 2: []}
        for number in range(20):
            ack = await log.append_batch([b"x"] * (number % 3 + 1), stream=number // 4 % 2 + 1)
            expected[ack.stream].append((ack.first, ack.last + 1))
        (segment,) = (await log.info()).chain
        for stream in segment.streams:
            slots = sum(stop - first for first, stop in expected[stream.id])
            seen: list[list[StoredBatch]] = []
            for node in stream.members:
                replica = replica_of(log, segment.epoch, stream.id, node)
                seen.append([each async for part in replica.batches(1, 100, committed=slots) for each in part])
                middle = [each async for part in replica.batches(9, 20, committed=slots) for each in part]
                assert middle == [each for each in seen[-1] if each.end > 9 and each.first < 20]
                last = seen[-1][-1]
                assert await replica.batch_at(last.slot) == last
                rest = [
                    each async for part in replica.batches(1, 100, committed=slots, slot=last.slot) for each in part
                ]
                assert rest == [last]
            assert seen[0] == seen[1]
            assert [(each.first, each.end) for each in seen[0]] == expected[stream.id]
        with pytest.raises(varlog.NotFound, match="no stream 9"):
            await replica_of(log, segment.epoch, 9, 1).batch_at(0)

    on_cluster(story)


def test_a_copy_that_stays_behind_is_told() -> None:
    async def story(cluster: Cluster) -> None:
        log = await cluster.create_log("log", replicas=1)
        await log.append(b"x")
        (segment,) = (await log.info()).chain
        replica = replica_of(log, segment.epoch, 1, segment.streams[0].members[0], timeout=0.5)
        with pytest.raises(varlog.Timeout, match="slots up to 1 only, of 2"):
            [each async for each in replica.batches(1, 9, committed=2)]

    on_cluster(story, nodes=1)
