"""A client process of the tests: does one kind of work until SIGTERM, and records every operation.

    python -m tests.cluster.client_program --cluster URL --log LOG --name NAME --life N --role ROLE --folder DIR ...

Every payload is sent once only, except where sending again is the point: an append of unknown outcome is
settled by its token now and then, and a producer with an id sends its last batches again when it starts.
"""

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from tests.cluster.recording import Recorder

import varlog
from varlog.client.journal_lease import Lease
from varlog.runtime.loop import run
from varlog.sim.history import Chain, fingerprint, payload_bytes
from varlog.sim.reshaper import tell
from varlog.wire.proto import varlog_pb2 as pb

TIMEOUTS = (0.3, 2.0, 10.0)
"""Seconds that callers are willing to wait, unless they were told how long."""
LEAD_TTL_S = 0.5
"""So long a leader of a journal leads without a word."""
AT_ONCE = 4
"""Operations of one client under way."""
IN_FLIGHT = 16
"""Sends of a producer whose outcome is open."""
RETRIES = 3
"""How often an append of unknown outcome is sent again."""
REPEATED = 3
"""Batches that a producer with an id sends again when it starts."""
NUMBERED = 4
"""Batches that it has on their way at once."""
SPARED = 200
"""Positions behind the slowest subscriber that are not trimmed yet."""
LAST_LINES_BYTES = 1 << 16
"""The end of a file that surely has a whole line in it."""
ANY = (varlog.VarlogError,)
SETTLES = (varlog.Sealed, varlog.Junk)
"""Errors of a retry by which nothing that was sent under its token is in the log, now or later."""
EPOCH = datetime.fromtimestamp(0, UTC)


async def connected(cluster: varlog.Cluster) -> varlog.Cluster:
    """Open it, though the repository may be away just now."""
    while True:
        try:
            return await cluster.__aenter__()
        except (varlog.Unavailable, varlog.Timeout):
            await asyncio.sleep(0.05)


