"""A change of a log whose answer was lost: told to be done only if it is."""

import asyncio
from typing import Any

import pytest

from varlog.base.errors import Conflict
from varlog.client.reconfigure import is_done, reconfigure_log
from varlog.wire.proto import varlog_pb2 as pb


def segment(epoch: int, *members: int, **more: Any) -> pb.SegmentInfo:
    settings: dict[str, Any] = {"ordering": "cut", "replicas": 2, "ack": 2} | more
    return pb.SegmentInfo(epoch=epoch, streams=[pb.StreamInfo(id=epoch, members=members or (1, 2))], **settings)


class Lost:
    """The repositories answer the second time only: by then the log's last segment is another."""

    def __init__(self, after: pb.LogInfo) -> None:
        self.info = pb.LogInfo(id=1, chain=[segment(1)])
        self._after = after
        self.routes = self
        self.repositories = self

    async def refresh(self, _: float) -> None:
        pass

    async def resolve(self, _: float) -> pb.LogInfo:
        return self.info

    async def call(self, *_: Any, doubt: Any, **__: Any) -> Any:
        self.info, doubt.repeated = self._after, True
        raise Conflict("the last segment of log 'l' is 2 by now")


def ask(request: pb.ReconfigureLogRequest, after: pb.LogInfo) -> pb.LogInfo:
    return asyncio.run(reconfigure_log(Lost(after), request, 1.0))  # type: ignore[arg-type]


def test_a_roll_is_done_whoever_did_it() -> None:
    after = pb.LogInfo(id=1, chain=[segment(1), segment(2)])
    assert ask(pb.ReconfigureLogRequest(roll=True), after) == after


def test_what_another_began_meanwhile_is_not_what_was_asked_for() -> None:
    """The healer goes on with the settings as they were when a node is lost."""
    after = pb.LogInfo(id=1, chain=[segment(1), segment(2)])
    with pytest.raises(Conflict):
        ask(pb.ReconfigureLogRequest(replicas=3, members=[1, 2, 3]), after)


MADE = pb.LogInfo(
    id=1,
    replicas=3,
    ack=2,
    streams=1,
    roll_ms=5000,
    pinned=["many_writers"],
    chain=[segment(1), segment(2, 1, 2, 3, ordering="leader", replicas=3, ack=3, replication="chain"), segment(3)],
)


@pytest.mark.parametrize(
    ("asked", "done"),
    [
        ({"ordering": "leader"}, True),
        ({"ordering": "cut"}, False),
        ({"journal": True}, False),
        ({"journal": False}, True),
        ({"replicas": 3, "ack": 2}, True),
        ({"ack": 3}, False),
        ({"replicas": 2}, False),
        ({"replication": "chain"}, True),
        ({"replication": "broadcast"}, False),
        ({"members": [1, 2, 3, 4]}, True),
        ({"members": [1, 2, 4]}, False),
        ({"streams": 1, "roll_ms": 5000, "pin": ["many_writers"]}, True),
        ({"streams": 2}, False),
        ({"roll_ms": 0}, False),
        ({"pin": ["atomic_batch"]}, False),
        ({"unpin": ["many_writers"]}, False),
        ({"unpin": ["atomic_batch"]}, True),
    ],
)
def test_everything_asked_for_must_be_there(asked: dict[str, Any], done: bool) -> None:
    """In the segment that follows the one that was to end; a third one behind it does not matter."""
    assert is_done(pb.ReconfigureLogRequest(roll=True, epoch=1, **asked), MADE) == done


def test_without_another_segment_nothing_was_done() -> None:
    assert not is_done(pb.ReconfigureLogRequest(roll=True, epoch=3), MADE)
