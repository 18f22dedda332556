"""Limits of a peer: calls in flight, what is being handled, answers nobody takes, callbacks that fail."""

import asyncio
from collections.abc import Callable

import pytest
from tests.transport.pipe import ASK, Pair, answer, never, settle

from varlog.base.errors import (
    ConnectionLost,
    Overloaded,
    Timeout,
)
from varlog.transport import limits
from varlog.transport.peer import Request
from varlog.wire.frame import Frame, Kind, encode_frame
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def test_more_calls_than_may_be_in_flight_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALLS_IN_FLIGHT", 3)

    async def main() -> None:
        pair = Pair({Method.TAIL: never})
        futures = [pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1) for _ in range(3)]
        with pytest.raises(Overloaded):
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        await pair.clock.advance(1.1)
        assert all(isinstance(future.exception(), Timeout) for future in futures)

    asyncio.run(main())


def finish_all(waiting: list[Request]) -> None:
    for request in waiting:
        answer(request)
    waiting.clear()


@pytest.mark.parametrize("body_bytes", [0, 1000])
def test_reading_stops_while_too_much_is_handled_and_goes_on_at_half(
    monkeypatch: pytest.MonkeyPatch, body_bytes: int
) -> None:
    monkeypatch.setattr(limits, "REQUESTS_IN_HANDLING", 1000 if body_bytes else 8)
    monkeypatch.setattr(limits, "BYTES_IN_HANDLING", 8 * (1000 + 22) if body_bytes else 1 << 30)

    async def main() -> None:
        waiting: list[Request] = []
        pair = Pair({Method.TAIL: waiting.append})
        futures = [
            pair.client.start_call(Method.TAIL, ASK.SerializeToString(), [bytes(body_bytes)], timeout=100)
            for _ in range(20)
        ]
        await settle()
        assert len(waiting) == 8
        for request in waiting[:3]:
            answer(request)
        await settle()
        assert not pair.server_channel.reading
        answer(waiting[3])
        await settle()
        assert len(waiting) == 12, "four were answered, four more are handled"
        del waiting[:4]
        while waiting:
            finish_all(waiting)
            await settle()
        assert all(future.done() for future in futures)
        assert pair.server_channel.reading

    asyncio.run(main())


def test_pushes_with_async_handlers_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUESTS_IN_HANDLING", 4)

    async def main() -> None:
        go_on = asyncio.Event()
        running = 0

        async def handler(request: Request) -> None:
            nonlocal running
            running += 1
            await go_on.wait()

        pair = Pair({Method.ADVANCE: handler})
        for _ in range(10):
            pair.client.notify(Method.ADVANCE, pb.CommitRequest())
        await settle()
        assert running == 4
        go_on.set()
        await settle()
        assert running == 10

    asyncio.run(main())


def test_who_does_not_take_answers_gets_no_more_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWERS_WAITING_BYTES", 1000)

    async def main() -> None:
        handled: list[int] = []

        def handler(request: Request) -> None:
            handled.append(request.message.log)
            request.reply(pb.TailReply(), [bytes(300)])

        pair = Pair({Method.TAIL: handler})
        pair.server_channel.set_writable(False)
        futures = [
            pair.client.start_call(Method.TAIL, pb.TailRequest(log=n).SerializeToString(), timeout=100)
            for n in range(9)
        ]
        await settle()
        assert handled == [0, 1, 2, 3], "four answers of 320 bytes are more than may wait"
        pair.server_channel.set_writable(True)
        await asyncio.gather(*futures)
        assert len(handled) == 9

    asyncio.run(main())


def test_two_ends_that_send_each_other_much_do_not_both_stop_reading() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: answer}, {Method.TAIL: answer})
        for channel in (pair.client_channel, pair.server_channel):
            channel.set_writable(False)
        futures = [
            peer.start_call(Method.TAIL, ASK.SerializeToString(), timeout=100)
            for peer in (pair.client, pair.server) * 50
        ]
        await asyncio.gather(*futures)
        assert pair.client_channel.reading
        assert pair.server_channel.reading

    asyncio.run(main())


@pytest.mark.parametrize("callback_of", ["on_close", "on_cancel"])
def test_a_callback_that_fails_stops_no_other(callback_of: str) -> None:
    async def main() -> None:
        seen: list[str] = []

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        def note(*_: object) -> None:
            seen.append("told")

        def register(add: Callable[[Callable[..., None]], None]) -> None:
            add(fail)
            add(note)

        def handler(request: Request) -> None:
            if callback_of == "on_cancel":
                register(request.on_cancel)

        pair = Pair({Method.TAIL: handler})
        if callback_of == "on_close":
            register(pair.server.on_close)
        future = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1)
        await settle()
        pair.server.close()
        await settle()
        assert seen == ["told"]
        assert [type(defect) for defect in pair.defects] == [ZeroDivisionError]
        assert isinstance(future.exception(), ConnectionLost)

    asyncio.run(main())


def test_frames_of_no_known_kind_are_ignored() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: answer})
        pair.server.frame_received(Frame(99, 0, 0, 1, 0, b"", b""))
        pair.server.frame_received(Frame(Kind.CREDIT, 0, 0, 1, 0, b"short", b""))
        assert encode_frame(Kind.PING, 0, 0) == [bytes.fromhex("10000000 08 00 0000 00000000 00000000 00000000")]
        assert (await pair.client.call(Method.TAIL, ASK, timeout=1)).message.tail == 8

    asyncio.run(main())
