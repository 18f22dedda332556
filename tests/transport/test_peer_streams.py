"""Streams between two peers: order, credit, what happens when parts or ends get lost, and the heartbeat."""

import asyncio
from collections.abc import Callable

import pytest
from tests.transport.pipe import Pair, settle

from varlog.base.errors import ConnectionLost, Corrupt, InvalidArgument, Overloaded, Timeout, Trimmed, Unavailable
from varlog.base.invariant import InvariantBroken
from varlog.transport import limits
from varlog.transport.peer import PartStream, Request
from varlog.wire.frame import FRAME_HEADER_BYTES, WINDOW_UNIT, Frame, Kind
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

ASK = pb.ReadRequest(log=1)
PART_BYTES = WINDOW_UNIT // 4


def parts_of(count: int, size: int = 10) -> Callable[[Request], object]:
    """A handler that sends `count` parts of `size` bytes and ends with the last."""

    async def handler(request: Request) -> None:
        for index in range(count):
            await request.part(pb.ReadPart(slot=index), [bytes(size)], end=index == count - 1)

    return handler


async def collect(stream: PartStream, taken: list[int] | None = None) -> list[int]:
    """The slots of all parts; `taken` has those before an error."""
    taken = [] if taken is None else taken
    async for reply in stream:
        taken.append(reply.message.slot)
    return taken


def pair_with(handler: Callable[[Request], object]) -> Pair:
    return Pair({Method.READ: handler})  # type: ignore[dict-item]  # any awaitable will do


def test_parts_come_in_order_and_end() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(20))
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        assert await collect(stream) == list(range(20))
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert pair.client_channel.kinds_sent() == [Kind.REQUEST], "no credit was needed, none was sent"
        assert pair.defects == []

    asyncio.run(main())


def test_a_single_answer_is_a_stream_of_one() -> None:
    async def main() -> None:
        pair = pair_with(lambda request: request.reply(pb.ReadPart(slot=5), [b"x"]))
        assert await collect(pair.client.stream(Method.READ, ASK, timeout=1)) == [5]

    asyncio.run(main())


def test_an_error_comes_behind_the_parts_before_it() -> None:
    async def main() -> None:
        async def handler(request: Request) -> None:
            await request.part(pb.ReadPart(slot=0))
            raise Trimmed("gone", 9)

        pair = pair_with(handler)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        await settle()
        assert (await anext(stream)).message.slot == 0
        for _ in range(2):
            with pytest.raises(Trimmed) as caught:
                await anext(stream)
            assert caught.value.first == 9

    asyncio.run(main())


def test_a_call_cannot_be_answered_by_parts() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(3))
        with pytest.raises(InvalidArgument, match="stream"):
            await pair.client.call(Method.READ, ASK, timeout=1)

    asyncio.run(main())


def test_a_stream_left_without_an_end_is_a_defect() -> None:
    async def main() -> None:
        async def handler(request: Request) -> None:
            await request.part(pb.ReadPart(slot=0))

        pair = pair_with(handler)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        assert (await anext(stream)).message.slot == 0
        with pytest.raises(Exception, match="without an end"):
            await anext(stream)
        assert [type(defect) for defect in pair.defects] == [InvariantBroken]

    asyncio.run(main())


# ---------------------------------------------------------------- credit


def test_the_sender_waits_for_a_reader_that_does_not_read() -> None:
    async def main() -> None:
        sent = 0

        async def handler(request: Request) -> None:
            nonlocal sent
            while True:
                await request.part(pb.ReadPart(slot=sent), [bytes(PART_BYTES)])
                sent += 1

        pair = pair_with(handler)
        stream = pair.client.stream(Method.READ, ASK, window_bytes=WINDOW_UNIT, timeout=1)
        await settle(200)
        assert sent == 4, "the window holds four parts, less their headers: the fourth overdraws it"
        assert (await anext(stream)).message.slot == 0
        await settle(200)
        assert sent == 4
        for expected in range(1, 100):
            assert (await anext(stream)).message.slot == expected
            await settle(3)
            unread = sent - expected
            assert unread * (PART_BYTES + FRAME_HEADER_BYTES) < WINDOW_UNIT + 2 * PART_BYTES
        await stream.aclose()

    asyncio.run(main())


def test_a_part_larger_than_the_window_passes() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(5, 3 * WINDOW_UNIT))
        stream = pair.client.stream(Method.READ, ASK, window_bytes=1, timeout=1)
        assert await collect(stream) == [0, 1, 2, 3, 4]

    asyncio.run(main())


