"""The heartbeat: idle connections live, dead ones are noticed."""

import asyncio
from collections.abc import Callable

from tests.transport.pipe import Pair, settle

from varlog.base.errors import ConnectionLost
from varlog.transport import limits
from varlog.transport.peer import Request
from varlog.wire.frame import WINDOW_UNIT, Kind
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

ASK = pb.ReadRequest(log=1)
PART_BYTES = WINDOW_UNIT // 4


def pair_with(handler: Callable[[Request], object]) -> Pair:
    return Pair({Method.READ: handler})  # type: ignore[dict-item]  # any awaitable will do


def test_an_idle_connection_costs_a_ping_now_and_then_and_lives() -> None:
    async def main() -> None:
        pair = Pair()
        await pair.clock.advance(20 * limits.PING_SECONDS)
        assert pair.client.closed_error is None
        assert pair.server.closed_error is None
        assert set(pair.client_channel.kinds_sent()) == {Kind.PING}
        assert len(pair.client_channel.sent) <= 20

    asyncio.run(main())


def test_an_end_that_falls_silent_is_given_up() -> None:
    async def main() -> None:
        pair = pair_with(lambda request: None)
        future = pair.client.start_call(Method.READ, ASK.SerializeToString(), timeout=1e6)
        await settle()
        pair.server_channel.filter = lambda frame: []
        await pair.clock.advance((limits.SILENT_TICKS - 1) * limits.PING_SECONDS)
        assert pair.client.closed_error is None
        await pair.clock.advance(2 * limits.PING_SECONDS)
        assert isinstance(pair.client.closed_error, ConnectionLost)
        assert "sent nothing" in pair.client.closed_error.message
        assert isinstance(future.exception(), ConnectionLost)
        assert pair.client_channel.is_closed

    asyncio.run(main())


def test_an_end_that_takes_nothing_is_given_up() -> None:
    async def main() -> None:
        pair = Pair()
        pair.client_channel.set_writable(False)
        await pair.clock.advance((limits.SILENT_TICKS + 2) * limits.PING_SECONDS)
        assert isinstance(pair.client.closed_error, ConnectionLost)
        assert "took nothing" in pair.client.closed_error.message

    asyncio.run(main())


def test_a_busy_end_that_takes_something_now_and_then_is_not_given_up() -> None:
    async def main() -> None:
        pair = Pair()
        for _ in range(5 * limits.SILENT_TICKS):
            pair.client_channel.set_writable(False)
            await pair.clock.advance(limits.PING_SECONDS)
            pair.client_channel.set_writable(True)
            await settle()
        assert pair.client.closed_error is None

    asyncio.run(main())


def test_who_does_not_read_for_a_while_does_not_take_the_other_for_dead() -> None:
    async def main() -> None:
        pair = pair_with(lambda request: None)
        pair.server._service.overloaded = True
        pair.server._pause_or_resume()
        await pair.clock.advance(10 * limits.PING_SECONDS)
        assert pair.server.closed_error is None
        assert pair.client.closed_error is None, "it still says that it is here"

    asyncio.run(main())
