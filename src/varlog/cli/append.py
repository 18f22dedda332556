"""`varlog append`: standard input or a file into a log, as one entry or an entry a line."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varlog.base.errors import InvalidArgument, TooLarge, VarlogError
from varlog.base.limits import ENTRY_BYTES
from varlog.cli.frame import Arguments, Commands, add_command, positive, with_cluster
from varlog.cli.output import Printer
from varlog.cli.progress import Progress

if TYPE_CHECKING:
    from varlog.client import Ack, Cluster, Log, Producer

CHUNK_BYTES = 1 << 20
"""Read at once; with the producer's own bound, all the memory that a large input takes."""

GROUP_LINES = 256
"""So many lines are sent before it is looked whether one has failed."""


def register(commands: Commands, summary: str) -> None:
    parser = add_command(commands, "append", append, summary)
    parser.add_argument("log")
    parser.add_argument("--file", metavar="F", help="read this file, not standard input")
    parser.add_argument("--lines", action="store_true", help="every line is an entry (default: all of it is one)")
    parser.add_argument("--key", help="of every entry")
    parser.add_argument(
        "--expect",
        type=positive,
        metavar="N",
        help="append at position N or not at all, where the ordering can (sequencer); not with --lines",
    )


def append(arguments: Arguments) -> None:
    if arguments.lines and arguments.expect is not None:
        raise InvalidArgument("--expect is of one entry: it does not go with --lines")
    if not arguments.file and sys.stdin is None:
        raise InvalidArgument("there is no standard input to append: give --file")
    source = os.open(arguments.file, os.O_RDONLY) if arguments.file else sys.stdin.fileno()
    if stat.S_ISDIR(os.fstat(source).st_mode):
        raise InvalidArgument(f"{arguments.file or 'standard input'} is a folder: only a file can be appended")
    key = None if arguments.key is None else os.fsencode(arguments.key)  # the very bytes that were typed
    if not arguments.file and sys.stdin.isatty():
        print("reading from the terminal; Ctrl-D ends it", file=sys.stderr)

    async def work(cluster: "Cluster") -> dict[str, Any]:
        log = cluster.log(arguments.log)
        if arguments.lines:
            return await _append_lines(log, source, key)
        ack = await log.append(await _everything(source), key=key, expect=arguments.expect)
        return {"entries": 1, "first": ack.first, "last": ack.last}

    try:
        facts = with_cluster(arguments, work)
    finally:
        if arguments.file:
            os.close(source)
    Printer(arguments.output).done(facts, _summary(arguments.log, **facts))


def _summary(log: str, entries: int, first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return f"nothing to append to {log}"
    if entries == 1:
        return f"appended 1 entry to {log} at {first:,}"
    return f"appended {entries:,} entries to {log} at {first:,}..{last:,}"


async def _read(source: int) -> bytes:
    """The next bytes; none at the end. A thread that waits for input cannot be called back, and is not waited for."""
    chunk: Future[bytes] = Future()
    chunk.set_running_or_notify_cancel()
    threading.Thread(target=_fill, args=(chunk, source), name="varlog input", daemon=True).start()
    return await asyncio.wrap_future(chunk)


def _fill(chunk: "Future[bytes]", source: int) -> None:
    try:
        chunk.set_result(os.read(source, CHUNK_BYTES))
    except OSError as error:
        chunk.set_exception(error)


async def _everything(source: int) -> bytes:
    data = bytearray()
    while chunk := await _read(source):
        data += chunk
        if len(data) > ENTRY_BYTES:
            raise TooLarge(
                f"the input is larger than an entry may be ({ENTRY_BYTES:,} bytes); see --lines", ENTRY_BYTES
            )
    return bytes(data)


@dataclass(eq=False, slots=True)
class Appended:
    """Lines from the first on of which each is acknowledged, and how many a producer was given."""

    sent: int = 0
    count: int = 0
    first: "Ack | None" = None
    last: "Ack | None" = None

    async def see(self, futures: "list[asyncio.Future[Ack]]") -> None:
        for future in futures:
            self.last = await future
            self.first = self.first or self.last
            self.count += 1

    def facts(self) -> dict[str, Any]:
        first, last = self.first, self.last
        return {"entries": self.count, "first": first and first.first, "last": last and last.last}

    def explain(self, error: VarlogError, log: str) -> VarlogError:
        """The same error, with what is in the log and what is not, and how to go on."""
        known, onward = "no line is acknowledged", self.count + 1
        if self.first is not None and self.last is not None:
            known = f"{self.count:,} lines are acknowledged, at {self.first.first:,}..{self.last.last:,}"
        if self.sent > self.count:
            rest = (
                f"and lines {onward:,} to {self.sent:,} may be in the log or not:"
                f" see `varlog tail {log}`, then append what it lacks, from line {onward:,} on"
            )
        else:
            rest = f"and nothing behind was sent: append again from line {onward:,} on"
        return type(error)(f"{error.message}; {known}, {rest}", error.value)


async def _append_lines(log: "Log", source: int, key: bytes | None) -> dict[str, Any]:
    """Nothing is sent behind a line that is known to have failed: the log would lack it in the middle."""
    appended = Appended()
    groups: asyncio.Queue[list[asyncio.Future[Ack]] | None] = asyncio.Queue()
    async with log.producer() as producer:
        sending = asyncio.ensure_future(_send_lines(producer, source, key, appended, groups))
        try:
            while (futures := await groups.get()) is not None:
                await appended.see(futures)
            await sending
        except VarlogError as error:
            producer.abort()  # what waits in it is not sent any more
            raise appended.explain(error, log.name) from error
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    return appended.facts()


async def _send_lines(
    producer: "Producer",
    source: int,
    key: bytes | None,
    appended: Appended,
    groups: "asyncio.Queue[list[asyncio.Future[Ack]] | None]",
) -> None:
    """By the group, so that who waits for the acks hears of each soon; None is the end."""
    status = os.fstat(source)
    total = status.st_size if stat.S_ISREG(status.st_mode) else 0
    futures: list[asyncio.Future[Ack]] = []
    try:
        with Progress("bytes", total=total) as progress:
            async for lines in _lines(source):
                for line in lines:
                    futures.append(await producer.send(line, key=key))
                    appended.sent += 1
                    if len(futures) == GROUP_LINES:
                        groups.put_nowait(futures)
                        futures = []
                groups.put_nowait(futures)
                futures = []
                progress.advance(sum(map(len, lines)) + len(lines), note=f"{appended.sent:,} entries")
    finally:
        groups.put_nowait(futures)
        groups.put_nowait(None)


async def _lines(source: int) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, as they come; the last need not have one."""
    rest = b""
    while chunk := await _read(source):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > ENTRY_BYTES:
            raise TooLarge(f"a line is larger than an entry may be ({ENTRY_BYTES:,} bytes)", ENTRY_BYTES)
        if lines:
            yield lines
    if rest:
        yield [rest]
