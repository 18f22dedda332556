"""Processes of a local cluster: each started, listened to until it serves, watched, and ended.

`processes.json` in the cluster's folder lists those that live at this moment; it is replaced, never edited.
A process is handed the end of a pipe that only this one holds, and stops when it breaks: nothing outlives us.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from varlog.base.errors import Timeout, Unavailable
from varlog.cli.serve import SERVES

START_S = 60.0
"""Longest wait for a process to serve: opening a large store takes a while."""
STOP_S = 10.0
"""How long a process may take to end before it is killed."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
"""Pauses before a process that keeps ending is started again."""
LIST_FILE = "processes.json"


class Child:
    """One process of the cluster, over all its lives."""

    def __init__(self, role: str, number: int, command: list[str], log: Path) -> None:
        self.role = role
        self.number = number
        self.address = ""
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    def __str__(self) -> str:
        return f"{self.role} {self.number}"

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def facts(self) -> dict[str, Any]:
        """As listed in processes.json."""
        return {"role": self.role, "id": self.number, "pid": self.pid, "address": self.address}

    async def start(self) -> None:
        """Returns when it serves; raises `Unavailable` with its own last words if it does not."""
        listen = self.address or self._command[-1]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command[:-1],
                listen,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a Ctrl-C on the terminal is for us, and we end the others in order
            )
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_S)
        except TimeoutError:
            await self.stop()
            raise Timeout(f"{self} does not serve after {START_S:.0f} s; see {self._log}") from None
        words = line.decode().split()
        if words[1:2] != [SERVES]:
            await self._process.wait()
            raise Unavailable(f"{self} did not start: {self._last_words()}")
        self.address = words[2]

    async def ended(self) -> str:
        """Wait for its end; how it ended, for people."""
        assert self._process is not None
        status = await self._process.wait()
        if status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"ended with status {status}" + (f": {self._last_words()}" if status else "")

    async def stop(self) -> None:
        """Ask, wait, insist."""
        if not self.alive or self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        try:
            self._process.send_signal(number)
        except ProcessLookupError:
            pass  # it ended by itself meanwhile

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1].removeprefix("varlog: ") if lines else f"it said nothing; see {self._log}"


class Supervisor:
    """All processes of one cluster folder."""

    def __init__(self, folder: Path, *, restart: bool, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self._restart = restart
        self._tell = tell
        self.children: list[Child] = []
        self._watching: list[asyncio.Task[None]] = []
        self._stopping = False
        self.all_ended = asyncio.Event()
        """No process is left, and none will be started."""

    def add(self, role: str, number: int, arguments: list[str], listen: str) -> Child:
        """A process still to be started."""
        log = self.folder / f"{role}-{number}.log"
        command = [sys.executable, "-m", "varlog", role, "start", *arguments, "--until-eof", "--listen", listen]
        child = Child(role, number, command, log)
        self.children.append(child)
        return child

    async def start(self, child: Child) -> None:
        """Start it for the first time, and watch it from then on."""
        await child.start()
        self.write_list()
        self._watching.append(asyncio.ensure_future(self._watch(child)))

    async def _watch(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_S
        while True:
            since = loop.time()
            how = await child.ended()
            self._list_if_possible()
            if self._stopping:
                return
            self._tell(f"{child} {how}" + ("; starting it again" if self._restart else ""))
            if not self._restart:
                if not any(other.alive for other in self.children):
                    self.all_ended.set()
                return
            pause = FIRST_PAUSE_S if loop.time() - since > LONGEST_PAUSE_S else min(pause * 2, LONGEST_PAUSE_S)
            await asyncio.sleep(pause)
            await self._start_again(child)

    async def _start_again(self, child: Child) -> None:
        try:
            await child.start()
        except (Unavailable, Timeout) as error:
            self._tell(error.message)  # the watch sees it ended, and pauses longer
        except OSError as error:
            self._tell(f"{child} cannot be started: {error}")  # no memory, no descriptors: that may pass
        self._list_if_possible()

    async def stop(self) -> None:
        """End nodes first, so that they can still say goodbye to the repository."""
        self._stopping = True
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for role in ("node", "repository"):
            await asyncio.gather(*(child.stop() for child in self.children if child.role == role))
        self.write_list()

    def _list_if_possible(self) -> None:
        """A full disk must not keep the others from being watched."""
        try:
            self.write_list()
        except OSError as error:
            self._tell(f"{LIST_FILE} is not true any more: {error}")

    def write_list(self) -> None:
        """Replace processes.json by the truth of this moment."""
        path = self.folder / LIST_FILE
        temporary = path.with_suffix(".new")
        listed = [child.facts() for child in self.children if child.alive and child.address]
        temporary.write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, path)
