"""`varlog append`: standard input or a file into a log, as one entry or an entry a line."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from varlog.base.errors import InvalidArgument, TooLarge
from varlog.base.limits import ENTRY_BYTES
from varlog.cli.frame import Arguments, Commands, add_command, with_cluster
from varlog.cli.output import Printer
from varlog.cli.progress import Progress

if TYPE_CHECKING:
    from varlog.client import Ack, Cluster, Log

CHUNK_BYTES = 1 << 20
"""Read at once; with the producer's own bound, all the memory that a large input takes."""


def register(commands: Commands, summary: str) -> None:
    parser = add_command(commands, "append", append, summary)
    parser.add_argument("log")
    parser.add_argument("--file", metavar="F", help="read this file, not standard input")
    parser.add_argument("--lines", action="store_true", help="every line is an entry (default: all of it is one)")
    parser.add_argument("--key", help="of every entry")


def append(arguments: Arguments) -> None:
    if not arguments.file and sys.stdin is None:
        raise InvalidArgument("there is no standard input to append: give --file")
    source = os.open(arguments.file, os.O_RDONLY) if arguments.file else sys.stdin.fileno()
    key = None if arguments.key is None else os.fsencode(arguments.key)  # the very bytes that were typed
    if not arguments.file and sys.stdin.isatty():
        print("reading from the terminal; Ctrl-D ends it", file=sys.stderr)

    async def work(cluster: "Cluster") -> dict[str, Any]:
        log = cluster.log(arguments.log)
        if arguments.lines:
            return await _append_lines(log, source, key)
        ack = await log.append(await _everything(source), key=key)
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


async def _append_lines(log: "Log", source: int, key: bytes | None) -> dict[str, Any]:
    """A producer keeps the order, so the first and the last ack tell all."""
    sent = 0
    first: asyncio.Future[Ack] | None = None
    last: asyncio.Future[Ack] | None = None
    status = os.fstat(source)
    total = status.st_size if stat.S_ISREG(status.st_mode) else 0
    with Progress("bytes", total=total) as progress:
        async with log.producer() as producer:
            async for lines in _lines(source):
                for line in lines:
                    last = await producer.send(line, key=key)
                    first = first or last
                sent += len(lines)
                progress.advance(sum(map(len, lines)) + len(lines), note=f"{sent:,} entries")
    if first is None or last is None:
        return {"entries": 0, "first": None, "last": None}
    return {"entries": sent, "first": (await first).first, "last": (await last).last}


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
