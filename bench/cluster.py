"""A real cluster of processes for a bench, and what it costs them: CPU time and memory from /proc."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import varlog
from bench.scratch import scratch, wait_for_rest

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    role: str
    number: int
    pid: int
    address: str

    def cpu_s(self) -> float:
        """User and system time since its start."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES


@dataclass(frozen=True)
class RunningCluster:
    url: str
    processes: list[Process]

    def cpu_s(self) -> float:
        return sum(process.cpu_s() for process in self.processes)

    def process(self, role: str, number: int | None = None) -> Process:
        """The one of this number, or the first."""
        return next(each for each in self.processes if each.role == role and number in (None, each.number))


@contextmanager
def running_cluster(
    folder: Path, nodes: int = 3, repositories: int = 1, etcd: Sequence[str] = (), file_bytes: int | None = None
) -> Iterator[RunningCluster]:
    """`varlog up` in a temporary folder below `folder`, or on an etcd; everything ends with the block.

    This process, which is the client, does nothing but the bench, and says so as an application may.
    """
    varlog.tune_process()
    data = scratch(folder)
    wait_for_rest(data)
    command = [sys.executable, "-m", "varlog.cli.main", "up", "--data", str(data), "--nodes", str(nodes), "--port", "0"]
    if etcd:
        command += ["--repositories", str(repositories), "--etcd", ",".join(etcd)]
    environment = os.environ if file_bytes is None else os.environ | {"VARLOG_NODE_FILE_BYTES": str(file_bytes)}
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert up.stdout is not None
        for line in up.stdout:
            if line.startswith("ready "):
                listed = json.loads((data / "processes.json").read_text())
                yield RunningCluster(
                    line.split()[1],
                    [Process(each["role"], each["id"], each["pid"], each["address"]) for each in listed],
                )
                break
        else:
            raise RuntimeError(f"the cluster did not start: exit status {up.wait()}")
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait()
