"""Calls and pushes between two peers: answers, errors, deadlines, cancellation, lost and doubled frames."""

import asyncio
from collections.abc import Callable

import pytest
from tests.transport.pipe import ASK, Pair, answer, never, settle

from varlog.base.errors import (
    ConnectionLost,
    Corrupt,
    InvalidArgument,
    NoSpace,
    NotFound,
    Timeout,
    TooLarge,
    Unavailable,
    Unsupported,
    VarlogError,
)
from varlog.base.invariant import InvariantBroken
from varlog.base.limits import FRAME_BYTES
from varlog.transport import limits
from varlog.transport.peer import Reply, Request
from varlog.wire.frame import Frame, Kind
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def refuse(request: Request) -> None:
    request.fail(NotFound("there is no such log"))


def test_an_answer_has_its_message_and_body() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: answer})
        reply = await pair.client.call(Method.TAIL, ASK, [b"a", bytearray(b"b"), memoryview(b"c")], timeout=1)
        assert reply.message == pb.TailReply(tail=8)
        assert reply.body == b"<abc>"
        assert pair.defects == []

    asyncio.run(main())


def test_both_ends_call_at_once_on_one_connection() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: answer}, {Method.TAIL: answer})
        futures = [
            peer.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1) for peer in (pair.client, pair.server) * 5
        ]
        assert [(await future).message.tail for future in futures] == [8] * 10

    asyncio.run(main())


def test_answers_find_their_calls_in_any_order() -> None:
    async def main() -> None:
        waiting: list[Request] = []
        pair = Pair({Method.TAIL: waiting.append})
        futures = [
            pair.client.start_call(Method.TAIL, pb.TailRequest(log=n).SerializeToString(), timeout=1) for n in range(5)
        ]
        await settle()
        for request in reversed(waiting):
            request.reply(pb.TailReply(tail=request.message.log))
        assert [(await future).message.tail for future in futures] == [0, 1, 2, 3, 4]

    asyncio.run(main())


def test_an_async_handler_runs_as_a_task_and_knows_how_long_its_caller_waits() -> None:
    async def main() -> None:
        async def handler(request: Request) -> None:
            await settle(3)
            request.reply(pb.TailReply(tail=int(request.timeout)))

        pair = Pair({Method.TAIL: handler})
        assert (await pair.client.call(Method.TAIL, ASK, timeout=20)).message.tail == 20

    asyncio.run(main())


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_a_typed_error_arrives_with_what_it_carries(asynchronous: bool, late: bool) -> None:
    async def main() -> None:
        error = Corrupt("slot 3 is rotten", 3)
        error.replica = "1.2.3"

        def plain(request: Request) -> None:
            if late:
                asyncio.get_running_loop().call_soon(request.fail, error)
            else:
                raise error

        async def slow(request: Request) -> None:
            if late:
                await settle(2)
            raise error

        pair = Pair({Method.TAIL: slow if asynchronous else plain})
        with pytest.raises(Corrupt) as caught:
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        assert (caught.value.message, caught.value.slot, caught.value.replica) == ("slot 3 is rotten", 3, "1.2.3")
        assert pair.defects == []

    asyncio.run(main())


def test_an_error_of_a_later_release_keeps_its_text() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: never})
        future = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1)
        header = pb.Error(code=9999, message="something new", value=5).SerializeToString()
        pair.client.frame_received(Frame(Kind.ERROR, Method.TAIL, 0, 1, 0, header, b""))
        with pytest.raises(VarlogError, match="something new") as caught:
            await future
        assert type(caught.value) is VarlogError

    asyncio.run(main())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_defect_is_reported_here_and_told_to_the_caller(asynchronous: bool) -> None:
    async def main() -> None:
        def plain(request: Request) -> None:
            raise ZeroDivisionError("oops")

        async def slow(request: Request) -> None:
            raise ZeroDivisionError("oops")

        pair = Pair({Method.TAIL: slow if asynchronous else plain})
        with pytest.raises(VarlogError, match="internal error: ZeroDivisionError: oops"):
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        assert [type(defect) for defect in pair.defects] == [ZeroDivisionError]
        assert pair.server.closed_error is None

    asyncio.run(main())


