"""Random and mutated bytes against a real listening server: it never falls, hangs, bloats or troubles others.

Each case is one connection that sends something wrong, in pieces of random sizes. A witness on a
connection of its own keeps calling; at the end the server must be as idle as it was.
"""

import asyncio
import gc
import resource
from collections.abc import Callable
from random import Random

import pytest

from varlog.base.errors import InvalidArgument, VarlogError
from varlog.base.limits import FRAME_BYTES, HEADER_BYTES
from varlog.runtime.loop import loop_factory
from varlog.transport import limits
from varlog.transport.peer import Peer, Request, Server, connect, serve
from varlog.transport.tcp import parse_address
from varlog.transport.world import real_world
from varlog.wire.frame import CREDIT, FRAME, PREFACE, Kind, encode_frame
from varlog.wire.methods import MESSAGES, Method
from varlog.wire.proto import varlog_pb2 as pb

CASES = 250
CASE_SECONDS = 60.0
"""A case that takes longer hangs; an untroubled one takes milliseconds."""

CLAIMS = 60

Make = Callable[[Random], bytes]


# ---------------------------------------------------------------- what is sent


def noise(random: Random) -> bytes:
    return random.randbytes(random.randrange(1, 2000))


def preface_and_noise(random: Random) -> bytes:
    return PREFACE + noise(random)


def good_frame(random: Random) -> bytes:
    """A frame as a peer could send it: any kind, any method, a message that may or may not fit."""
    method = random.choice([*Method, 0, 99, 255])
    if isinstance(method, Method) and random.random() < 0.8:
        header = MESSAGES[method][0]().SerializeToString()
    else:
        header = random.randbytes(random.randrange(30))
    kind = random.choice(list(Kind))
    if kind == Kind.CREDIT and random.random() < 0.8:
        header = CREDIT.pack(random.getrandbits(random.choice([1, 20, 64])))
    return b"".join(
        encode_frame(
            kind,
            method,
            random.choice([0, 1, 2, random.getrandbits(32)]),
            header,
            [random.randbytes(random.choice([0, 3, 500, 20_000]))],
            flags=random.choice([0, 0, 1, 2, 0xFFFF]),
            timeout_ms=random.choice([0, 1, 100, 0xFFFFFFFF]),
        )
    )


def good_frames(random: Random) -> bytes:
    return PREFACE + b"".join(good_frame(random) for _ in range(random.randrange(1, 30)))


def mutated_frames(random: Random) -> bytes:
    """Good frames with a few bytes changed, doubled or left out."""
    data = bytearray(good_frames(random))
    for _ in range(random.randrange(1, 6)):
        at = random.randrange(len(data))
        match random.randrange(4):
            case 0:
                data[at] ^= 1 << random.randrange(8)
            case 1:
                data[at:at] = random.randbytes(random.randrange(1, 9))
            case 2:
                del data[at : at + random.randrange(1, 9)]
            case _:
                data[at:at] = data[at : at + random.randrange(1, 40)]
    return bytes(data)


def cut_off_frames(random: Random) -> bytes:
    data = good_frames(random)
    return data[: random.randrange(len(data))]


def wild_header(random: Random) -> bytes:
    """A fixed header whose lengths are anything, and some bytes behind it."""

    def length() -> int:
        near = random.choice([0, 15, 16, 17, HEADER_BYTES, FRAME_BYTES - 4, FRAME_BYTES, 1 << 31, 0xFFFFFFFF])
        return min(0xFFFFFFFF, max(0, near + random.randrange(-2, 3)))

    header = FRAME.pack(
        length(),
        random.choice([*Kind, 0, 9, 255]),
        random.randrange(256),
        random.getrandbits(16),
        random.getrandbits(32),
        random.getrandbits(32),
        random.choice([0, 1, length()]),
    )
    return PREFACE + header + random.randbytes(random.randrange(100_000))


MAKERS: list[Make] = [noise, preface_and_noise, good_frames, mutated_frames, cut_off_frames, wild_header]


# ---------------------------------------------------------------- who it is sent to


def plain(request: Request) -> None:
    if len(request.body) % 7 == 6:
        raise ZeroDivisionError("a defect of a handler")
    request.reply(MESSAGES[request.method][1](), [request.body])


async def slow(request: Request) -> None:
    await asyncio.sleep(0.001)
    plain(request)


async def parts(request: Request) -> None:
    for index in range(5):
        await request.part(MESSAGES[request.method][1](), [bytes(100_000)], end=index == 4)


def never(request: Request) -> None:
    """Leaves it to the deadline or the end of the connection."""


def handlers_for(random: Random) -> dict[Method, Callable[[Request], object]]:
    chosen: dict[Method, Callable[[Request], object]] = {
        method: random.choice([plain, slow, parts, never]) for method in Method if method != Method.SEAL
    }
    return chosen | {Method.TAIL: plain}


EXPECTED = {ZeroDivisionError, InvalidArgument}
"""What may be reported: the defect above, and pushes that a handler answers by parts."""


