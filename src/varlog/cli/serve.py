"""Running a server process in the foreground: signals, the line that says where it serves, a clean end."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, Protocol

from varlog.base.errors import VarlogError
from varlog.runtime.descriptors import allow_many_files
from varlog.runtime.loop import run
from varlog.runtime.memory import keep_memory
from varlog.runtime.process import spare_the_collector
from varlog.runtime.turns import ask_for_short_turns

SWITCH_INTERVAL_S = 0.0005
"""How soon a busy event loop lets a thread that waits for the disk go on."""

SERVES = "serves"
"""The word between a process's role and its address in the line it prints once it serves."""


class Serving(Protocol):
    """A node or a repository."""

    async def start(self) -> None: ...

    async def wait_failed(self) -> VarlogError: ...

    async def close(self) -> None: ...


def run_server(work: Coroutine[Any, Any, None]) -> None:
    """Run a process that others wait for to its end."""
    allow_many_files()
    ask_for_short_turns()
    keep_memory()
    run(work, switch_interval=SWITCH_INTERVAL_S)


def announce(role: str, address: str) -> None:
    """One line on standard output; `varlog up` reads it, and so may a script."""
    print(f"{role} {SERVES} {address}", flush=True)


async def run_until_stopped(server: Serving, started: Callable[[], None], *, until_eof: bool = False) -> None:
    """Start, tell, and serve until SIGINT or SIGTERM; raises the reason if it cannot go on.

    With `until_eof`, the end of standard input stops it too: a process whose parent holds the other
    end of that pipe never outlives the parent, however the parent ends.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if until_eof:
        loop.add_reader(sys.stdin.fileno(), _stop_at_eof, stop)
    try:
        await server.start()
        spare_the_collector()
        started()
        await unless(stop, _failure(server))
    finally:
        await server.close()


async def _failure(server: Serving) -> NoReturn:
    raise await server.wait_failed()


def _stop_at_eof(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
    """Do the work unless asked to stop before it is done; whether it was done."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
