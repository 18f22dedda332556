"""Pushes between two peers: handlers, and who learns of what goes wrong."""

import asyncio

import pytest
from tests.transport.pipe import ASK, Pair, never, settle

from varlog.base.errors import (
    ConnectionLost,
    Sealed,
    TooLarge,
    Unsupported,
)
from varlog.transport.peer import Request, notification
from varlog.wire.frame import Frame, Kind
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def test_a_push_reaches_its_handler_and_is_not_answered() -> None:
    async def main() -> None:
        seen: list[object] = []

        def plain(request: Request) -> None:
            seen.append((request.pushed, request.message, bytes(request.body)))
            request.reply(pb.CommitResponse())

        async def slow(request: Request) -> None:
            await settle(2)
            seen.append(request.message)

        pair = Pair({Method.ADVANCE: plain, Method.REPORT: slow})
        pair.client.notify(Method.ADVANCE, pb.CommitRequest(storage_node_id=3), [b"x"])
        pair.client.notify(Method.REPORT, pb.GetReportResponse(storage_node_id=4))
        await settle()
        assert seen == [(True, pb.CommitRequest(storage_node_id=3), b"x"), pb.GetReportResponse(storage_node_id=4)]
        assert pair.server_channel.sent == []

    asyncio.run(main())


def test_one_notification_is_pushed_to_several() -> None:
    async def main() -> None:
        seen: list[tuple[pb.StoreRequest, bytes]] = []

        def take(request: Request) -> None:
            seen.append((request.message, bytes(request.body)))

        pairs = [Pair({Method.STORE: take}) for _ in range(3)]
        pairs[2].client.close()
        frame = notification(Method.STORE, pb.StoreRequest(slot=7), [b"one", b"two"])
        for pair in pairs:
            pair.client.push(Method.STORE, frame)
        await settle()
        assert seen == [(pb.StoreRequest(slot=7), b"onetwo")] * 2

    asyncio.run(main())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_goes_wrong_with_a_push_is_reported_where_it_happened(asynchronous: bool) -> None:
    async def main() -> None:
        def plain(request: Request) -> None:
            raise Sealed("too late", 5)

        async def slow(request: Request) -> None:
            raise Sealed("too late", 5)

        pair = Pair({Method.ADVANCE: slow if asynchronous else plain})
        pair.client.notify(Method.ADVANCE, pb.CommitRequest())
        await settle()
        assert [type(defect) for defect in pair.defects] == [Sealed]
        assert pair.server_channel.sent == []

    asyncio.run(main())


def test_a_push_nobody_serves_is_reported_to_who_sent_it() -> None:
    async def main() -> None:
        pair = Pair()
        pair.client.notify(Method.ADVANCE, pb.CommitRequest())
        await settle()
        assert [type(defect) for defect in pair.defects] == [Unsupported]
        assert pair.client.closed_error is None
        header = pb.Error(code=1, message="about nothing").SerializeToString()
        pair.client.frame_received(Frame(Kind.ERROR, Method.REPORT, 0, 0, 0, header, b""))
        assert len(pair.defects) == 1, "nobody else can make us report a defect"

    asyncio.run(main())


def test_being_told_that_nothing_can_be_read_closes_the_connection() -> None:
    async def main() -> None:
        pair = Pair({Method.TAIL: never})
        future = pair.client.start_call(Method.TAIL, ASK.SerializeToString(), timeout=1)
        header = pb.Error(code=TooLarge.code, message="a frame of 4 GiB", value=5).SerializeToString()
        pair.client.frame_received(Frame(Kind.ERROR, 0, 0, 0, 0, header, b""))
        assert isinstance(pair.client.closed_error, TooLarge)
        assert isinstance(future.exception(), ConnectionLost)
        assert pair.client_channel.is_closed

    asyncio.run(main())
