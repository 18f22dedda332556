"""`varlog append`: standard input or a file into a log, as one entry or an entry a line."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from varlog.base.errors import TooLarge
from varlog.base.limits import ENTRY_BYTES
from varlog.cli.frame import Arguments, Commands, add_command, cluster_url
from varlog.cli.output import Printer
from varlog.cli.progress import Progress

if TYPE_CHECKING:
    from varlog.client import Log

CHUNK_BYTES = 1 << 20
"""Read at once; with the producer's own bound, all the memory that a large input takes."""


def register(commands: Commands) -> None:
    parser = add_command(commands, "append", append, "append standard input, or a file, to a log")
    parser.add_argument("log")
    parser.add_argument("--file", metavar="F", help="read this file, not standard input")
    parser.add_argument("--lines", action="store_true", help="every line is an entry (default: all of it is one)")
    parser.add_argument("--key", help="of every entry")


def append(arguments: Arguments) -> None:
    from varlog.runtime.loop import run

    source = os.open(arguments.file, os.O_RDONLY) if arguments.file else sys.stdin.fileno()
    if not arguments.file and sys.stdin.isatty():
        print("reading from the terminal; Ctrl-D ends it", file=sys.stderr)
    try:
        facts = run(_append(arguments, source))
    finally:
        if arguments.file:
            os.close(source)
    what = "1 entry" if facts["entries"] == 1 else f"{facts['entries']:,} entries"
    where = (
        f" at {facts['first']:,}" + (f"..{facts['last']:,}" if facts["entries"] > 1 else "") if facts["entries"] else ""
    )
    Printer(arguments.output).done(facts, f"appended {what} to {arguments.log}{where}")


async def _append(arguments: Arguments, source: int) -> dict[str, Any]:
    from varlog.client import connect

    key = arguments.key.encode() if arguments.key else None
    async with connect(cluster_url(arguments)) as cluster:
        log = cluster.log(arguments.log)
        if arguments.lines:
            return await _append_lines(log, source, key)
        ack = await log.append(await _everything(source), key=key)
        return {"entries": 1, "first": ack.first, "last": ack.last}


async def _everything(source: int) -> bytes:
    data = bytearray()
    while chunk := await asyncio.to_thread(os.read, source, CHUNK_BYTES):
        data += chunk
        if len(data) > ENTRY_BYTES:
            raise TooLarge(
                f"the input is larger than an entry may be ({ENTRY_BYTES:,} bytes); see --lines", ENTRY_BYTES
            )
    return bytes(data)


class Acks:
    """Where the entries went, and the first thing that went wrong."""

    def __init__(self) -> None:
        self.entries = 0
        self.first: int | None = None
        self.last: int | None = None
        self.error: BaseException | None = None

    def note(self, future: "asyncio.Future[Any]") -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None or future.cancelled():
            self.error = self.error or error
            return
        ack = future.result()
        self.entries += 1
        self.first = ack.first if self.first is None else min(self.first, ack.first)
        self.last = ack.last if self.last is None else max(self.last, ack.last)


async def _append_lines(log: "Log", source: int, key: bytes | None) -> dict[str, Any]:
    acks = Acks()
    status = os.fstat(source)
    total = status.st_size if stat.S_ISREG(status.st_mode) else 0
    with Progress("bytes", total=total) as progress:
        async with log.producer() as producer:
            async for lines in _lines(source):
                for line in lines:
                    (await producer.send(line, key=key)).add_done_callback(acks.note)
                if acks.error is not None:
                    break
                progress.advance(sum(map(len, lines)) + len(lines), note=f"{acks.entries:,} entries acknowledged")
            await producer.flush()
    if acks.error is not None:
        raise acks.error
    return {"entries": acks.entries, "first": acks.first, "last": acks.last}


async def _lines(source: int) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, as they come; the last need not have one."""
    rest = b""
    while chunk := await asyncio.to_thread(os.read, source, CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > ENTRY_BYTES:
            raise TooLarge(f"a line is larger than an entry may be ({ENTRY_BYTES:,} bytes)", ENTRY_BYTES)
        if lines:
            yield lines
    if rest:
        yield [rest]
