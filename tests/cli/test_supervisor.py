"""What ends is started again, also where the machine is short of something."""

import asyncio
from pathlib import Path

import pytest

from varlog.cli import supervisor as room
from varlog.cli.supervisor import Child, Supervisor
from varlog.runtime.loop import run


class Short(Child):
    """Ends at once each time. Its second start fails for lack of memory."""

    def __init__(self) -> None:
        super().__init__("node", 1, [], Path())
        self.starts = 0

    async def start(self) -> None:
        self.starts += 1
        if self.starts == 2:
            raise OSError(12, "Cannot allocate memory")

    async def ended(self) -> str:
        return "ended"


def test_what_it_cannot_do_now_it_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list cannot be written on a full disk; before, either ended the watch without a word."""
    monkeypatch.setattr(room, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(room, "LONGEST_PAUSE_S", 0.0)
    told: list[str] = []

    async def story() -> Short:
        supervisor, child = Supervisor(tmp_path, restart=True, tell=told.append), Short()
        await supervisor.start(child)
        (tmp_path / "processes.new").mkdir()
        while child.starts < 4:
            await asyncio.sleep(0)
            assert not supervisor._watching[0].done()
        (tmp_path / "processes.new").rmdir()
        await supervisor.stop()
        return child

    assert run(story()).starts >= 4
    assert any("cannot be started" in line and "memory" in line for line in told)
    assert any("processes.json is not true any more" in line for line in told)
