"""Leaders of a journal as processes: one that sleeps for longer than its lease, one that is killed (J4, J5, I11)."""

import time
from pathlib import Path

from tests.cluster.audit import appends_of, read_log, save_history
from tests.cluster.client_program import LEAD_TTL_S
from tests.cluster.cluster import ClientProcess, RealCluster, real_cluster
from tests.cluster.led import describe, leader_of
from tests.cluster.processes import eventually

import varlog
from varlog.sim.checkers import check_history
from varlog.sim.history import Append, Record


def another_leads(cluster: RealCluster, candidates: list[ClientProcess], old: ClientProcess) -> ClientProcess:
    def look() -> ClientProcess | None:
        found = leader_of(cluster, candidates)
        return found if found is not old else None

    return eventually(look, f"another than {old} leads")


def goes_on(cluster: RealCluster) -> None:
    seen = steady(cluster).position
    eventually(lambda: steady(cluster).position > seen + 10, "whoever leads appends")


def put_leader_to_sleep(
    cluster: RealCluster, candidates: list[ClientProcess]
) -> tuple[ClientProcess, varlog.SegmentDescription] | None:
    """It, and the segment that it leads in its sleep; None: when it was asleep, it led no more."""
    found = leader_of(cluster, candidates)
    if found is None:
        return None
    found.pause()
    eventually(lambda: found.asleep, f"{found} is stopped")
    segment = describe(cluster).chain[-1]
    if segment.leader == found.name:
        return found, segment
    found.resume()
    return None


def is_fenced(client: ClientProcess, since: float) -> bool:
    ended = [each for each in appends_of(client) if each.end_time is not None and each.end_time > since]
    return any(each.error == "Fenced" for each in ended)


def steady(cluster: RealCluster) -> ClientProcess:
    """The subscriber that nothing strikes."""
    return cluster.clients[0]


def test_a_leader_that_sleeps_or_dies_is_followed_and_acknowledges_nothing_more(tmp_path: Path) -> None:
    with real_cluster(tmp_path, nodes=3) as cluster:
        cluster.ask(lambda asked: asked.journal("wal").__enter__())
        cluster.add_client("subscribe", "wal", "steady")
        candidates = [cluster.add_client("lead", "wal", f"candidate{number}", pace=0.005) for number in (1, 2)]
        for client in cluster.clients:
            client.start()
        eventually(lambda: steady(cluster).position > 10, "somebody leads, and appends")

        sleeper, slept_in = eventually(lambda: put_leader_to_sleep(cluster, candidates), "somebody leads, and sleeps")
        asleep = time.monotonic()
        last_word = float((tmp_path / f"{sleeper.name}.word").read_text())
        follower = another_leads(cluster, candidates, sleeper)
        assert time.monotonic() - last_word > LEAD_TTL_S / 2, "its lease had to run out"
        goes_on(cluster)
        sleeper.resume()
        eventually(lambda: is_fenced(sleeper, asleep), "it hears that it is fenced")

        follower.kill()
        another_leads(cluster, candidates, follower)
        goes_on(cluster)
        for client in candidates:
            if client.alive:
                assert client.stop() == 0, client.last_words()

        records: list[Record] = [each for client in candidates for each in appends_of(client)]
        for append in (each for each in records if isinstance(each, Append) and each.outcome == "ack"):
            if append.client.startswith(sleeper.name) and append.start_time > asleep:
                assert append.stream != slept_in.streams[0].id, f"{append} was acknowledged in the old segment"
        final = read_log(cluster.url, "wal")
        history = save_history(tmp_path / "history.jsonl", [*records, final])
        assert [str(violation) for violation in check_history(history)] == []
        assert sum(isinstance(each, Append) and each.outcome == "ack" for each in records) > 20
