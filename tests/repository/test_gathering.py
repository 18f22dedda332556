"""Repositories that follow gather reports for the one that leads (M5)."""

from typing import Any, cast

import pytest
from tests.servers import run
from tests.sim.world import Cluster
from tests.soon import soon

from varlog.base.errors import OutcomeUnknown
from varlog.base.ids import NodeId
from varlog.client import connect
from varlog.ports import MetadataStore
from varlog.ports.election import leader_key
from varlog.repository.gathering import Gatherer, Gatherers
from varlog.repository.server import ELECTION
from varlog.sim.host import Process
from varlog.transport.peer import Peer
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


class Line:
    """A connection that keeps what is pushed."""

    writable = True

    def __init__(self) -> None:
        self.pushed: list[pb.ForwardedReports] = []
        self.callbacks: list[Any] = []

    def notify(self, method: Method, message: pb.ForwardedReports) -> None:
        assert method == Method.FORWARD
        self.pushed.append(message)

    def on_close(self, callback: Any) -> None:
        self.callbacks.append(callback)


def report(node: int, sequence: int, *rows: tuple[int, int], boot: int = 1) -> pb.GetReportResponse:
    """Rows are streams with their tails."""
    return pb.GetReportResponse(
        storage_node_id=node,
        boot=boot,
        sequence=sequence,
        uncommit_reports=[
            pb.LogStreamUncommitReport(
                log_id=1, segment=1, log_stream_id=stream, uncommitted_llsn_offset=1, uncommitted_llsn_length=tail
            )
            for stream, tail in rows
        ],
    )


def test_every_node_has_two_gatherers() -> None:
    gatherers = Gatherers(direct_nodes=4)
    assert gatherers.of(NodeId(1), 9) == ([], False), "the leader alone"
    lines = {address: Line() for address in ("a:1", "b:1", "c:1")}
    for address, line in lines.items():
        gatherers.add(address, cast(Peer, line))
    assert [gatherers.of(NodeId(node), 4) for node in (1, 2, 3)] == [
        (["b:1"], False),
        (["c:1"], False),
        (["a:1"], False),
    ], "the leader is one of the two"
    assert [gatherers.of(NodeId(node), 5) for node in (1, 2, 3)] == [
        (["b:1", "c:1"], True),
        (["c:1", "a:1"], True),
        (["a:1", "b:1"], True),
    ]
    for gone in ("b:1", "c:1"):
        for callback in lines[gone].callbacks:
            callback(None)
    assert gatherers.of(NodeId(1), 5) == (["a:1"], False), "too few are left to do without the leader"
    assert gatherers.has(cast(Peer, lines["a:1"]))
    assert not gatherers.has(cast(Peer, lines["b:1"]))


def test_a_repository_that_connects_again_goes_on_gathering() -> None:
    gatherers, old, new = Gatherers(4), Line(), Line()
    gatherers.add("a:1", cast(Peer, old))
    gatherers.add("a:1", cast(Peer, new))
    old.callbacks[0](None)
    assert gatherers.of(NodeId(1), 1) == (["a:1"], False)


def test_what_several_nodes_say_travels_in_one_frame() -> None:
    async def story() -> None:
        gatherer = Gatherer(real_world(), cast(MetadataStore, None), ELECTION, lambda: "b:1")
        gatherer.take(report(1, 1, (1, 1)))
        leader = Line()
        gatherer._leader = cast(Peer, leader)
        gatherer.take(report(1, 6, (1, 5), (2, 2)))
        gatherer.take(report(2, 3, (1, 4)))
        gatherer.take(report(1, 8, (1, 7)))
        gatherer.take(report(1, 7, (1, 6), (3, 1)))  # overtaken
        gatherer.take(report(2, 9, (1, 9), boot=0))  # of an earlier life
        await soon()
        assert [list(each.reports) for each in leader.pushed] == [
            [report(1, 6, (2, 2)), report(1, 7, (3, 1)), report(1, 8, (1, 7)), report(2, 3, (1, 4))]
        ], "in their order, under their own numbers, and nothing from before there was a leader"
        gatherer.take(report(2, 1, (1, 3), boot=2))
        await soon()
        assert list(leader.pushed[1].reports) == [report(2, 1, (1, 3), boot=2)]

    run(story())


@pytest.mark.parametrize("direct_nodes", [0, 16])
@pytest.mark.parametrize("repositories", [1, 2, 3])
def test_a_node_cut_off_from_the_leader_holds_nobody_up_where_another_gathers(
    repositories: int, direct_nodes: int
) -> None:
    """Its copies are on their way through the primary, and its reports through a follower."""
    cluster = Cluster(nodes=3, repositories=repositories, direct_nodes=direct_nodes)

    async def story(process: Process) -> None:
        async with connect(cluster.servers.url, world=process.world) as connected:
            log = await connected.create_log("orders", replicas=3, streams=1)
            await log.append(b"one")
            await process.clock.sleep(1.0)  # the next lease names the gatherers
            backup = (await log.info()).chain[-1].streams[0].members[1]
            address = next(node.address for node in await connected.nodes() if node.id == backup)
            cut_off(cluster, address.partition(":")[0])
            if repositories == 1:
                with pytest.raises(OutcomeUnknown):
                    await log.append(b"two", timeout=0.5)
            else:
                await log.append(b"two", timeout=0.5)
            cluster.fabric.heal()
            assert [entry.payload async for entry in log.subscribe(stop=3)] == [b"one", b"two"]

    cluster.run(story)


def cut_off(cluster: Cluster, node: str) -> None:
    """From who leads."""
    state = cluster.servers.repositories[0].metadata
    assert state is not None
    leader = state.data[leader_key(ELECTION)].value.decode().partition(":")[0]
    cluster.fabric.block([(leader, node), (node, leader)])