def test_what_is_not_served_or_not_readable_is_refused_and_the_connection_lives() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: answer})
        with pytest.raises(Unsupported, match="STATUS is not served here"):
            await pair.client.call(Method.STATUS, pb.StatusRequest(), timeout=1)

        future = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1)
        pair.client_channel.filter = lambda frame: [frame._replace(method=250)]
        with pytest.raises(Unsupported, match="method 250"):
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        pair.client_channel.filter = lambda frame: [frame._replace(header=b"\xff\xff\xff")]
        with pytest.raises(InvalidArgument, match="TAIL"):
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        pair.client_channel.filter = lambda frame: [frame]
        assert (await future).message.tail == 8
        assert (await pair.client.call(Method.TAIL, ASK, timeout=1)).message.tail == 8
        assert pair.defects == []

    asyncio.run(main())


@pytest.mark.parametrize("answered", [answer, refuse])
def test_an_answer_that_cannot_be_read_tells_nothing_of_what_became_of_the_request(
    answered: Callable[[Request], None],
) -> None:
    """It must not be taken for a refusal, as `Corrupt` would be."""

    async def main() -> None:
        pair = Pair({Method.TAIL: answered})
        pair.server_channel.filter = lambda frame: [frame._replace(header=b"\xff\xff\xff")]
        with pytest.raises(VarlogError, match="cannot be read") as unknown:
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        assert type(unknown.value) is VarlogError

    asyncio.run(main())


def test_a_deadline_passes_at_both_ends() -> None:
    async def main() -> None:
        waiting: list[Request] = []
        told: list[str] = []

        def handler(request: Request) -> None:
            waiting.append(request)
            request.on_cancel(lambda: told.append("cancelled"))

        pair = Pair({Method.TAIL: handler})
        future = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=2)
        await settle()
        await pair.clock.advance(1.9)
        assert not future.done()
        assert not waiting[0].cancelled
        await pair.clock.advance(0.2)
        with pytest.raises(Timeout):
            await future
        assert waiting[0].cancelled
        assert told == ["cancelled"]
        waiting[0].reply(pb.TailReply())  # too late: dropped
        waiting[0].on_cancel(lambda: told.append("at once"))
        assert told == ["cancelled", "at once"]
        assert pair.server_channel.kinds_sent() == []

    asyncio.run(main())


def test_many_deadlines_are_kept_by_one_timer() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: never})
        before = pair.clock.armed
        futures = [pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=5 + n / 10) for n in range(100)]
        await settle()
        assert pair.clock.armed == before + 2, "one for the calls, one for the requests"
        await pair.clock.advance(10.0)
        assert [future.done() for future in futures] == [True] * 51 + [False] * 49
        await pair.clock.advance(5.0)
        for future in futures:
            assert isinstance(future.exception(), Timeout)

    asyncio.run(main())


def test_a_shorter_deadline_is_not_kept_waiting_by_a_longer_one() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: never})
        long = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=3)
        short = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=0.5)
        await pair.clock.advance(0.6)
        assert isinstance(short.exception(), Timeout)
        assert not long.done()
        pair.client.close()
        assert isinstance(long.exception(), ConnectionLost)

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [0.0, -1.0, 1e12, float("inf")])
def test_any_timeout_can_be_sent(timeout: float) -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: answer})
        assert (await pair.client.call(Method.TAIL, ASK, timeout=timeout)).message.tail == 8

    asyncio.run(main())


def test_cancelling_a_call_cancels_its_handler() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def handler(request: Request) -> None:
            seen.append("began")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        pair = Pair({Method.TAIL: handler})
        call = asyncio.create_task(pair.client.call(Method.TAIL, ASK, timeout=10))
        await settle()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await settle()
        assert seen == ["began", "cancelled"]
        assert pair.client_channel.kinds_sent() == [Kind.REQUEST, Kind.CANCEL]
        assert pair.server_channel.kinds_sent() == [], "nobody waits for an answer"
        assert pair.defects == []

    asyncio.run(main())


def test_a_handler_cancelled_by_others_says_that_it_gave_up() -> None:
    async def main() -> None:
        async def handler(request: Request) -> None:
            raise asyncio.CancelledError

        pair = Pair({Method.TAIL: handler})
        with pytest.raises(Unavailable, match="given up"):
            await pair.client.call(Method.TAIL, ASK, timeout=1)

    asyncio.run(main())


