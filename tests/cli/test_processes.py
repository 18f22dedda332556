"""`varlog up` and the commands against it: real processes, killed and started again."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tools.etcd import Ensemble

from varlog.base.errors import Unavailable, VarlogError
from varlog.cli.main import build_parser, hint, main
from varlog.cli.repository import _open_etcd
from varlog.metadata.etcd import EtcdStore

VARLOG = [sys.executable, "-m", "varlog"]
PATIENCE_S = 60.0
"""Longer than anything takes, however busy the machine is."""

NOBODY = "varlog: no repository answers at "
"""Said by a command that did nothing: a repository that is that slow is given up soon, and may be asked again."""


def wait_until(true: Callable[[], object], what: str) -> Any:
    """What there is to see in the end."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Up:
    """A running `varlog up`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._errors = (folder.parent / f"{folder.name}.errors").open("w+")
        command = [*VARLOG, "up", "--data", str(folder), "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        assert self.process.stdout is not None
        self.printed: list[str] = []
        for line in self.process.stdout:
            self.printed.append(line.rstrip("\n"))
            if line.startswith("ready "):
                break
        assert self.printed, self.errors()
        assert self.printed[-1].startswith("ready varlog://127.0.0.1:"), self.errors()
        self.url = self.printed[-1].removeprefix("ready ")

    def processes(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads((self.folder / "processes.json").read_text())
        return listed

    def pid_of(self, role: str, number: int) -> int:
        return next((each["pid"] for each in self.processes() if (each["role"], each["id"]) == (role, number)), 0)

    def command(self, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        command = [*VARLOG, *arguments, "--cluster", self.url]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            if not done.stderr.startswith(NOBODY) or time.monotonic() > deadline:
                return done

    def ok(self, *arguments: str, text: str = "") -> str:
        done = self.command(*arguments, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def errors(self) -> str:
        return Path(self._errors.name).read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status; that of the first stop when there are several."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()
        return status


@contextmanager
def up(folder: Path, *options: str) -> Iterator[Up]:
    running = Up(folder, *options)
    try:
        yield running
    finally:
        running.stop()


def test_a_cluster_serves_loses_a_node_stops_and_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    with up(folder) as cluster:
        listed = cluster.processes()
        assert [(each["role"], each["id"]) for each in listed] == [("repository", 1), *(("node", n) for n in (1, 2, 3))]
        assert all(alive(each["pid"]) for each in listed)
        assert cluster.url == f"varlog://{listed[0]['address']}"
        assert cluster.ok("log", "create", "orders", "--streams", "2").startswith("created orders")
        assert cluster.ok("append", "orders", "--lines", text="a\nb\nc") == "appended 3 entries to orders at 1..3\n"
        second = subprocess.run([*VARLOG, "up", "--data", str(folder)], capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert f"in use by process {cluster.process.pid}" in second.stderr
        os.kill(cluster.pid_of("node", 2), signal.SIGKILL)
        wait_until(lambda: not cluster.pid_of("node", 2), "the list still has the dead node")
        assert len(cluster.processes()) == 3
        wait_until(lambda: "node 2 was ended by SIGKILL" in cluster.errors(), "nobody was told")
        assert cluster.ok("read", "orders", "1..3", "--raw") == "a\nb\nc\n"
        pids = [each["pid"] for each in cluster.processes()]
        assert cluster.stop() == 0
        assert not any(map(alive, pids))
        assert cluster.processes() == []
    with up(folder) as cluster:
        assert len(cluster.processes()) == 4
        assert cluster.ok("append", "orders", text="d") == "appended 1 entry to orders at 4\n"
        assert cluster.ok("read", "orders", "2..", "--raw") == "b\nc\nd\n"
        assert cluster.stop(signal.SIGINT) == 0


def states(cluster: Up) -> dict[str, str]:
    """Of repositories, by their address."""
    return {each["address"]: each["state"] for each in json.loads(cluster.ok("repository", "ls", "-o", "json"))}


def leader_of_two(cluster: Up) -> str:
    found = {state: address for address, state in states(cluster).items()}
    return found["serving"] if sorted(found) == ["following", "serving"] else ""


def test_several_repositories_on_an_etcd(tmp_path: Path, etcd: Ensemble) -> None:
    """The data is in etcd, below the prefix that clusters on it share which say no other."""
    with up(tmp_path / "cluster", "--nodes", "1", "--repositories", "2", "--etcd", ",".join(etcd.endpoints)) as cluster:
        addresses = [each["address"] for each in cluster.processes() if each["role"] == "repository"]
        assert cluster.url == f"varlog://{','.join(addresses)}"
        cluster.ok("log", "create", "orders", "--replicas", "1")
        cluster.ok("append", "orders", text="a")
        leader = wait_until(lambda: leader_of_two(cluster), "one leads, one follows")
        os.kill(next(each["pid"] for each in cluster.processes() if each["address"] == leader), signal.SIGKILL)
        cluster.ok("append", "orders", text="b")
        assert cluster.ok("read", "orders", "1..2", "--raw") == "a\nb\n"
        assert sorted(states(cluster).values()) == ["serving", "unreachable"]


def test_clusters_share_an_etcd_under_prefixes_of_their_own(tmp_path: Path, etcd: Ensemble) -> None:
    flags = ("--nodes", "1", "--etcd", ",".join(etcd.endpoints), "--etcd-no-compact", "--etcd-prefix")
    with up(tmp_path / "one", *flags, "one/") as one, up(tmp_path / "two", *flags, "two/") as two:
        one.ok("log", "create", "orders", "--replicas", "1")
        assert json.loads(two.ok("log", "ls", "-o", "json")) == []
        assert [each["name"] for each in json.loads(one.ok("log", "ls", "-o", "json"))] == ["orders"]


def test_restarts_what_ends_when_told_to(tmp_path: Path) -> None:
    with up(tmp_path / "cluster", "--nodes", "1", "--restart") as cluster:
        cluster.ok("log", "create", "orders", "--replicas", "1")
        for role in ("node", "repository"):
            before = next(each for each in cluster.processes() if each["role"] == role)
            os.kill(before["pid"], signal.SIGKILL)
            gone = (0, before["pid"])
            wait_until(lambda role=role, gone=gone: cluster.pid_of(role, 1) not in gone, f"no new {role}")  # type: ignore[misc]
            after = next(each for each in cluster.processes() if each["role"] == role)
            assert after["address"] == before["address"]
            wait_until(lambda: cluster.command("append", "orders", text="x").returncode == 0, "no append works")


def test_nothing_outlives_it(tmp_path: Path) -> None:
    with up(tmp_path / "cluster", "--nodes", "1") as cluster:
        pids = [each["pid"] for each in cluster.processes()]
        assert cluster.stop(signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: not any(map(alive, pids)), "processes live on without their parent")


def test_everything_gone_is_an_end(tmp_path: Path) -> None:
    with up(tmp_path / "cluster", "--nodes", "1") as cluster:
        for each in cluster.processes():
            os.kill(each["pid"], signal.SIGKILL)
        assert cluster.process.wait(PATIENCE_S) == 1
        assert cluster.errors().endswith("varlog: no process of the cluster is left\n")


class Inside:
    """Runs commands in this process, which takes a twentieth of the time."""

    def __init__(self, url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = url
        self._folder = folder
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[int, str, str]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = main([*arguments, "--cluster", self._url])
            printed = self._capsys.readouterr()
            if not printed.err.startswith(NOBODY) or time.monotonic() > deadline:
                return status, printed.out, printed.err

    def ok(self, *arguments: str) -> str:
        status, out, errors = self.run(*arguments)
        assert (status, errors) == (0, "")
        return out

    def rows(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "-o", "json"))

    def append(self, log: str, text: str, *options: str) -> tuple[int, str, str]:
        file = self._folder / "input"
        file.write_text(text)
        return self.run("append", log, "--file", str(file), *options)


def kinds(inside: Inside, data: str) -> list[str]:
    """Of the records of a node that is at work: some come by and by."""
    return [json.loads(line)["kind"] for line in inside.ok("segment", "dump", data, "-o", "json").splitlines()]


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What each prints, for people and for programs."""
    with up(tmp_path / "cluster", "--nodes", "2") as cluster:
        inside = Inside(cluster.url, tmp_path, capsys)
        data = str(cluster.folder / "node-1")
        assert inside.ok("log", "ls") == "no logs yet; `varlog log create NAME` makes one\n"
        wait_until(lambda: inside.run("status")[1].startswith("all is well\n\ncluster "), "all is well")
        inside.ok("log", "create", "a", "--replicas", "2")
        assert inside.append("a", "one\n\ntwo\n", "--lines", "--key", "k")[0] == 0
        rows = [json.loads(line) for line in inside.ok("read", "a", "1..3", "-o", "json").splitlines()]
        assert [(row["glsn"], row["payload"]) for row in rows] == [(1, "one"), (2, ""), (3, "two")]
        assert [row["key"] for row in rows] == ["k"] * 3
        assert "two  [key=k]" in inside.ok("tail", "a", "-n", "2")
        assert [(log["name"], log["state"], log["tail"]) for log in inside.rows("log", "ls")] == [("a", "open", 3)]
        assert [(node["id"], node["state"]) for node in inside.rows("node", "ls")] == [
            (1, "connected"),
            (2, "connected"),
        ]
        assert [replica["stored"] for replica in inside.rows("log", "show", "a")["replica_states"]] == [3, 3]
        assert "primary" in inside.ok("log", "show", "a")
        assert inside.rows("repository", "ls")[0]["state"] == "serving"
        assert inside.run("read", "a", "2..9")[::2] == (1, "varlog: the log a ends at 3\n")
        assert inside.ok("log", "trim", "a", "1") == "trimmed a up to 1\n"
        rows = [json.loads(line) for line in inside.ok("tail", "a", "-n", "10", "-o", "json").splitlines()]
        assert [row["glsn"] for row in rows] == [2, 3]
        assert inside.ok("segment", "verify", data).endswith("all as they should be\n")
        wait_until(lambda: {"FILE", "BATCH", "BIND", "TRIM"} <= set(kinds(inside, data)), "it lacks records")
        assert inside.ok("log", "seal", "a") == "sealed a at 3\n"
        status, out, errors = inside.append("a", "late")
        assert (status, out) == (1, "")
        assert "sealed" in errors
        status, out, errors = inside.run("log", "rm", "a")  # nobody is there who could be asked
        assert (status, out) == (2, "")
        assert "say --yes" in errors
        assert inside.ok("log", "rm", "a", "--yes") == "removed a\n"
        for arguments in (("read", "a", "1"), ("log", "show", "a"), ("log", "seal", "a"), ("tail", "a")):
            status, out, errors = inside.run(*arguments)
            assert (status, out) == (1, "")
            assert errors.startswith("varlog: there is no log")
            assert errors.count("\n") == 1