def test_empty_parts_are_paid_for_too() -> None:
    async def main() -> None:
        sent = 0

        async def handler(request: Request) -> None:
            nonlocal sent
            while True:
                await request.part(pb.ReadPart())
                sent += 1

        pair = pair_with(handler)
        stream = pair.client.stream(Method.READ, ASK, window_bytes=WINDOW_UNIT, timeout=1)
        for _ in range(10):
            await settle(1000)
        assert sent == -(-WINDOW_UNIT // FRAME_HEADER_BYTES)
        await stream.aclose()

    asyncio.run(main())


def test_parts_wait_for_the_connection_to_drain() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(3))
        pair.server_channel.set_writable(False)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        await settle()
        assert pair.server_channel.sent == []
        pair.server_channel.set_writable(True)
        assert await collect(stream) == [0, 1, 2]

    asyncio.run(main())


def test_two_parts_at_once_are_a_defect() -> None:
    async def main() -> None:
        async def handler(request: Request) -> None:
            big = [bytes(2 * WINDOW_UNIT)]
            await asyncio.gather(*(request.part(pb.ReadPart(), big) for _ in range(3)))

        pair = pair_with(handler)
        stream = pair.client.stream(Method.READ, ASK, window_bytes=WINDOW_UNIT, timeout=1)
        await settle()
        assert [type(defect) for defect in pair.defects] == [InvariantBroken]
        await stream.aclose()
        await settle()

    asyncio.run(main())


# ---------------------------------------------------------------- giving up


def test_closing_a_stream_cancels_its_handler() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def handler(request: Request) -> None:
            try:
                await request.part(pb.ReadPart())
                await asyncio.Event().wait()
            finally:
                ended.append("ended")

        pair = pair_with(handler)
        async with pair.client.stream(Method.READ, ASK, timeout=1) as stream:
            await anext(stream)
        await stream.aclose()
        await settle()
        assert ended == ["ended"]
        assert pair.client_channel.kinds_sent() == [Kind.REQUEST, Kind.CANCEL]
        assert pair.server_channel.kinds_sent() == [Kind.PART]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert pair.defects == []

    asyncio.run(main())


def test_a_handler_that_is_no_task_learns_that_its_reader_has_gone() -> None:
    async def main() -> None:
        kept: list[Request] = []
        pair = pair_with(kept.append)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        await settle()
        await kept[0].part(pb.ReadPart(slot=1))
        await stream.aclose()
        await settle()
        with pytest.raises(Unavailable):
            await kept[0].part(pb.ReadPart(slot=2))
        pair.server.close()
        with pytest.raises(ConnectionLost):
            await kept[0].part(pb.ReadPart(slot=3))

    asyncio.run(main())


def test_the_timeout_is_for_the_first_part_only() -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def handler(request: Request) -> None:
            await request.part(pb.ReadPart(slot=0))
            await go_on.wait()
            await request.part(pb.ReadPart(slot=1), end=True)

        pair = pair_with(handler)
        stream = pair.client.stream(Method.READ, ASK, timeout=2)
        await settle()
        await pair.clock.advance(1000)
        go_on.set()
        assert await collect(stream) == [0, 1]

        silent = pair_with(lambda request: None)
        stream = silent.client.stream(Method.READ, ASK, timeout=2)
        await silent.clock.advance(2.1)
        with pytest.raises(Timeout):
            await anext(stream)

    asyncio.run(main())


def test_what_arrived_before_the_connection_was_lost_can_still_be_read() -> None:
    async def main() -> None:
        async def handler(request: Request) -> None:
            for index in range(3):
                await request.part(pb.ReadPart(slot=index))
            await asyncio.Event().wait()

        pair = pair_with(handler)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        await settle()
        pair.server.close()
        await settle()
        taken: list[int] = []
        with pytest.raises(ConnectionLost):
            await collect(stream, taken)
        assert taken == [0, 1, 2]

    asyncio.run(main())


def test_an_unreadable_part_ends_the_stream() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(3))
        pair.server_channel.filter = lambda frame: [frame._replace(header=b"\xff\xff")]
        with pytest.raises(Corrupt):
            await collect(pair.client.stream(Method.READ, ASK, timeout=1))

    asyncio.run(main())


def test_more_streams_than_may_be_open_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAMS_PER_CONNECTION", 2)

    async def main() -> None:
        async def handler(request: Request) -> None:
            await request.part(pb.ReadPart())
            await asyncio.Event().wait()

        pair = pair_with(handler)
        streams = [pair.client.stream(Method.READ, ASK, timeout=1) for _ in range(3)]
        await anext(streams[0])
        await anext(streams[1])
        with pytest.raises(Overloaded):
            await anext(streams[2])
        await streams[0].aclose()
        await settle()
        again = pair.client.stream(Method.READ, ASK, timeout=1)
        await anext(again)
        pair.client.close()
        await settle()

    asyncio.run(main())