def test_a_lost_connection_leaves_the_outcome_open_a_closed_one_does_not() -> None:
    async def main() -> None:
        cancelled: list[Request] = []

        def handler(request: Request) -> None:
            request.on_cancel(lambda: cancelled.append(request))

        pair = Pair({Method.TAIL: handler})
        told: list[VarlogError] = []
        pair.client.on_close(told.append)
        future = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=10)
        await settle()
        pair.server.close()
        await settle()
        with pytest.raises(ConnectionLost) as lost:
            await future
        assert not lost.value.outcome_known
        assert len(cancelled) == 1
        assert told == [pair.client.closed_error]
        pair.client.on_close(told.append)
        assert len(told) == 2, "at once, as it is already closed"
        with pytest.raises(Unavailable) as never_sent:
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        assert never_sent.value.outcome_known
        with pytest.raises(Unavailable):
            pair.client.stream(Method.READ, pb.ReadRequest(), timeout=1)
        pair.client.notify(Method.ADVANCE, pb.CommitRequest())
        assert pair.clock.armed == 0, "no timer outlives its connection"

    asyncio.run(main())


def test_closing_cancels_handlers_oldest_first_and_waits_for_them() -> None:
    async def main() -> None:
        ended: list[int] = []

        async def handler(request: Request) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await settle(2)
                ended.append(request.message.log)

        pair = Pair({Method.TAIL: handler})
        futures = [
            pair.client.start_call(Method.TAIL, pb.TailRequest(log=n).SerializeToString(), timeout=10) for n in range(4)
        ]
        await settle()
        pair.server.close()
        await pair.server.wait_closed()
        assert ended == [0, 1, 2, 3]
        await settle()
        assert all(isinstance(future.exception(), ConnectionLost) for future in futures)

    asyncio.run(main())


def test_a_handler_may_close_its_own_connection() -> None:
    async def main() -> None:
        seen: list[bool] = []

        def handler(request: Request) -> None:
            request.peer.close()
            request.on_cancel(lambda: seen.append(request.cancelled))

        pair = Pair({Method.TAIL: handler})
        with pytest.raises(ConnectionLost):
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        assert seen == [True]

    asyncio.run(main())


def test_answering_twice_is_a_defect() -> None:
    async def main() -> None:
        def handler(request: Request) -> None:
            answer(request)
            answer(request)

        pair = Pair({Method.TAIL: handler})
        assert (await pair.client.call(Method.TAIL, ASK, timeout=1)).message.tail == 8
        assert [type(defect) for defect in pair.defects] == [InvariantBroken]

    asyncio.run(main())


def test_an_answer_too_large_for_a_frame_becomes_an_error() -> None:
    async def main() -> None:
        half = bytes(FRAME_BYTES // 2)

        def handler(request: Request) -> None:
            request.reply(pb.TailReply(), [half, half])

        pair = Pair({Method.TAIL: handler})
        with pytest.raises(TooLarge) as caught:
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        assert caught.value.limit == FRAME_BYTES
        with pytest.raises(TooLarge):
            await pair.client.call(Method.TAIL, ASK, [half, half], timeout=1)
        assert pair.client.closed_error is None

    asyncio.run(main())


# ---------------------------------------------------------------- a network that loses and doubles frames


def test_doubled_requests_and_answers_are_harmless() -> None:
    async def main() -> None:
        handled: list[int] = []

        def handler(request: Request) -> None:
            handled.append(request.message.log)
            answer(request)

        pair = Pair({Method.TAIL: handler})
        pair.client_channel.filter = pair.server_channel.filter = lambda frame: [frame, frame]
        for _ in range(3):
            assert (await pair.client.call(Method.TAIL, ASK, timeout=1)).message.tail == 8
        await settle()
        assert len(handled) == 6
        assert pair.defects == []

    asyncio.run(main())


def test_a_doubled_request_is_not_handled_twice_at_once() -> None:
    async def main() -> None:
        waiting: list[Request] = []
        pair = Pair({Method.TAIL: waiting.append})
        pair.client_channel.filter = lambda frame: [frame, frame]
        future = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1)
        await settle()
        assert len(waiting) == 1
        answer(waiting[0])
        assert (await future).message.tail == 8

    asyncio.run(main())


