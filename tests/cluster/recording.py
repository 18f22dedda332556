"""What a client process did and saw, written such that `kill -9` leaves a usable record; and read back.

JSON lines, each written by one system call, so that they are in the page cache before the client goes on:

    {"begin": 7, "kind": "append", "start_time": ..., "payloads": [...]}     before anything is sent
    {"end": 7, "end_time": ..., "outcome": "ack", "first": ..., ...}         after the answer came
    {"seen": 3, "time": ..., "glsns": [...], "payloads": [...]}              what subscription 3 was given

An operation that begins and does not end is of unknown outcome. Times are those of CLOCK_MONOTONIC,
which is the same for all processes of a machine.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from varlog.base.errors import VarlogError
from varlog.sim.history import KINDS, Operation, Subscription


class Recorder:
    """Writes the record of one life of one client."""

    def __init__(self, path: Path, client: str, log: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._operations = 0
        self._write({"client": client, "log": log})

    def begin(self, kind: str, **fields: Any) -> int:
        """An operation is about to be started; its number."""
        self._operations += 1
        self._write({"begin": self._operations, "kind": kind, "start_time": time.monotonic(), **fields})
        return self._operations

    def end(self, operation: int, error: VarlogError | None = None, **fields: Any) -> None:
        ended = time.monotonic()
        if error is not None:
            fields |= {"error": type(error).__name__, "value": error.value}
        self._write({"end": operation, "end_time": ended, **fields})

    def seen(self, operation: int, glsns: Sequence[int], payloads: Sequence[str]) -> None:
        self._write({"seen": operation, "time": time.monotonic(), "glsns": list(glsns), "payloads": list(payloads)})

    def _write(self, content: dict[str, Any]) -> None:
        line = json.dumps(content, separators=(",", ":")).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError("a record was cut short: is the disk full?")


def read_recording(path: Path) -> list[Operation]:
    """The operations of one life; a last line that was cut off by the end of the process counts for nothing."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    operations: dict[int, Operation] = {}
    client, log = "", ""
    for line in whole.splitlines():
        content = json.loads(line)
        if "begin" in content:
            number, kind = content.pop("begin"), content.pop("kind")
            operations[number] = KINDS[kind](client=client, log=log, **content)
        elif "end" in content:
            _set(operations[content.pop("end")], content)
        elif "seen" in content:
            _add(operations[content["seen"]], content)
        else:
            client, log = content["client"], content["log"]
    return list(operations.values())


def _set(operation: Operation, content: dict[str, Any]) -> None:
    for name, value in content.items():
        setattr(operation, name, value)


def _add(operation: Operation, content: dict[str, Any]) -> None:
    assert isinstance(operation, Subscription)
    operation.glsns += content["glsns"]
    operation.payloads += content["payloads"]
    operation.times += [content["time"]] * len(content["glsns"])