def test_a_stream_that_has_begun_is_not_counted_as_being_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUESTS_IN_HANDLING", 3)

    async def main() -> None:
        async def handler(request: Request) -> None:
            await request.part(pb.ReadPart())
            await asyncio.Event().wait()

        pair = pair_with(handler)
        streams = [pair.client.stream(Method.READ, ASK, timeout=1) for _ in range(10)]
        for stream in streams:
            await anext(stream)
        pair.client.close()
        await settle()

    asyncio.run(main())


# ---------------------------------------------------------------- a network that loses and doubles frames


def test_doubled_parts_and_credits_are_harmless() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(50, PART_BYTES))
        pair.client_channel.filter = pair.server_channel.filter = lambda frame: [frame, frame]
        stream = pair.client.stream(Method.READ, ASK, window_bytes=WINDOW_UNIT, timeout=1)
        assert await collect(stream) == list(range(50))
        assert pair.defects == []

    asyncio.run(main())


def lose_part(number: int) -> Callable[[Frame], list[Frame]]:
    return lambda frame: [] if frame.kind == Kind.PART and frame.timeout_ms == number else [frame]


def test_a_lost_part_is_never_skipped() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(10))
        pair.server_channel.filter = lose_part(4)
        taken: list[int] = []
        with pytest.raises(ConnectionLost):
            await collect(pair.client.stream(Method.READ, ASK, timeout=1), taken)
        assert taken == [0, 1, 2, 3]

    asyncio.run(main())


def test_a_lost_last_part_is_noticed_when_the_stream_falls_silent() -> None:
    async def main() -> None:
        async def handler(request: Request) -> None:
            await request.part(pb.ReadPart(slot=0))
            await request.part(pb.ReadPart(slot=1))
            await asyncio.Event().wait()

        pair = pair_with(handler)
        pair.server_channel.filter = lose_part(1)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        assert (await anext(stream)).message.slot == 0
        waiting = asyncio.ensure_future(anext(stream))
        await pair.clock.advance(5 * limits.PING_SECONDS)
        with pytest.raises(Unavailable, match="lost"):
            await waiting
        assert pair.defects == []

    asyncio.run(main())


def test_a_lost_end_is_noticed_when_the_stream_falls_silent() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(2))
        pair.server_channel.filter = lose_part(1)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        assert (await anext(stream)).message.slot == 0
        waiting = asyncio.ensure_future(anext(stream))
        await pair.clock.advance(5 * limits.PING_SECONDS)
        with pytest.raises(Unavailable, match="no such stream"):
            await waiting

    asyncio.run(main())


def test_lost_credit_is_granted_again() -> None:
    async def main() -> None:
        pair = pair_with(parts_of(10, PART_BYTES))
        pair.client_channel.filter = lambda frame: [] if frame.kind == Kind.CREDIT else [frame]
        stream = pair.client.stream(Method.READ, ASK, window_bytes=WINDOW_UNIT, timeout=1)
        taken = [(await anext(stream)).message.slot for _ in range(4)]
        rest = asyncio.create_task(collect(stream))
        await pair.clock.advance(limits.PING_SECONDS)
        assert not rest.done()
        pair.client_channel.filter = lambda frame: [frame]
        await pair.clock.advance(2 * limits.PING_SECONDS)
        assert taken + await rest == list(range(10))

    asyncio.run(main())


def test_a_stream_nobody_reads_is_told_so() -> None:
    """The end of one life of a request must not leave its twin sending for ever."""

    async def main() -> None:
        kept: list[Request] = []
        pair = pair_with(kept.append)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        await settle()
        await stream.aclose()
        await settle()
        pair.server.frame_received(pair.client_channel.sent[0])  # the network delivers the request again
        await kept[1].part(pb.ReadPart())
        await settle()
        assert kept[1].cancelled

    asyncio.run(main())


def test_a_quiet_stream_is_left_alone() -> None:
    async def main() -> None:
        async def handler(request: Request) -> None:
            await request.part(pb.ReadPart(slot=0))
            await asyncio.Event().wait()

        pair = pair_with(handler)
        stream = pair.client.stream(Method.READ, ASK, timeout=1)
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await pair.clock.advance(100 * limits.PING_SECONDS)
        assert not waiting.done()
        assert pair.client.closed_error is None
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting

    asyncio.run(main())