class Client:
    """One life of one client."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.name = f"{arguments.name}#{arguments.life}"
        self.folder = Path(arguments.folder)
        self.random = Random(f"{arguments.seed}/{self.name}")
        self.payload_bytes = arguments.payload_bytes
        self.pace_s = arguments.pace
        self.timeouts: tuple[float, ...] = TIMEOUTS if arguments.timeout is None else (arguments.timeout,)
        self.own_name: str = arguments.name
        self.stopping = asyncio.Event()
        # Whoever sees the recording may send the signal.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)
        self.recorder = Recorder(self.folder / f"{arguments.name}.{arguments.life}.jsonl", self.name, arguments.log)
        self._sent = 0
        self._lanes = 0

    async def run(self, url: str, log: str, role: str) -> None:
        self.cluster = cluster = await connected(varlog.connect(url))
        try:
            await ROLES[role](self, cluster.log(log))
        finally:
            await cluster.close()

    async def pause(self) -> None:
        await asyncio.sleep(self.random.expovariate(1 / self.pace_s))

    def timeout(self) -> float:
        return self.random.choice(self.timeouts)

    def payload(self) -> bytes:
        self._sent += 1
        return payload_bytes(f"{self.name}.{self._sent}", self.random.randint(0, self.payload_bytes))

    def lane(self) -> str:
        """A name for what one producer sends, which is in the log in the order sent."""
        self._lanes += 1
        return f"{self.name}/{self._lanes}"

    async def repeat(self, work: Callable[[], Awaitable[None]], at_once: int = AT_ONCE) -> None:
        """Do it again and again, several at once, until asked to stop; then finish."""

        async def one_after_the_other() -> None:
            while not self.stopping.is_set():
                await work()
                await self.pause()

        await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))

    async def settle(self, payloads: list[bytes], send: Awaitable[varlog.Ack]) -> varlog.ProducerToken | None:
        """Record how an append ends. The token, if its outcome is unknown and it can be sent again."""
        operation = self.recorder.begin("append", payloads=[fingerprint(payload) for payload in payloads])
        return await self.record_end(operation, send)

    async def record_end(
        self, operation: int, send: Awaitable[varlog.Ack], *, certain: tuple[type[varlog.VarlogError], ...] = ANY
    ) -> varlog.ProducerToken | None:
        """`certain`: errors of known outcome which say that no earlier attempt is in the log either."""
        try:
            ack = await send
        except varlog.VarlogError as error:
            refused = error.outcome_known and isinstance(error, certain)
            self.recorder.end(operation, error, outcome="refused" if refused else "unknown")
            token = error.token if isinstance(error, varlog.OutcomeUnknown) else None
            return token if isinstance(token, varlog.ProducerToken) else None
        self.recorder.end(operation, outcome="ack", first=ack.first, last=ack.last, stream=ack.stream)
        return None


# ---------------------------------------------------------------- writing


async def append(client: Client, log: varlog.Log) -> None:
    """Single appends, several at once; those of unknown outcome are sometimes settled."""

    async def one() -> None:
        payload = client.payload()
        token = await client.settle([payload], log.append(payload, timeout=client.timeout()))
        await _settle_again(client, log, [payload], token)

    await client.repeat(one)


async def append_batches(client: Client, log: varlog.Log) -> None:
    """Batches of several sizes."""

    async def one() -> None:
        payloads = [client.payload() for _ in range(client.random.choice((1, 2, 5, 20, 50)))]
        token = await client.settle(payloads, log.append_batch(payloads, timeout=client.timeout()))
        await _settle_again(client, log, payloads, token)

    await client.repeat(one, at_once=2)


async def lead(client: Client, log: varlog.Log) -> None:
    """A candidate for the lead of a journal; once elected, single appends, several at once, until it is fenced."""
    _note_words(client.folder / f"{client.own_name}.word")
    while not client.stopping.is_set():
        try:
            journal = client.cluster.journal(log.name)
            async with journal, journal.lead(ttl=LEAD_TTL_S, name=client.own_name, timeout=client.timeout()) as leader:
                await _append_as(client, leader)
        except varlog.VarlogError:
            await client.pause()  # not elected, or the repository is away


def _note_words(path: Path) -> None:
    """Keep in a file when the last word that the repository answered to was given, at the earliest."""
    plain = Lease._ask

    async def noted(lease: Lease, act: pb.Candidature, timeout: float) -> pb.LeadLogReply:
        given = time.monotonic()
        reply = await plain(lease, act, timeout)
        new = path.with_suffix(".new")
        new.write_text(str(given))
        new.replace(path)
        return reply

    setattr(Lease, "_ask", noted)  # noqa: B010 - a type checker would have it named as it was


async def _append_as(client: Client, leader: varlog.JournalLeader) -> None:
    async def one_after_the_other() -> None:
        error: varlog.VarlogError | None = None
        while not client.stopping.is_set() and not isinstance(error, varlog.Fenced):
            payload = client.payload()
            operation = client.recorder.begin("append", payloads=[fingerprint(payload)])
            error = await _record_led(client, operation, leader.append(payload, timeout=client.timeout()))
            await client.pause()

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))


async def _record_led(client: Client, operation: int, send: Awaitable[varlog.Ack]) -> varlog.VarlogError | None:
    try:
        ack = await send
    except varlog.VarlogError as error:
        client.recorder.end(operation, error, outcome="refused" if error.outcome_known else "unknown")
        return error
    client.recorder.end(operation, outcome="ack", first=ack.first, last=ack.last, stream=ack.stream)
    return None


async def _settle_again(
    client: Client, log: varlog.Log, payloads: list[bytes], token: varlog.ProducerToken | None
) -> None:
    for _ in range(RETRIES):
        if token is None or client.random.random() < 0.3:
            return
        operation = client.recorder.begin("append", payloads=[fingerprint(payload) for payload in payloads])
        # That this attempt was refused for another reason says nothing about the first one.
        token = await client.record_end(operation, log.retry(token, timeout=client.timeout()), certain=SETTLES)


async def produce(client: Client, log: varlog.Log) -> None:
    """A pipelined producer without a name; a new one whenever it has ended."""
    while not client.stopping.is_set():
        producer = log.producer(linger=client.random.choice((0.0, 0.002, 0.02)), timeout=client.timeout())
        try:
            await _pipeline(client, producer, client.lane())
        except varlog.VarlogError:
            await client.pause()
        finally:
            await _close(producer)


async def _pipeline(client: Client, producer: varlog.Producer, lane: str) -> None:
    """Send until told to stop, or for a while; whatever a send may come to is recorded by a task of its own."""
    open_ones: set[asyncio.Task[object]] = set()
    for _ in range(client.random.randint(50, 500)):
        if client.stopping.is_set():
            break
        payload = client.payload()
        operation = client.recorder.begin("append", payloads=[fingerprint(payload)], lane=lane)
        try:
            future = await producer.send(payload)
        except varlog.VarlogError as error:
            client.recorder.end(operation, error, outcome="refused" if error.outcome_known else "unknown")
            raise
        open_ones.add(task := asyncio.ensure_future(client.record_end(operation, future)))
        task.add_done_callback(open_ones.discard)
        if len(open_ones) >= IN_FLIGHT:
            await asyncio.wait(open_ones, return_when=asyncio.FIRST_COMPLETED)
        if client.random.random() < 0.1:
            await client.pause()
    if open_ones:
        await asyncio.wait(open_ones)


async def _close(producer: varlog.Producer) -> None:
    try:
        await producer.close()
    except varlog.VarlogError:
        pass  # each send has been told its own outcome


async def produce_named(client: Client, log: varlog.Log) -> None:
    """A producer with an id, whose batches are numbered: batch n is the same in every life, and in the log once."""
    while not client.stopping.is_set():
        producer = log.producer(id=client.own_name, timeout=client.timeout())
        try:
            await producer.open()
            lane = client.lane()
            # Their positions may be trimmed, and then nobody can tell them any more.
            await _send_numbered(client, producer, lane, max(0, producer.next_sequence - REPEATED), REPEATED)
            while not client.stopping.is_set():
                await client.pause()
                if not await _send_numbered(client, producer, lane, producer.next_sequence, NUMBERED):
                    break
        except varlog.VarlogError:
            await client.pause()  # it could not be opened
        finally:
            await _close(producer)


async def _send_numbered(client: Client, producer: varlog.Producer, lane: str, first: int, count: int) -> bool:
    """Some batches on their way at once. False: not all are in the log, so the producer has to be opened again."""
    outcomes: list[asyncio.Future[varlog.Ack]] = []
    records: list[Awaitable[object]] = []
    for sequence in range(first, first + count):
        payloads = _numbered_batch(client, sequence)
        operation = client.recorder.begin("append", payloads=[fingerprint(each) for each in payloads], lane=lane)
        try:
            outcomes.append(await producer.send_batch(payloads, sequence=sequence))
        except varlog.VarlogError as error:
            # That it was refused now says nothing about an earlier life.
            client.recorder.end(operation, error, outcome="unknown")
            break
        records.append(asyncio.ensure_future(client.record_end(operation, outcomes[-1], certain=())))
    await asyncio.gather(*records)
    return len(outcomes) == count and all(outcome.exception() is None for outcome in outcomes)


def _numbered_batch(client: Client, sequence: int) -> list[bytes]:
    chance = Random(f"{client.own_name}/{sequence}")
    sizes = [chance.randint(0, client.payload_bytes) for _ in range(chance.randint(1, 5))]
    return [payload_bytes(f"{client.own_name}:{sequence}.{at}", size) for at, size in enumerate(sizes)]


# ---------------------------------------------------------------- reading


async def subscribe(client: Client, log: varlog.Log) -> None:
    """Everything from where the last life got to, for ever, by entries or by batches."""
    await _subscribe(client, log, by_entry=client.random.random() < 0.5)


async def subscribe_stream(client: Client, log: varlog.Log) -> None:
    """The entries of the first stream alone."""
    await _subscribe(client, log, by_entry=False, stream=1)


async def _subscribe(client: Client, log: varlog.Log, *, by_entry: bool, stream: int | None = None) -> None:
    position = _Position(client.folder / f"{client.own_name}.position")
    while not client.stopping.is_set():
        operation = client.recorder.begin("subscription", first=position.last + 1, stream=stream or 0)
        try:
            subscription = log.subscribe(start=position.last + 1, stream=stream)
            if by_entry:
                async for entry in subscription:
                    client.recorder.seen(operation, [entry.glsn], [fingerprint(entry.payload)])
                    position.move(entry.glsn)
            else:
                async for batch in subscription.batches():
                    entries = list(batch.entries())
                    client.recorder.seen(
                        operation, [entry.glsn for entry in entries], [fingerprint(entry.payload) for entry in entries]
                    )
                    position.move(entries[-1].glsn)
        except varlog.Trimmed as error:
            client.recorder.end(operation, error)
            position.move(error.first - 1)
        except varlog.VarlogError as error:
            client.recorder.end(operation, error)
            await client.pause()


class _Position:
    """The last position a subscriber was given, in a file that outlives it; whoever trims looks at it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.last = int(os.pread(self._file, 20, 0) or b"0")

    def move(self, last: int) -> None:
        self.last = last
        os.pwrite(self._file, b"%020d" % last, 0)


