"""Processes of the tests: started, stopped, killed and paused one by one, and none of them outlives the test.

Each life of a process has its own files for what it says. Waiting is polling with a deadline.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
VARLOG = str(Path(sys.executable).parent / "varlog")
"""The installed command."""

LAUNCH = str(Path(__file__).with_name("launch.py"))
POLL_S = 0.02
TOLD_OF_REPOSITORY = ("varlog: no repository at ", "varlog: connected to the repository at ")
PATIENCE_S = 60.0
"""For things that take a second on an idle machine: this one may be busy."""

Found = TypeVar("Found")


def eventually(look: Callable[[], Found | None], what: str, seconds: float = PATIENCE_S) -> Found:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        time.sleep(POLL_S)


class Process:
    """One process over all its lives."""

    def __init__(self, name: str, folder: Path, command: Sequence[str]) -> None:
        self.name = name
        self.folder = folder
        self.command = list(command)
        self.life = 0
        self.paused = False
        self._running: subprocess.Popen[bytes] | None = None

    def __str__(self) -> str:
        return self.name

    # ------------------------------------------------------------ life

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.poll() is None

    @property
    def pid(self) -> int:
        assert self._running is not None, f"{self} was never started"
        return self._running.pid

    @property
    def status(self) -> int | None:
        """How the last life ended: an exit status, or minus the number of a signal; None while it goes on."""
        return None if self._running is None else self._running.poll()

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Begin another life."""
        assert not self.alive, f"{self} runs already"
        self.life += 1
        self.paused = False
        launch = [sys.executable, "-I", "-S", LAUNCH, str(os.getpid()), *self.command]
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self._running = subprocess.Popen(
                launch,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **(environment or {})},
                start_new_session=True,  # a Ctrl-C is for the tests, which then end the others
            )

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        if self._running is not None:
            self.signal(signal.SIGKILL)
            self._running.wait()
        self.paused = False

    def stop(self, seconds: float = PATIENCE_S) -> int:
        """Ask it to end, and wait for it; its exit status."""
        self.signal(signal.SIGTERM)
        return self.ended(seconds)

    def ended(self, seconds: float = PATIENCE_S) -> int:
        """Wait for its end; its exit status."""
        assert self._running is not None, f"{self} was never started"
        try:
            return self._running.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} did not end within {seconds:g} s: {self.where_it_is()}") from None

    def brings(self, look: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
        """Look again and again until there is something to see that this process is to bring about."""
        try:
            eventually(lambda: look() or not self.alive, what, seconds)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.where_it_is()}") from None
        assert self.alive, f"{what}: {self} ended before: {self.last_words()}"

    def where_it_is(self) -> str:
        """End one that is late, for what it said and where each of its threads was."""
        self.signal(signal.SIGABRT)
        try:
            if self._running is not None:
                self._running.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            pass  # stuck in the kernel, or stopped
        self.kill()
        return self.last_words()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.paused = False

    @property
    def asleep(self) -> bool:
        """Stopped by now: what was sent to it may take a moment to reach it."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    # ------------------------------------------------------------ what it said

    @property
    def output(self) -> Path:
        return self.folder / f"{self.name}.{self.life}.out"

    @property
    def errors(self) -> Path:
        return self.folder / f"{self.name}.{self.life}.err"

    def last_words(self) -> str:
        """What the present life said on standard error."""
        return self.errors.read_text(errors="replace").strip()

    def all_errors(self) -> dict[str, str]:
        """What each life said on standard error, of those that said more than that their repository was away."""
        said = {}
        for path in sorted(self.folder.glob(f"{self.name}.*.err")):
            text = unexpected(path.read_text(errors="replace"))
            if text:
                said[path.name] = text
        return said


def unexpected(text: str) -> str:
    """Without the lines by which a node tells that its repository is away, or back: here it often is."""
    return "\n".join(line for line in text.strip().splitlines() if not line.startswith(TOLD_OF_REPOSITORY))


def run_varlog(
    *arguments: str,
    url: str = "",
    stdin: bytes = b"",
    seconds: float = PATIENCE_S,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """A `varlog` command, to its end."""
    cluster = ["--cluster", url] if url else []
    return subprocess.run(
        [VARLOG, *cluster, *arguments],
        input=stdin,
        capture_output=True,
        timeout=seconds,
        check=False,
        env={**os.environ, **(environment or {})},
    )
