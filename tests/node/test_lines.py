"""A node's lines to the repositories that gather its reports."""

import asyncio
from collections.abc import Sequence
from typing import cast

from tests.servers import run

from varlog.base.ids import Epoch, LogId, ReplicaId, StreamId
from varlog.node.lines import PACE_S, ReportLines
from varlog.node.replica import Replica
from varlog.transport.peer import Request, Server, serve
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


class Named:
    """All that lines know of a replica."""

    def __init__(self, stream: int) -> None:
        self.id = ReplicaId(LogId(1), Epoch(1), StreamId(stream))


class Follower:
    """Keeps the reports it gets."""

    def __init__(self) -> None:
        self.reports: list[pb.GetReportResponse] = []
        self.server: Server | None = None

    async def start(self) -> str:
        self.server = await serve(real_world(), "127.0.0.1:0", {Method.REPORT: self._take})
        return self.server.address

    async def close(self) -> None:
        assert self.server is not None
        await self.server.close()

    def _take(self, request: Request) -> None:
        self.reports.append(request.message)

    def seen(self) -> list[tuple[int, list[int]]]:
        """Numbers, and the streams that were reported."""
        return [(each.sequence, [row.log_stream_id for row in each.uncommit_reports]) for each in self.reports]


class Node:
    """Numbers reports, and has nothing to say but which replicas they are of."""

    def __init__(self) -> None:
        self.sequence = 7
        self.lines = ReportLines(real_world(), self._report)

    def _report(self, replicas: Sequence[Replica] | None, *, anew: bool) -> pb.GetReportResponse:
        self.sequence += anew
        rows = [pb.LogStreamUncommitReport(log_stream_id=each.id.stream) for each in replicas or ()]
        return pb.GetReportResponse(sequence=self.sequence, complete=replicas is None, uncommit_reports=rows)

    async def change(self, *streams: int, tell: "Sequence[Follower]") -> None:
        """All at once, and wait until these have been told, and others would have been."""
        before = [len(each.reports) for each in tell]
        for stream in streams:
            self.lines.changed(cast(Replica, Named(stream)))
        for follower, count in zip(tell, before, strict=True):
            await until(follower, count + 1)
        await asyncio.sleep(2 * PACE_S)


async def until(follower: Follower, count: int) -> None:
    while len(follower.reports) < count:
        await asyncio.sleep(0.005)


def test_beside_the_leader_a_follower_is_told_now_and_then_under_the_number_the_leader_knows() -> None:
    async def story() -> None:
        node, follower = Node(), Follower()
        node.lines.follow([await follower.start()], indirect=False)
        await until(follower, 1)
        assert follower.reports[0].complete
        await node.change(1, 2, 1, tell=[follower])
        await node.change(3, tell=[follower])
        assert follower.seen() == [(7, []), (7, [1, 2]), (7, [3])]
        assert not node.lines.suffice
        await node.lines.close()
        await follower.close()

    run(story())


def test_followers_alone_are_told_the_same_under_numbers_of_their_own() -> None:
    async def story() -> None:
        node, followers = Node(), [Follower(), Follower()]
        node.lines.follow([await each.start() for each in followers], indirect=True)
        for each in followers:
            await until(each, 1)
        assert node.lines.suffice
        await node.change(1, tell=followers)
        await node.change(2, tell=followers)
        assert [each.seen()[1:] for each in followers] == [[(10, [1]), (11, [2])]] * 2
        await node.lines.close()
        assert not node.lines.suffice
        for each in followers:
            await each.close()

    run(story())


def test_a_line_ends_when_another_follower_is_named_and_comes_back_when_it_broke() -> None:
    async def story() -> None:
        node, first, second = Node(), Follower(), Follower()
        addresses = [await first.start(), await second.start()]
        node.lines.follow(addresses[:1], indirect=True)
        await until(first, 1)
        assert first.server is not None
        for peer in first.server.peers:
            peer.close()
        await until(first, 2)
        assert first.reports[1].complete, "whatever it missed"
        node.lines.follow(addresses[1:], indirect=True)
        await until(second, 1)
        await node.change(1, tell=[second])
        assert (len(first.reports), second.seen()[1:]) == (2, [(11, [1])])
        await node.lines.close()
        await first.close()
        await second.close()

    run(story())