class Fuzz:
    """A server, its witness, and what went wrong with handlers (which is theirs to do)."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.server: Server
        self.witness: Peer
        self.defects: list[BaseException] = []

    async def __aenter__(self) -> "Fuzz":
        handlers = handlers_for(self.random)
        world = real_world()
        self.server = await serve(world, "127.0.0.1:0", handlers, on_defect=self.defects.append)  # type: ignore[arg-type]
        self.witness = await connect(world, self.server.address, timeout=CASE_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.witness.close()
        await self.server.close()
        await self.witness.wait_closed()

    async def case(self, data: bytes) -> None:
        """One connection from its beginning to its end."""
        reader, writer = await asyncio.open_connection(*parse_address(self.server.address))
        reading = asyncio.ensure_future(_read_all(reader)) if self.random.random() < 0.8 else None
        try:
            while data:
                size = self.random.choice([1, 7, 100, 5000, len(data)])
                writer.write(data[:size])
                data = data[size:]
                if self.random.random() < 0.2:
                    await asyncio.sleep(0)
            await writer.drain()
            if self.random.random() < 0.5:
                writer.write_eof()
            else:
                await asyncio.sleep(self.random.choice([0, 0.001, 0.01]))
        except (OSError, RuntimeError):
            pass  # the server has hung up, as it may; uvloop says so by a RuntimeError
        finally:
            writer.close()
            if reading is not None:
                await reading

    async def witness_is_served(self) -> None:
        reply = await self.witness.call(Method.TAIL, pb.TailRequest(), [b"still"], timeout=CASE_SECONDS)
        assert reply.body == b"still"

    async def is_idle(self) -> None:
        """Nobody is left but the witness, and nothing is being handled."""
        while len(self.server.peers) != 1:
            await asyncio.sleep(0.005)
        service = self.server.peers[0]._service
        assert (service._handling, service._handling_bytes, service._streams) == (0, 0, 0)


async def _read_all(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(1 << 16):
            pass
    except OSError:
        pass  # an aborted connection ends like this


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("loop", ["asyncio", "best"])
def test_a_server_survives(make: Make, loop: str) -> None:
    async def main() -> None:
        async with Fuzz(Random(f"{make.__name__}/{loop}")) as fuzz:
            for number in range(CASES):
                try:
                    await asyncio.wait_for(fuzz.case(make(fuzz.random)), CASE_SECONDS)
                    if number % 10 == 9:
                        await fuzz.witness_is_served()
                except (TimeoutError, VarlogError) as error:
                    raise AssertionError(f"case {number} of {make.__name__}") from error
            await asyncio.wait_for(fuzz.is_idle(), CASE_SECONDS)
            await fuzz.witness_is_served()
            assert {type(defect) for defect in fuzz.defects} <= EXPECTED, fuzz.defects

    factory = loop_factory() if loop == "best" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


def test_claims_of_huge_frames_take_no_memory() -> None:
    """Many connections each promise the largest frame there is and send little of it."""

    async def main() -> None:
        claim = PREFACE + FRAME.pack(FRAME_BYTES - 4, Kind.REQUEST, Method.TAIL, 0, 1, 1000, 0) + bytes(100)
        async with Fuzz(Random(1)) as fuzz:
            await fuzz.witness_is_served()
            gc.collect()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            writers = []
            for _ in range(CLAIMS):
                _, writer = await asyncio.open_connection(*parse_address(fuzz.server.address))
                writer.write(claim)
                writers.append(writer)
            while len(fuzz.server.peers) <= CLAIMS:
                await asyncio.sleep(0.005)
            await fuzz.witness_is_served()
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
            assert grown < CLAIMS * (limits.GROW_BYTES + limits.RECEIVE_BUFFER_BYTES), f"{grown >> 20} MiB"
            for writer in writers:
                writer.close()
            await fuzz.is_idle()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def test_who_asks_without_reading_the_answers_is_held_back() -> None:
    """A flood of requests for large answers, none of which is read: the server stops taking requests."""

    async def main() -> None:
        handled = 0
        answer = bytes(1 << 20)

        def large(request: Request) -> None:
            nonlocal handled
            handled += 1
            request.reply(pb.TailReply(), [answer])

        server = await serve(real_world(), "127.0.0.1:0", {Method.TAIL: large})
        witness = await connect(real_world(), server.address, timeout=CASE_SECONDS)
        reader, writer = await asyncio.open_connection(*parse_address(server.address))
        await reader.readexactly(len(PREFACE))
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # nothing is taken from the socket any more
        asked = 5000
        requests = [encode_frame(Kind.REQUEST, Method.TAIL, n, timeout_ms=60_000)[0] for n in range(1, asked)]
        writer.write(PREFACE + b"".join(requests))
        most = limits.ANSWERS_WAITING_BYTES + limits.WRITE_HIGH_BYTES
        for _ in range(20):
            await witness.call(Method.TAIL, pb.TailRequest(), timeout=CASE_SECONDS)
        # One read may bring as many requests as the receive buffer holds: those are still answered.
        one_read = limits.RECEIVE_BUFFER_BYTES // len(requests[0]) + 1
        assert handled - 20 <= most // len(answer) + one_read
        assert handled - 20 < asked - 1
        writer.close()
        witness.close()
        await server.close()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
