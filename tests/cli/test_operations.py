"""What operators do, with real processes: drain a node, ask whether it can be stopped, lose one, remove it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_processes import PATIENCE_S, VARLOG, Inside, Up, up, wait_until

from varlog.cli import operate


@contextmanager
def another_node(cluster: Up, folder: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """A node that is not one of `varlog up`."""
    repository = cluster.url.removeprefix("varlog://")
    command = [*VARLOG, "node", "start", "--repository", repository, "--data", str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline().startswith("node serves ")
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()
        process.stderr.close()


def all_reported(inside: Inside) -> bool:
    """The cluster is well, and knows it."""
    return inside.run("status")[0] == 0


def node_states(inside: Inside) -> dict[int, str]:
    return {node["id"]: node["state"] for node in inside.rows("node", "ls")}


def test_a_node_is_drained_and_removed_and_stays_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with up(tmp_path / "cluster", "--nodes", "3") as cluster:
        inside = Inside(cluster.url, tmp_path, capsys)
        inside.ok("log", "create", "orders", "--replicas", "3", "--streams", "2")
        assert inside.append("orders", "a\nb\nc\n", "--lines")[0] == 0
        wait_until(lambda: all_reported(inside), "the cluster is well")
        status, out, _ = inside.run("node", "check", "3")
        assert status == 1
        assert out.startswith("node 3 cannot be stopped now: 2 of its streams would take no more appends (3 replicas")
        assert out.count("takes no appends until it is back") == 2

        with another_node(cluster, tmp_path / "fourth", "--zone", "b"):
            wait_until(lambda: node_states(inside).get(4) == "connected", "the fourth node has joined")
            status, out, _ = inside.run("node", "check", "3")
            assert status == 0
            assert "appends to 2 open streams pause for 1 s; `varlog node drain 3` first avoids that" in out
            out = inside.ok("node", "drain", "3")
            assert out.startswith(
                "node 3 is drained: it is a member of no open stream; it still holds copies of 2 ended"
            )
            wait_until(lambda: inside.run("node", "check", "3")[0] == 0, "all copies have reported")
            check: Any = inside.rows("node", "check", "3")
            assert [(row["log"], row["state"], row["copies_left"]) for row in check["streams"]] == [
                ("orders", "ended", 2),
                ("orders", "ended", 2),
            ]
            assert check["stoppable"] is True
            assert inside.append("orders", "d")[:2] == (0, "appended 1 entry to orders at 4\n")
            wait_until(lambda: all_reported(inside), "the cluster is well")
            page = inside.ok("status")
            assert page.startswith("all is well\n- node 3: drains; 0 open streams to move, 2 ended ones on it\n")
            shown = inside.rows("log", "show", "orders")
            assert [row["state"] for row in shown["stream_states"]] == ["ended", "ended", "open", "open"]
            assert [row["start"] for row in shown["stream_states"]] == [1, 1, 4, 4]
            assert [row["stop"] for row in shown["stream_states"]] == [4, 4, None, None]
            assert shown["missing"] == ["stream 3: 3 copies in 2 zones", "stream 4: 3 copies in 2 zones"]

            status, _, errors = inside.run("node", "rm", "3", "--force", "--yes")
            assert (status, errors.count("\n")) == (1, 1)
            assert "it is connected" in errors
            os.kill(cluster.pid_of("node", 3), signal.SIGKILL)
            wait_until(lambda: node_states(inside)[3] == "silent", "the node is missed")
            status, page, _ = inside.run("status")
            assert status == 1
            lines = page.splitlines()
            assert lines[0].startswith("! node 3: not connected; last seen ")
            assert lines[1] == "! log orders: streams 1, 2: no word of its copy on node 3"
            status, _, errors = inside.run("node", "rm", "3", "--force")
            assert status == 2
            assert errors.count("given up: its copy of log orders, stream ") == 2
            assert errors.endswith("varlog: nothing was removed; if node 3 is lost for good, say --yes\n")
            removed = inside.ok("node", "rm", "3", "--force", "--yes")
            assert removed == "removed node 3; its id is not given out again\n"
            assert sorted(node_states(inside)) == [1, 2, 4]
            assert inside.run("status")[1].startswith("! log orders: streams 1, 2: has 2 of 3 copies\n")
            assert inside.ok("read", "orders", "1..4", "--raw") == "a\nb\nc\nd\n"

            with another_node(cluster, cluster.folder / "node-3") as back:
                assert back.wait(PATIENCE_S) == 1
                assert back.stderr is not None
                told = back.stderr.read()
            assert told.startswith("varlog: node 3 was removed from this cluster for good; ")
            assert told.count("\n") == 1


def test_a_drain_that_cannot_end_says_why_and_can_be_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "STUCK_S", 0.5)
    with up(tmp_path / "cluster", "--nodes", "2") as cluster:
        inside = Inside(cluster.url, tmp_path, capsys)
        inside.ok("log", "create", "a", "--replicas", "2")
        status, out, errors = inside.run("node", "drain", "2")
        assert (status, out, errors.count("\n")) == (1, "", 1)
        assert "node 2 goes on draining, but 1 open stream cannot leave it yet; log a: streams cannot leave" in errors
        assert inside.append("a", "one")[0] == 0
        facts = inside.rows("node", "drain", "2", "--no-wait")
        assert (facts["draining"], facts["open_streams"], facts["ended_streams"]) == (True, 1, 0)
        assert node_states(inside) == {1: "connected", 2: "draining"}
        status, out, _ = inside.run("status", "-o", "json")
        page = json.loads(out)
        assert (status, page["notices"]) == (1, ["node 2: drains; 1 open streams to move, 0 ended ones on it"])
        assert page["troubles"][0].startswith("log a: streams cannot leave a node that drains: 2 replicas need 2")
        assert inside.ok("node", "drain", "2", "--undo").startswith("node 2 does not drain any more")
        wait_until(lambda: all_reported(inside), "nothing is wrong any more")
        assert node_states(inside) == {1: "connected", 2: "connected"}


def test_small_things(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with up(tmp_path / "cluster", "--nodes", "2") as cluster:
        inside = Inside(cluster.url, tmp_path, capsys)
        address = cluster.url.removeprefix("varlog://")
        assert f"varlog node start --repository {address} --data DIR --zone b\n" in inside.ok(
            "node", "add", "--zone", "b"
        )
        assert inside.rows("node", "add", "--data", "/x")["command"][-2:] == ["--data", "/x"]
        (repository,) = inside.rows("repository", "ls")
        assert (repository["address"], repository["role"], repository["cuts"]) == (address, "leader", 0)
        assert repository["started"]
        for arguments in (("drain", "9"), ("check", "9"), ("rm", "9"), ("rm", "9", "--force")):
            status, out, errors = inside.run("node", *arguments)
            assert (status, out) == (1, "")
            assert errors == "varlog: node 9 does not exist; `varlog node ls` lists those there are\n"
        assert inside.ok("node", "check", "2") == "node 2 can be stopped\n"
        assert inside.ok("node", "drain", "2") == "node 2 is drained: it is a member of no open stream; it is empty\n"
        assert inside.ok("node", "rm", "2") == "removed node 2; its id is not given out again\n"
        wait_until(lambda: not cluster.pid_of("node", 2), "a removed node ends")
        told = "node 2 ended with status 1: node 2 was removed from this cluster for good"
        wait_until(lambda: told in cluster.errors(), "nobody was told")
        cluster.stop()
    with up(tmp_path / "cluster") as cluster:  # its folder is still there, and keeps nobody from being ready
        assert [node["id"] for node in Inside(cluster.url, tmp_path, capsys).rows("node", "ls")] == [1]