def test_a_doubled_request_that_was_refused_is_not_taken_after_all() -> None:
    async def main() -> None:
        refusing = True
        taken: list[Request] = []

        def handle(request: Request) -> None:
            if refusing:
                raise NoSpace("no room")
            taken.append(request)
            answer(request)

        pair = Pair({Method.TAIL: handle})
        with pytest.raises(NoSpace):
            await pair.client.call(Method.TAIL, ASK, timeout=1)
        refusing = False
        copy = pair.client_channel.sent[-1]
        pair.server.frame_received(copy)
        await settle()
        assert not taken
        assert (await pair.client.call(Method.TAIL, ASK, timeout=1)).message.tail == 8
        # ids go round: so much later the same one is another request's
        await pair.clock.advance(limits.REFUSED_SECONDS)
        pair.server.frame_received(copy)
        assert len(taken) == 2

    asyncio.run(main())


def test_refusals_are_remembered_up_to_a_limit() -> None:
    async def main() -> None:
        def handle(request: Request) -> None:
            raise NoSpace("no room")

        pair = Pair({Method.TAIL: handle})
        for _ in range(limits.REFUSED_REQUESTS + 10):
            with pytest.raises(NoSpace):
                await pair.client.call(Method.TAIL, ASK, timeout=1)
        assert len(pair.server._service._refused) == limits.REFUSED_REQUESTS

    asyncio.run(main())


def test_a_lost_answer_is_a_timeout_and_a_late_one_is_ignored() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: answer})
        pair.server_channel.filter = lambda frame: []
        future = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1)
        await pair.clock.advance(1.1)
        assert isinstance(future.exception(), Timeout)
        pair.client.frame_received(pair.server_channel.sent[0])
        assert pair.client.closed_error is None

    asyncio.run(main())


def test_ids_go_round_and_step_over_those_in_use() -> None:
    async def main() -> None:
        waiting: list[Request] = []
        pair = Pair({Method.TAIL: waiting.append})
        first = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=100)
        pair.client._calls._last_id = 0xFFFFFFFE
        others = [pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=100) for _ in range(2)]
        await settle()
        assert [request.request_id for request in waiting] == [1, 0xFFFFFFFF, 2]
        for request in waiting:
            answer(request)
        await asyncio.gather(first, *others)

    asyncio.run(main())


def test_who_asked_to_be_called_is_called_once_however_the_call_ends() -> None:
    async def main() -> None:
        waiting: list[Request] = []
        pair = Pair({Method.TAIL: waiting.append})
        ended: list[object] = []

        def answered(future: "asyncio.Future[Reply]") -> None:
            error = future.exception()
            ended.append(error if error is not None else future.result().message.tail)

        def start(timeout: float) -> "asyncio.Future[Reply]":
            return pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=timeout, answered=answered)

        start(9)
        start(9)
        start(0.05)
        start(9)
        given_up = start(9)
        await settle()
        given_up.cancel()
        waiting[0].reply(pb.TailReply(tail=8))
        waiting[1].fail(NoSpace("full"))
        waiting[4].reply(pb.TailReply(tail=9))
        await settle()
        assert [type(each) for each in ended] == [int, NoSpace]
        await pair.clock.advance(0.1)
        await settle()
        assert [type(each) for each in ended[2:]] == [Timeout]
        pair.client.close()
        await settle()
        assert [type(each) for each in ended[3:]] == [ConnectionLost]
        start(9)
        assert len(ended) == 4, "not within the call itself"
        await settle()
        assert [type(each) for each in ended[4:]] == [Unavailable]
        assert pair.defects == []

    asyncio.run(main())


def test_a_defect_of_who_is_called_harms_nobody_else() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: answer})

        def broken(_: object) -> None:
            raise ValueError("a defect")

        pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1, answered=broken)
        assert (await pair.client.call(Method.TAIL, ASK, timeout=1)).message.tail == 8
        assert [str(each) for each in pair.defects] == ["a defect"]

    asyncio.run(main())
