"""Damaged files of a real node: it serves its others, `segment verify` says where, and peers have them made anew."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import RealCluster, real_cluster
from tests.cluster.processes import eventually, run_varlog, unexpected

import varlog

DATA_FILE = "00000000000000000000.data"
PAYLOADS = [b"%s-%d" % (word, number) for number, word in enumerate([b"alpha", b"beta", b"gamma", b"delta"] * 5)]
VICTIM = 2
"""The node whose files suffer."""


@dataclass
class Hurt:
    """What was done to a replica, and what should be said of it."""

    file: Path
    offset: int
    slot: int


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x40]))


def rows(path: Path) -> list[dict[str, Any]]:
    """The records of a file, as `varlog segment dump` shows them."""
    done = run_varlog("segment", "dump", "-o", "json", str(path))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def batch_with(path: Path, payload: bytes) -> dict[str, Any]:
    at = path.read_bytes().index(payload)
    return max((row for row in rows(path) if row["kind"] == "BATCH" and row["offset"] < at), key=lambda r: r["offset"])


# ---------------------------------------------------------------- ways to be hurt


def flipped_payload(folder: Path) -> Hurt:
    path = folder / DATA_FILE
    batch = batch_with(path, PAYLOADS[7])
    flip(path, path.read_bytes().index(PAYLOADS[7]) + 2)
    return Hurt(path, batch["offset"], batch["slot"])


def flipped_header(folder: Path) -> Hurt:
    path = folder / DATA_FILE
    batch = batch_with(path, PAYLOADS[3])
    flip(path, batch["offset"] + 1)
    return Hurt(path, batch["offset"], batch["slot"])


def wrong_magic(folder: Path) -> Hurt:
    path = folder / DATA_FILE
    flip(path, 0)
    return Hurt(path, 0, 0)


def cut_short(folder: Path) -> Hurt:
    path = folder / DATA_FILE
    batch = batch_with(path, PAYLOADS[5])
    with path.open("r+b") as file:
        file.truncate(batch["offset"] + batch["size"] // 2)
    return Hurt(path, batch["offset"] + batch["size"] // 2, 0)


def zeroed(folder: Path) -> Hurt:
    path = folder / DATA_FILE
    batch = batch_with(path, PAYLOADS[9])
    with path.open("r+b") as file:
        file.seek(batch["offset"])
        file.write(bytes(512))
    return Hurt(path, batch["offset"], batch["slot"])


def flipped_spec(folder: Path) -> Hurt:
    flip(folder / "spec", (folder / "spec").stat().st_size // 2)
    return Hurt(folder / "spec", 0, 0)


WAYS: list[Callable[[Path], Hurt]] = [flipped_payload, flipped_header, wrong_magic, cut_short, zeroed, flipped_spec]


# ---------------------------------------------------------------- one cluster for all of them


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with real_cluster(tmp_path_factory.mktemp("damage"), nodes=3) as cluster:
        fill(cluster, "healthy")
        yield cluster


def fill(cluster: RealCluster, name: str) -> varlog.LogDescription:
    """A log with some entries, all of them bound on every disk."""

    def work(asked: "varlog.sync.Cluster") -> varlog.LogDescription:
        log = asked.create_log(name)
        for payload in PAYLOADS:
            log.append(payload)
        return log.info()

    description = cluster.ask(work)
    eventually(lambda: all(log.kept_cuts == 0 for log in cluster.status().logs), "every cut is bound")
    assert isinstance(description, varlog.LogDescription)
    return description


def replica_folder(cluster: RealCluster, log: varlog.LogDescription) -> Path:
    return cluster.data(VICTIM) / "replicas" / f"{log.id}.1.1"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_bad_replica_is_made_anew_and_harms_no_other(cluster: RealCluster, way: Callable[[Path], Hurt]) -> None:
    log = fill(cluster, way.__name__)
    node = cluster.nodes[VICTIM - 1]
    node.kill()
    hurt = way(replica_folder(cluster, log))
    check_verify(cluster, hurt)
    node.start()
    cluster.wait_ready()
    wait_repaired(cluster, log)
    told = f"node {VICTIM}: since its start 1 damaged replicas were made anew from their peers; look at its disks"
    eventually(lambda: told in cluster.status_page()["notices"], "status tells")
    assert unexpected(node.last_words()) == ""
    check_others(cluster, log)


def wait_repaired(cluster: RealCluster, log: varlog.LogDescription) -> None:
    """Its stream has ended, and what it held is there again, whole, in another folder."""

    def repaired() -> bool:
        folders = list((cluster.data(VICTIM) / "replicas").glob(f"{log.id}.1.1*"))
        troubles = cluster.status_page()["troubles"]
        return [folder.name != f"{log.id}.1.1" for folder in folders] == [True] and not any(
            f"log {log.name}: " in trouble for trouble in troubles
        )

    eventually(repaired, "the replica is made anew")
    (folder,) = (cluster.data(VICTIM) / "replicas").glob(f"{log.id}.1.1*")
    assert run_varlog("segment", "verify", str(folder)).returncode == 0


def check_verify(cluster: RealCluster, hurt: Hurt) -> None:
    """It names the file, the offset and the first slot in doubt, and its exit status says that something is wrong."""
    data = cluster.data(VICTIM)
    done = run_varlog("segment", "verify", "-o", "json", str(data))
    assert done.returncode == 1
    assert done.stderr == b""
    found = [row for row in json.loads(done.stdout) if row["file"] == str(hurt.file.relative_to(data))]
    assert (hurt.offset, hurt.slot, True) in [(row["offset"], row["slot"], row["damage"]) for row in found]


def check_others(cluster: RealCluster, hurt: varlog.LogDescription) -> None:
    """What was acked is readable from the other members, appends go on in another stream, other logs as they were."""

    def work(asked: "varlog.sync.Cluster") -> None:
        with asked.log(hurt.name).subscribe(start=1, stop=len(PAYLOADS) + 1) as subscription:
            assert [entry.payload for entry in subscription] == PAYLOADS
        ack = asked.log(hurt.name).append(b"behind the damage")
        assert ack.glsn > len(PAYLOADS)
        assert asked.log(hurt.name).read(ack.glsn).payload == b"behind the damage"
        first, *others = asked.log(hurt.name).info().chain[-1].streams
        assert not first.writable
        assert [stream.writable for stream in others].count(True) == 1
        ack = asked.log("healthy").append(b"still fine")
        assert asked.log("healthy").read(ack.glsn).payload == b"still fine"

    cluster.ask(work)


def test_a_torn_tail_is_mended_without_a_word(cluster: RealCluster) -> None:
    """What a crash leaves behind the last synced group is no damage."""
    log = fill(cluster, "torn")
    node = cluster.nodes[VICTIM - 1]
    node.kill()
    path = replica_folder(cluster, log) / DATA_FILE
    last = rows(path)[-2]
    batch = batch_with(path, PAYLOADS[-1])
    torn = path.read_bytes()[batch["offset"] : batch["offset"] + batch["size"] - 8]
    with path.open("r+b") as file:
        file.seek(last["offset"] + last["size"])
        file.write(torn)
    node.start()
    cluster.wait_ready()
    assert cluster.ask(lambda asked: asked.log("torn").append(b"more")).first == len(PAYLOADS) + 1
    # Meanwhile the log went on with the other two copies; that is all that is ever said of it.
    eventually(lambda: not any("torn" in trouble for trouble in cluster.status_page()["troubles"]), "three copies")
    assert not any("damaged" in notice for notice in cluster.status_page()["notices"])
    assert unexpected(node.last_words()) == ""


def test_a_lost_tail_is_noticed(cluster: RealCluster) -> None:
    """A disk that lost its last synced entries looks like a torn one. The cluster knows better."""
    log = fill(cluster, "lost")
    node = cluster.nodes[VICTIM - 1]
    node.kill()
    path = replica_folder(cluster, log) / DATA_FILE
    batch = batch_with(path, PAYLOADS[-1])
    with path.open("r+b") as file:
        file.seek(batch["offset"])
        file.write(bytes(path.stat().st_size - batch["offset"]))
    node.start()
    cluster.wait_ready()
    wait_repaired(cluster, log)
    read = run_varlog("read", "lost", f"1..{len(PAYLOADS)}", "--raw", url=cluster.url)
    assert read.stdout.split() == PAYLOADS