async def look(client: Client, log: varlog.Log) -> None:
    """Tails, reads of positions that exist, exist no more and do not exist yet, searches by time, and the chain."""
    known = [1]
    began = time.time()

    async def one() -> None:
        kind = client.random.choice((_tail, _read, _read, _find, _chain))
        await kind(client, log, known, began)

    await client.repeat(one)


async def _tail(client: Client, log: varlog.Log, known: list[int], _: float) -> None:
    operation = client.recorder.begin("tail")
    try:
        known[0] = max(known[0], tail := await log.tail(timeout=client.timeout()))
    except varlog.VarlogError as error:
        client.recorder.end(operation, error)
    else:
        client.recorder.end(operation, tail=tail)


async def _read(client: Client, log: varlog.Log, known: list[int], _: float) -> None:
    newest = client.random.random() < 0.7
    glsn = client.random.randint(max(1, known[0] - SPARED) if newest else 1, known[0] + 2)
    operation = client.recorder.begin("read", glsn=glsn)
    try:
        entry = await log.read(glsn, timeout=client.timeout())
    except varlog.VarlogError as error:
        client.recorder.end(operation, error)
    else:
        client.recorder.end(
            operation,
            payload=fingerprint(entry.payload),
            stream=entry.stream,
            slot=entry.slot,
            time_us=(entry.time - EPOCH) // timedelta(microseconds=1),
        )


