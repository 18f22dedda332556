"""`varlog demo`: a real cluster at work, processes killed under it, and the proof that nothing was lost."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varlog.base.errors import VarlogError
from varlog.cli.frame import Arguments, Commands, add_command
from varlog.cli.output import Printer, styled

if TYPE_CHECKING:
    from varlog.cli.supervisor import Supervisor
    from varlog.client import Cluster, Log

WRITERS = 2
PHASE_S = 2.0
"""How long all is well before and after each blow."""
PACE_S = 0.002
"""Between two entries of a writer: this is a demonstration, not a benchmark."""
TIMEOUT_S = 60.0


def register(commands: Commands, summary: str) -> None:
    add_command(
        commands,
        "demo",
        demo,
        summary,
        epilog="Everything is in a temporary folder and gone afterwards. `varlog up` runs a cluster that stays.",
        hints="server",
    )


def demo(arguments: Arguments) -> None:
    from varlog.runtime.loop import run

    folder = Path(tempfile.mkdtemp(prefix="varlog-demo-"))
    try:
        seen = run(_demo(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    facts = {
        "acknowledged": len(seen.acked),
        "entries": len(seen.read),
        "longest_pause_s": round(seen.longest_pause, 2),
        "entries_each_second": seen.each_second,
    }
    Printer(arguments.output).done(facts, _verdict(seen))


@dataclass
class Seen:
    """What writers were promised and what the reader got."""

    acked: dict[bytes, int] = field(default_factory=dict)
    """Position of every acknowledged entry."""
    read: list[tuple[int, bytes]] = field(default_factory=list)
    last_begun: dict[int, float] = field(default_factory=dict)
    """When each writer began its latest acknowledged append."""
    longest_pause: float = 0.0
    """That a writer had to wait for an acknowledgement."""
    each_second: list[int] | None = None
    """As a streaming query of Spark counted them; None without Spark."""

    def check(self) -> None:
        """Every acknowledged entry is at its position, once, and there is no gap."""
        positions = [position for position, _ in self.read]
        if positions != list(range(1, len(positions) + 1)):
            raise VarlogError("the subscriber saw a gap or a repetition")
        payloads = [payload for _, payload in self.read]
        if len(set(payloads)) != len(payloads):
            raise VarlogError("an entry is in the log twice")
        for payload, position in self.acked.items():
            if position > len(payloads) or payloads[position - 1] != payload:
                raise VarlogError(f"the acknowledged entry {payload!r} is not at its position {position}")


def _verdict(seen: Seen) -> str:
    pause = f"the longest wait for one was {seen.longest_pause:.1f} s"
    return (
        f"{len(seen.acked):,} appends acknowledged, {pause}; the subscriber read {len(seen.read):,} entries: "
        "none lost, none twice, no gap, each at its position"
    )


async def _demo(folder: Path) -> Seen:
    from varlog.cli.bring_up import appends_work, bring_up
    from varlog.cli.supervisor import Supervisor
    from varlog.client import connect

    supervisor = Supervisor(folder, restart=True, tell=lambda text: _say(f"supervisor: {text}"))
    try:
        _say("starting three storage nodes and a repository, each its own process")
        url = await bring_up(supervisor, nodes=3, port=0)
        await appends_work(url, supervisor)
        for child in supervisor.children:
            _say(f"  {child}  {child.address}  pid {child.pid}")
        async with connect(url, timeout=TIMEOUT_S) as cluster:
            seen = await _play(cluster, supervisor)
        await _query(url, folder, seen)
        return seen
    finally:
        await supervisor.stop()


async def _play(cluster: "Cluster", supervisor: "Supervisor") -> Seen:
    log = await cluster.create_log("demo", replicas=3, streams=WRITERS)
    _say(f"created the log `demo`: 3 replicas, {WRITERS} streams; {WRITERS} writers and a subscriber begin")
    seen, stop = Seen(), asyncio.Event()
    writers = [asyncio.ensure_future(_write(log, number, seen, stop)) for number in range(1, WRITERS + 1)]
    reader = asyncio.ensure_future(_read(log, seen))
    try:
        for role, number in (("node", 2), ("repository", 1), ("node", 1)):
            await asyncio.sleep(PHASE_S)
            await _unless_failed(_kill(supervisor, role, number, seen), writers)
        await asyncio.sleep(PHASE_S)
        stop.set()
        await asyncio.gather(*writers)
        tail = await log.tail()
        _say(f"writers are done, the log ends at {tail:,}; waiting for the subscriber")
        while len(seen.read) < tail:
            await asyncio.sleep(0.01)
            if reader.done():
                reader.result()
        seen.check()
        return seen
    finally:
        for task in (*writers, reader):
            task.cancel()
        await asyncio.gather(*writers, reader, return_exceptions=True)


async def _query(url: str, folder: Path, seen: Seen) -> None:
    """Let Spark read the log as a stream; what it counts must be what was read."""
    from varlog.cli import demo_query
    from varlog.cli.small_spark import why_not

    if missing := why_not():
        _say(f"no Spark here, so no query: {missing}")
        return
    _say("now Spark: a streaming query over the log counts its entries, by writer and by second; it takes some seconds")
    result = await asyncio.to_thread(demo_query.query, url, "demo", folder)
    if result.entries != len(seen.read):
        raise VarlogError(f"the streaming query counted {result.entries} entries, the log has {len(seen.read)}")
    seen.each_second = result.seconds
    for line in demo_query.page(result):
        print(line, file=sys.stderr)


async def _unless_failed(work: Coroutine[Any, Any, None], writers: "list[asyncio.Task[None]]") -> None:
    """A writer that fails ends the wait for it."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait((working, *writers), return_when=asyncio.FIRST_COMPLETED)
        for done in (*writers, working):
            if done.done():
                done.result()
    finally:
        working.cancel()


async def _write(log: "Log", number: int, seen: Seen, stop: asyncio.Event) -> None:
    """One entry after the other, each acknowledged before the next."""
    count = 0
    while not stop.is_set():
        payload = b"writer %d, entry %d" % (number, count)
        started = time.monotonic()
        ack = await log.append(payload)
        seen.longest_pause = max(seen.longest_pause, time.monotonic() - started)
        seen.acked[payload] = ack.glsn
        seen.last_begun[number] = started
        count += 1
        await asyncio.sleep(PACE_S)


async def _read(log: "Log", seen: Seen) -> None:
    async for entry in log.subscribe(start=1):
        seen.read.append((entry.glsn, entry.payload))


async def _kill(supervisor: "Supervisor", role: str, number: int, seen: Seen) -> None:
    """Returns when every writer had an acknowledgement of something it began after the blow."""
    child = next(child for child in supervisor.children if (child.role, child.number) == (role, number))
    _say(f"{len(seen.acked):,} appends acknowledged; kill -9 {child} (pid {child.pid})")
    os.kill(child.pid, signal.SIGKILL)
    struck = time.monotonic()
    while len(seen.last_begun) < WRITERS or min(seen.last_begun.values()) < struck:  # noqa: ASYNC110 - a look is enough
        await asyncio.sleep(0.005)
    _say(f"appends go on, {time.monotonic() - struck:.1f} s later")


def _say(text: str) -> None:
    print(styled(text, "dim", sys.stderr), file=sys.stderr, flush=True)
