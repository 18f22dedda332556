"""Of many ended streams some are looked at each time, and all in turn."""

from types import SimpleNamespace
from typing import cast

from varlog.repository.catalog import Catalog
from varlog.repository.ended import STREAMS_A_LOOK, EndedStreams
from varlog.wire.proto import varlog_pb2 as pb


def log(ended: int, *, removing: bool = False) -> pb.LogInfo:
    """With so many ended streams, and an open one."""
    streams = [pb.StreamInfo(id=number, state=pb.STREAM_FINALIZED) for number in range(1, ended + 1)]
    segment = pb.SegmentInfo(epoch=1, streams=[*streams, pb.StreamInfo(id=ended + 1)])
    return pb.LogInfo(id=1, chain=[segment], removing=removing)


def test_all_have_their_turn_and_few_are_looked_at_every_time() -> None:
    catalog = SimpleNamespace(logs={1: log(2 * STREAMS_A_LOOK + 5)}, changes=0)
    ended = EndedStreams(cast(Catalog, catalog))
    turns = [[name.stream for name in ended.turn()] for _ in range(4)]
    assert list(map(len, turns)) == [STREAMS_A_LOOK, STREAMS_A_LOOK, 5, STREAMS_A_LOOK]
    assert [*turns[0], *turns[1], *turns[2]] == [name.stream for name in ended.all]
    assert turns[3] == turns[0]
    catalog.logs[1], catalog.changes = log(3), 1
    assert [[name.stream for name in ended.turn()] for _ in range(2)] == [[1, 2, 3]] * 2


def test_what_is_listed_is_what_is_recorded() -> None:
    catalog = SimpleNamespace(logs={1: log(2)}, changes=0)
    ended = EndedStreams(cast(Catalog, catalog))
    assert not ended.copied
    catalog.logs[1], catalog.changes = log(2), 1
    catalog.logs[1].chain[0].streams[1].copy.node = 7
    assert [name.stream for name in ended.copied] == [2]
    catalog.logs[1], catalog.changes = log(2, removing=True), 2
    assert not ended.all
    assert not ended.turn()