async def _find(client: Client, log: varlog.Log, _: list[int], began: float) -> None:
    time_us = int(client.random.uniform(began - 1.0, time.time() + 1.0) * 1e6)
    operation = client.recorder.begin("find", time_us=time_us)
    try:
        glsn = await log.find(EPOCH + timedelta(microseconds=time_us), timeout=client.timeout())
    except varlog.VarlogError as error:
        client.recorder.end(operation, error)
    else:
        client.recorder.end(operation, glsn=glsn)


async def _chain(client: Client, log: varlog.Log, _: list[int], began: float) -> None:
    operation = client.recorder.begin("chain")
    told = Chain()
    try:
        tell(told, await log.info())
    except varlog.VarlogError as error:
        client.recorder.end(operation, error)
    else:
        client.recorder.end(
            operation,
            segments=told.segments,
            streams=told.streams,
            orderings=told.orderings,
            trimmed=told.trimmed,
        )


async def trim(client: Client, log: varlog.Log) -> None:
    """Gives up what every subscriber has had."""

    async def one() -> None:
        positions = [int(path.read_bytes() or b"0") for path in client.folder.glob("*.position")]
        positions += [_last_printed(path) for path in client.folder.glob("tail.*.out")]
        upto = min(positions, default=0) - SPARED
        if upto < 1:
            return
        operation = client.recorder.begin("trim", upto=upto)
        try:
            await log.trim(upto, timeout=client.timeout())
        except varlog.VarlogError as error:
            client.recorder.end(operation, error)
        else:
            client.recorder.end(operation, done=True)

    await client.repeat(one, at_once=1)


def _last_printed(path: Path) -> int:
    """The last position that a `varlog tail -o json` has printed in a whole line."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_LINES_BYTES))
        lines = file.read().split(b"\n")[:-1]
    return int(json.loads(lines[-1])["glsn"]) if lines else 0


ROLES: dict[str, Callable[[Client, varlog.Log], Awaitable[None]]] = {
    "append": append,
    "batches": append_batches,
    "producer": produce,
    "named": produce_named,
    "subscribe": subscribe,
    "subscribe-stream": subscribe_stream,
    "lead": lead,
    "look": look,
    "trim": trim,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    for name in ("cluster", "log", "name", "folder", "seed"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--role", choices=ROLES, required=True)
    parser.add_argument("--payload-bytes", type=int, default=500)
    parser.add_argument("--pace", type=float, default=0.05, help="mean pause between operations, in seconds")
    parser.add_argument("--timeout", type=float, help="of every operation, in seconds; without, drawn for each")
    parsed = parser.parse_args(arguments)

    async def life() -> None:
        await Client(parsed).run(parsed.cluster, parsed.log, parsed.role)

    run(life())


if __name__ == "__main__":
    main()
