"""What has to end when all is well, and what need not."""

from types import SimpleNamespace
from typing import Any

import pytest

from varlog.sim.ending import LONG_SECONDS, Ending
from varlog.sim.history import History, Operation, Read, Subscription
from varlog.wire.proto import varlog_pb2 as pb

NOW = 100.0
OLD: dict[str, Any] = {"log": "l", "client": "c", "start_time": NOW - LONG_SECONDS}


def must_end(operation: Operation, *, sealed: bool = False, readable: bool = True, tail: int | None = 4) -> bool:
    excuses = SimpleNamespace(readable=lambda info: readable)
    ending = Ending(History([operation]), excuses, lambda client: client == "c")  # type: ignore[list-item]
    ending.tails = {} if tail is None else {"l": tail}
    streams = [pb.StreamInfo(id=1), pb.StreamInfo(id=3, state=pb.STREAM_FINALIZED)]
    ending.expect({"l": pb.LogInfo(name="l", sealed=sealed, chain=[pb.SegmentInfo(streams=streams)])}, NOW)
    return operation.must_end


def test_whatever_has_a_timeout() -> None:
    assert must_end(Read(**OLD))
    assert must_end(Read(**OLD), readable=False, tail=None)
    assert not must_end(Read(**OLD, end=7))
    assert not must_end(Read(**(OLD | {"client": "a dead one"})))
    assert not must_end(Read(**(OLD | {"start_time": NOW - 1.0})))


@pytest.mark.parametrize("stream", [0, 2])
def test_a_subscription_whose_stop_is_reached(stream: int) -> None:
    assert must_end(Subscription(**OLD, stop=5, stream=stream))
    assert not must_end(Subscription(**OLD, stop=6, stream=stream))
    assert not must_end(Subscription(**OLD, stop=5, stream=stream), readable=False)
    assert not must_end(Subscription(**OLD, stop=5, stream=stream), tail=None)


def test_a_subscription_of_a_sealed_log() -> None:
    assert must_end(Subscription(**OLD), sealed=True)
    assert not must_end(Subscription(**OLD))


def test_a_subscription_of_a_stream_that_has_ended() -> None:
    assert must_end(Subscription(**OLD, stream=3))
    assert not must_end(Subscription(**OLD, stream=1))
    assert not must_end(Subscription(**OLD, stream=2))
