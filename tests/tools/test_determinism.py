"""The determinism check finds what it is for, and leaves its look-alikes alone."""

from pathlib import Path
from textwrap import dedent

import pytest

from tools import determinism


def rules(source: str, *, pure: bool = False) -> list[str]:
    return [finding.rule for finding in determinism.check_source("node/x.py", dedent(source), pure=pure)]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import time", "import time"),
        ("import os.path", "import os"),
        ("from time import monotonic", "import time"),
        ("from random import Random, choice", "import random"),
        ("import random", "import random"),
        ("import socket, threading", "import socket"),
        ("def f():\n    import secrets", "import secrets"),
        ("import uuid as u", "import uuid"),
        ("import asyncio\nawait_me = asyncio.sleep(1)", "asyncio.sleep"),
        ("from asyncio import wait_for", "asyncio.wait_for"),
        ("import asyncio\nx = asyncio.TaskGroup", "asyncio.TaskGroup"),
        ("import asyncio\nx = asyncio.all_tasks()", "asyncio.all_tasks"),
        ("import asyncio\nx = asyncio.to_thread(f)", "asyncio.to_thread"),
        ("import asyncio\nx = asyncio.get_running_loop().time()", "loop.time"),
        ("self._loop.call_later(1, f)", "loop.call_later"),
        ("loop.run_in_executor(None, f)", "loop.run_in_executor"),
        ("from datetime import datetime\nx = datetime.now()", "datetime.now"),
        ("x = id(y)", "id()"),
        ("x = hash(y)", "hash()"),
        ("x = open('file')", "open()"),
    ],
)
def test_finds_what_reads_the_real_world(source: str, rule: str) -> None:
    assert rule in rules(source)


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "z = [x for x in frozenset(y)]",
        "z = [x for x in {a for a in b}]",
        "z = list({1, 2})",
        "z = tuple(set(y))",
        "f(*set(y))",
        "z = next(iter({1, 2}))",
        "z = ','.join({'a', 'b'})",
        "waiting = set()\nfor x in waiting: pass",
        "def f(nodes: set[int]):\n    for x in nodes: pass",
        "class A:\n  def __init__(self):\n    self.live: set[int] = g()\n  def f(self):\n    self.live.pop()",
        "def f(nodes: set[int] | None):\n    return lambda: [x for x in nodes]",
        "for x in a.keys() - b.keys(): pass",
        "s = set()\nfor x in s | other: pass",
        "s = set()\nfor x in s.union(other): pass",
        "def f(s: frozenset[int]):\n    yield from s",
    ],
)
def test_finds_the_order_of_a_set(source: str) -> None:
    assert rules(source) == ["order of a set"]


@pytest.mark.parametrize(
    "source",
    [
        "from random import Random",
        "import asyncio\nx = asyncio.gather(a, b)\ny = asyncio.Event()",
        "clock.call_later(1, f)",
        "self._clock.call_later(1, f)",
        "header.time",
        "s = set()\nx = 3 in s\ns.add(4)\ny = len(s)\nz = sorted(s)",
        "for x in sorted({1, 2}): pass",
        "for x in {1: 2}: pass",
        "x = disk.open('file')",
        "x = min({1, 2})",
        "x = queue.pop()",
        "x = self.id(1)",
        "first, *rest = y",
        "def f(nodes: set[int]): pass\ndef g(nodes: list[int]):\n    for x in nodes: pass",
    ],
)
def test_leaves_the_rest_alone(source: str) -> None:
    assert rules(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "async def f(): pass",
        "import asyncio",
        "async def f():\n    await g()",
        "async def f():\n    async with g: pass",
    ],
)
def test_core_never_waits(source: str) -> None:
    assert rules(source) == []
    assert {"async", "import asyncio"}.intersection(rules(source, pure=True))


def test_says_where() -> None:
    found = determinism.check_source("core/cut.py", "x = 1\nimport time\n")
    assert [str(finding) for finding in found] == [
        "src/varlog/core/cut.py:2: import time: time only through the Clock port"
    ]


def test_an_exception_excuses_its_file_and_rule_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "a.py").write_text("import time\nimport os\n")
    monkeypatch.setattr(determinism, "PACKAGE", tmp_path)
    monkeypatch.setattr(determinism, "SIMULATED", ("node",))
    monkeypatch.setattr(determinism, "EXCEPTIONS", {("node/a.py", "import time"): "a test"})
    findings, unused, count = determinism.check_package()
    assert [finding.rule for finding in findings] == ["import os"]
    assert unused == []
    assert count == 1


def test_an_exception_that_excuses_nothing_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(determinism, "PACKAGE", tmp_path)
    monkeypatch.setattr(determinism, "SIMULATED", ("node",))
    monkeypatch.setattr(determinism, "EXCEPTIONS", {("node/a.py", "import time"): "no longer true"})
    findings, unused, _ = determinism.check_package()
    assert findings == []
    assert len(unused) == 1


def test_a_file_that_is_not_there_any_more_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(determinism, "PACKAGE", tmp_path)
    monkeypatch.setattr(determinism, "SIMULATED", ("node/renamed.py",))
    _, listed, count = determinism.check_package()
    assert count == 0
    assert [line.partition(":")[0] for line in listed] == ["node/renamed.py"]


def test_every_exception_has_its_reason() -> None:
    assert all(len(reason) > 10 for reason in determinism.EXCEPTIONS.values())
