"""What operators do, with real processes: drain a node, ask whether it can be stopped, lose one, remove it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
        inside.ok("log", "create", "orders", "--replicas", "3", "--ack", "3", "--streams", "2")
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
            assert out == "node 3 is drained: nothing is left on it; it can be stopped, and removed\n"
            assert inside.rows("node", "check", "3") == {"node": 3, "stoppable": True, "reason": "", "streams": []}
            assert inside.append("orders", "d")[:2] == (0, "appended 1 entry to orders at 4\n")
            wait_until(lambda: all_reported(inside), "the cluster is well")
            page = inside.ok("status")
            assert page.startswith("all is well\n- node 3: drains; 0 open streams to move, 0 ended ones on it\n")
            shown = inside.rows("log", "show", "orders")
            assert [row["state"] for row in shown["stream_states"]] == ["ended", "ended", "open", "open"]
            assert [row["start"] for row in shown["stream_states"]] == [1, 1, 4, 4]
            assert [row["stop"] for row in shown["stream_states"]] == [4, 4, None, None]
            assert shown["missing"] == ["stream 3: 3 copies in 2 zones", "stream 4: 3 copies in 2 zones"]
            assert inside.ok("node", "rm", "3") == "removed node 3; its id is not given out again\n"
            assert sorted(node_states(inside)) == [1, 2, 4]
            assert inside.ok("read", "orders", "1..4", "--raw") == "a\nb\nc\nd\n"
            wait_until(lambda: not cluster.pid_of("node", 3), "a removed node ends")

            with another_node(cluster, cluster.folder / "node-3") as back:
                assert back.wait(PATIENCE_S) == 1
                assert back.stderr is not None
                told = back.stderr.read()
            assert told.startswith("varlog: node 3 was removed from this cluster for good; ")
            assert told.count("\n") == 1


def test_a_node_that_is_lost_for_good_is_given_up_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with up(tmp_path / "cluster", "--nodes", "4") as cluster:
        inside = Inside(cluster.url, tmp_path, capsys)
        inside.ok("log", "create", "orders", "--replicas", "3")
        assert inside.append("orders", "a\nb\nc\n", "--lines")[0] == 0
        wait_until(lambda: all_reported(inside), "the cluster is well")
        (lost, *_) = inside.rows("log", "show", "orders")["stream_states"][0]["members"]
        status, _, errors = inside.run("node", "rm", str(lost), "--force", "--yes")
        assert (status, errors.count("\n")) == (1, 1)
        assert "member of 1 open stream" in errors
        os.kill(cluster.pid_of("node", lost), signal.SIGKILL)
        wait_until(lambda: node_states(inside)[lost] == "silent", "the node is missed")
        told = f"! log orders: stream 1: no word of its copy on node {lost}"
        wait_until(lambda: told in inside.run("status")[1], "its stream was replaced")
        status, page, _ = inside.run("status")
        assert status == 1
        assert page.startswith(f"! node {lost}: not connected; last seen ")
        status, _, errors = inside.run("node", "rm", str(lost), "--force")
        assert status == 2
        assert errors.count("given up: its copy of log orders, stream ") == 1
        assert errors.endswith(f"varlog: nothing was removed; if node {lost} is lost for good, say --yes\n")
        removed = inside.ok("node", "rm", str(lost), "--force", "--yes")
        assert removed == f"removed node {lost}; its id is not given out again\n"
        assert lost not in node_states(inside)
        wait_until(lambda: all_reported(inside), "another node has a copy in its place")
        assert inside.ok("read", "orders", "1..3", "--raw") == "a\nb\nc\n"


def test_a_node_is_told_to_look_for_rot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with up(tmp_path / "cluster", "--nodes", "3") as cluster:
        inside = Inside(cluster.url, tmp_path, capsys)
        inside.ok("log", "create", "orders", "--replicas", "3")
        assert inside.append("orders", "alpha\nbeta\ngamma\n", "--lines")[0] == 0
        inside.ok("log", "seal", "orders")
        wait_until(lambda: all_reported(inside), "the cluster is well")
        rows = inside.rows("node", "scrub")
        assert [(row["node"], row["found"], row["damaged"]) for row in rows] == [(1, 0, []), (2, 0, []), (3, 0, [])]
        (data,) = (cluster.folder / "node-2" / "replicas" / "1.1.1").glob("0*.data")
        content = data.read_bytes()
        data.write_bytes(content.replace(b"beta", b"bets"))
        inside.run("node", "scrub", "2")
        page = "- node 2: since its start 1 damaged replicas were made anew from their peers; look at its disks"
        wait_until(lambda: page in inside.run("status")[1], "it was found and repaired")
        wait_until(lambda: all_reported(inside), "the cluster is well")
        assert inside.rows("node", "scrub", "2")[0]["repaired"] == 1
        told = (cluster.folder / "node-2.log").read_text()
        assert "varlog: replica 1.1.1 is damaged: slots 0 to 2 (positions 1 to 3): 0" in told
        assert inside.run("node", "scrub", "9")[0] == 1


def test_a_drain_that_cannot_end_says_why_and_can_be_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "STUCK_S", 0.5)
    with up(tmp_path / "cluster", "--nodes", "2") as cluster:
        inside = Inside(cluster.url, tmp_path, capsys)
        inside.ok("log", "create", "a", "--replicas", "2")
        status, out, errors = inside.run("node", "drain", "2")
        assert (status, out, errors.count("\n")) == (1, "", 1)
        assert "node 2 goes on draining, but 1 open stream and 0 ended streams cannot leave it yet; log a: st" in errors
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
        assert (
            inside.ok("node", "drain", "2")
            == "node 2 is drained: nothing is left on it; it can be stopped, and removed\n"
        )
        assert inside.ok("node", "rm", "2") == "removed node 2; its id is not given out again\n"
        wait_until(lambda: not cluster.pid_of("node", 2), "a removed node ends")
        told = "node 2 ended with status 1: node 2 was removed from this cluster for good"
        wait_until(lambda: told in cluster.errors(), "nobody was told")
        cluster.stop()
    with up(tmp_path / "cluster") as cluster:  # its folder is still there, and keeps nobody from being ready
        assert [node["id"] for node in Inside(cluster.url, tmp_path, capsys).rows("node", "ls")] == [1]