def test_a_tail_follows(tmp_path: Path) -> None:
    with up(tmp_path / "cluster", "--nodes", "1") as cluster:
        cluster.ok("log", "create", "a", "--replicas", "1")
        cluster.ok("append", "a", text="before")
        command = [*VARLOG, "tail", "a", "-f", "--raw", "--cluster", cluster.url]
        follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == "before\n"
        cluster.ok("append", "a", "--lines", text="x\ny\n")
        assert [follower.stdout.readline(), follower.stdout.readline()] == ["x\n", "y\n"]
        follower.send_signal(signal.SIGINT)
        assert follower.wait(PATIENCE_S) == 130
        assert follower.stderr.read() == ""
        follower.stdout.close()
        follower.stderr.close()


# ---------------------------------------------------------------- what goes wrong at a start


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("command", "status", "line"),
    [
        ("up --data {tmp}/a --port {busy}", 1, "varlog: repository 1 did not start: cannot listen at 127.0.0.1:{busy}"),
        ("up --data {tmp}/a --port 70000", 2, "varlog: 70000 is not a port"),
        ("up --data {tmp}/a --nodes 0", 2, "varlog: argument --nodes: '0' is not a whole number above zero"),
        ("up --data {tmp}/a --repositories 3", 2, "varlog: the embedded metadata store serves one repository"),
        ("up --data {tmp}/no/such", 2, "varlog: cannot make the data folder {tmp}/no/such: there is no folder"),
        ("repository start --data {tmp}/a --listen 127.0.0.1:{busy}", 1, "varlog: cannot listen at 127.0.0.1:{busy}"),
        ("repository start --data {tmp}/a --listen nonsense", 2, "varlog: "),
        ("repository start", 2, "varlog: a repository needs a folder for its data: --data DIR"),
        ("repository start --data {tmp}/a --etcd-ca {tmp}/file", 2, "varlog: --etcd-ca says something of an etcd"),
        ("up --data {tmp}/a --etcd-prefix one/", 2, "varlog: --etcd-prefix says something of an etcd"),
        ("repository start --etcd 127.0.0.1:1 --listen 0.0.0.0:0", 2, "varlog: nobody can be sent to 0.0.0.0"),
        ("node start --repository 127.0.0.1:1 --data {tmp}/a --listen 0.0.0.0:0", 2, "varlog: nobody can be sent to"),
        ("repository start --etcd localhost:2379,localhost:70000", 2, "varlog: 'localhost:70000' is no endpoint"),
        ("repository start --data {tmp}/file", 2, "varlog: {tmp}/file is not a folder"),
        ("node start --data {tmp}/a", 2, "varlog: a node needs a setting for: repositories"),
        ("node start --repository 127.0.0.1:1 --data /proc/x", 1, "varlog: cannot make the data folder /proc/x"),
        ("node start --repository 127.0.0.1:1 --data {tmp}/a --config {tmp}/file", 2, "varlog: the settings file"),
        ("log ls --cluster 127.0.0.1:1", 1, "varlog: no repository answers at 127.0.0.1:1"),
        ("log ls --cluster odd://x", 2, "varlog: a cluster is named like varlog://127.0.0.1:7700"),
        ("segment verify {tmp}/nothing", 1, "varlog: there is no file or folder {tmp}/nothing"),
        ("segment verify {tmp}", 1, "varlog: {tmp} is no file or folder of a storage node: nothing was verified"),
        ("segment verify {tmp}/file", 1, "varlog: {tmp}/file is no file or folder of a storage node"),
        ("sim --seeds 2 --trace", 2, "varlog: a trace is of one seed: add --seeds 1"),
    ],
)
def test_is_one_clear_line(command: str, status: int, line: str, busy_port: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no = toml = here")
    places = {"tmp": tmp_path, "busy": busy_port}
    done = subprocess.run(
        [*VARLOG, *command.format(**places).split()], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stderr.startswith(line.format(**places))
    assert done.stderr.count("\n") == 1
    assert done.stderr.count("; end the process that has it") <= 1
    assert not command.startswith("up") or "--listen" not in done.stderr, "an option that it does not have"
    assert (done.returncode, done.stdout) == (status, "")


def test_an_etcd_that_is_away_is_no_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Unavailable("etcd cannot be used: nobody is there")

    monkeypatch.setattr(EtcdStore, "open", away)
    given = ["repository", "start", "--etcd", "127.0.0.1:1"]
    with pytest.raises(VarlogError, match="nobody is there") as told:
        asyncio.run(_open_etcd(build_parser(given).parse_args(given)))
    assert hint(told.value, "server") == ""
