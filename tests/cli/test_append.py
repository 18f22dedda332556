"""What `varlog append` does with its input."""

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.client.scripted import Node, scripted
from tests.client.scripted import run as run_story
from tests.client.test_appends import until

from varlog.base.errors import InvalidArgument, TooLarge, Unsupported
from varlog.base.ids import Glsn, StreamId
from varlog.base.limits import ENTRY_BYTES
from varlog.cli import append
from varlog.cli.main import build_parser
from varlog.client import Ack
from varlog.runtime.loop import run
from varlog.transport.peer import Request
from varlog.wire.batch import BatchHeader

RELEASE_SECONDS = 60.0
"""Should it wait for input all the same, that ends after so long."""


def test_it_ends_at_once_while_it_waits_for_input() -> None:
    reading, writing = os.pipe()
    released = threading.Event()

    def release() -> None:
        released.set()
        os.close(writing)

    async def story() -> None:
        for work in (append._everything(reading), anext(append._lines(reading))):
            waiting = asyncio.ensure_future(work)
            await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    timer = threading.Timer(RELEASE_SECONDS, release)
    timer.start()
    try:
        run(story())
        assert not released.is_set()
    finally:
        timer.cancel()
        if not released.is_set():
            os.close(writing)
        for thread in threading.enumerate():
            if thread.name == "varlog input":
                thread.join()
        os.close(reading)


def test_input_comes_in_pieces_and_may_be_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "CHUNK_BYTES", 3)
    file = tmp_path / "input"
    file.write_bytes(b"one\n\nthree\nno end")

    async def lines(source: int) -> list[bytes]:
        return [line async for some in append._lines(source) for line in some]

    with open(file, "rb") as source:
        assert run(lines(source.fileno())) == [b"one", b"", b"three", b"no end"]
        source.seek(0)
        assert run(append._everything(source.fileno())) == file.read_bytes()
    monkeypatch.setattr(append, "CHUNK_BYTES", 1 << 20)
    file.write_bytes(bytes(ENTRY_BYTES + 1))
    for work in (lines, append._everything):
        with open(file, "rb") as source, pytest.raises(TooLarge):
            run(work(source.fileno()))
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        run(append._everything(folder))
    os.close(folder)


def test_nothing_is_sent_behind_a_line_that_failed() -> None:
    """Nor is more input waited for; and it is said what is in the log."""
    reading, writing = os.pipe()

    def refuse_the_second(node: Node, request: Request, _: BatchHeader) -> bool:
        if len(node.appends) != 2:
            return False
        request.fail(Unsupported("refused"))
        return True

    async def story() -> None:
        async with scripted() as (cluster, client):
            node = cluster.nodes[0]
            node.on_append = refuse_the_second
            appending = asyncio.ensure_future(append._append_lines(client.log("log"), reading, None))
            os.write(writing, b"a\nb\n")
            await until(lambda: bool(cluster.payloads()))
            os.write(writing, b"c\n")
            await until(lambda: len(node.appends) == 2)
            await until(appending.done)
            os.write(writing, b"d\n")
            os.close(writing)
            told = r"refused; 2 lines are acknowledged, at 1\.\.2, and lines 3 to 3 may be .* from line 3 on"
            with pytest.raises(Unsupported, match=told):
                await appending
            assert cluster.payloads() == [b"a", b"b"]

    try:
        run_story(story())
    finally:
        os.close(reading)


def test_a_line_that_is_too_large_tells_where_to_go_on(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"a\nb\n" + bytes(ENTRY_BYTES + 1))

    async def story() -> None:
        async with scripted() as (cluster, client):
            with open(file, "rb") as source, pytest.raises(TooLarge, match=r"nothing behind was sent: .* line 3 on"):
                await append._append_lines(client.log("log"), source.fileno(), None)
            assert cluster.payloads() == [b"a", b"b"]

    run_story(story())


class Taken:
    """A cluster and its log, that keeps what is appended."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []

    def log(self, _: str) -> "Taken":
        return self

    async def append(self, _: bytes, *, key: bytes | None, expect: int | None) -> Ack:
        self.keys.append(key)
        assert expect is None
        return Ack(Glsn(1), Glsn(1), StreamId(1))


def test_a_key_is_the_bytes_that_were_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one is not none, and it need not be text."""
    taken = Taken()

    def with_cluster(_: Any, work: Any) -> Any:
        return run(work(taken))

    monkeypatch.setattr(append, "with_cluster", with_cluster)
    (tmp_path / "input").write_bytes(b"x")
    for key in ([], ["--key", ""], ["--key", "k"], ["--key", os.fsdecode(b"\xff")]):
        words = ["append", "orders", "--file", str(tmp_path / "input"), *key]
        append.append(build_parser(words).parse_args(words))
    assert taken.keys == [None, b"", b"k", b"\xff"]


def test_without_an_input_nothing_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InvalidArgument, match="give --file"):
        append.append(build_parser(["append", "x"]).parse_args(["append", "x"]))
