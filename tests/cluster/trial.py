"""The course of a test with faults, and its verdict.

load    clients write, read, follow and trim the log
rage    faults strike
heal    everything runs again; every stream must take an append within a bound (I14)
settle  writers end, subscribers reach the tail, every replica hears of every cut
audit   the log is read through the client, then all files with nobody running
judge   the checkers of the simulator look at all of it
"""

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.audit import (
    all_replicas,
    appends_of,
    expected_copies,
    printed,
    read_log,
    read_operations,
    recorded_append,
    recorded_chain,
    save_history,
    wait_bound,
    wait_committed,
)
from tests.cluster.chaos import Chaos
from tests.cluster.cluster import ClientProcess, RealCluster
from tests.cluster.processes import PATIENCE_S, Process, eventually

import varlog
from varlog.sim.checkers import CHECKERS, check_history
from varlog.sim.history import Append, Expectation, FinalLog, History, Operation, Record, Subscription

BOUND_S = 30.0
"""Within so long after all faults have stopped every stream takes an append."""

SHOWN = 20
"""Violations that are shown of a failed trial."""


@dataclass
class Trial:
    """One cluster, one log, one run of faults."""

    cluster: RealCluster
    chaos: Chaos
    steady: ClientProcess
    """A subscriber from the first position on that no fault strikes."""
    follower: Process | None = None
    """A `varlog tail --follow -o json` that no fault strikes."""
    log: str = "orders"
    least: int = 100
    """More entries than this are acknowledged before writers may end."""
    records: list[Record] = field(default_factory=list)
    probed: list[Expectation] = field(default_factory=list)
    """What streams must do that were open when faults had stopped."""
    counts: Counter[str] = field(default_factory=Counter)
    tail: int = 0
    recovered_s: float = 0.0
    """From the moment all servers served again until every stream had taken an append."""

    # ------------------------------------------------------------ the course

    def run(self, seconds: float) -> None:
        began = time.monotonic()
        for client in self.cluster.clients:
            client.start()
        if self.follower is not None:
            self.follower.start()
        eventually(lambda: self.steady.position, "the subscriber has seen something")
        if self.follower is not None:  # one that cannot reach the cluster at its start gives up
            eventually(self._followed, "`varlog tail` has printed something")
        self._look_at_chain()
        self.chaos.rage(seconds)
        self.chaos.heal()
        for server in self.cluster.servers:
            server.wait_serving()
        self._probe(time.monotonic())
        self._settle()
        final = self._audit()
        self._judge(final)
        self.counts["seconds"] = round(time.monotonic() - began)

    def _look_at_chain(self) -> None:
        self.records.append(self.cluster.ask(lambda asked: recorded_chain(asked.log(self.log))))

    def _probe(self, healed: float) -> None:
        """Every stream that has not ended takes an append, however long it takes; the checker knows how long it may."""
        with self.cluster.connected() as cluster:
            log = cluster.log(self.log)
            probed: dict[int, Expectation] = {}
            while fresh := [each for each in log.info().chain[-1].streams if each.writable and each.id not in probed]:
                for stream in fresh:
                    expected = Expectation(log=self.log, stream=stream.id, healed_time=healed, bound=BOUND_S)
                    expected.any_stream = log.info().ordering == "sequencer"  # where it goes is not ours to say
                    probed[stream.id] = expected
                    self._probe_stream(log, expected, healed + BOUND_S)
            eventually(lambda: _has_all_streams(log.info()), "as many streams as are wanted")
            writable = [stream.id for stream in log.info().chain[-1].streams if stream.writable]
            for stream_id, expected in probed.items():
                if stream_id not in writable:
                    expected.excuse = "it has ended"  # alone, or with its segment
            self.probed = list(probed.values())
            self.records.append(recorded_chain(log))
        self.recovered_s = time.monotonic() - healed

    def _probe_stream(self, log: "varlog.sync.Log", expected: Expectation, deadline: float) -> None:
        attempt = 0
        stream = None if expected.any_stream else expected.stream
        while (left := deadline - time.monotonic()) > 0:
            attempt += 1
            name = f"probe.{expected.stream}.{attempt}"
            append = recorded_append(log, name, stream=stream, timeout=max(0.1, left))
            self.records.append(append)
            if append.outcome == "ack" or append.error == "Sealed":
                return

    def _settle(self) -> None:
        followers = [client for client in self.cluster.clients if client.subscribes]
        eventually(self._has_enough, f"more than {self.least} entries are acknowledged")
        for client in self.cluster.clients:
            if client not in followers:
                eventually(lambda client=client: client.at_work, f"{client} works")  # type: ignore[misc]
                assert client.stop() == 0, f"{client}: {client.last_words()}"
        with self.cluster.connected() as cluster:
            log = cluster.log(self.log)
            self._append_last(log)
            self.tail = log.tail()
        eventually(
            lambda: all(client.position >= self.tail for client in followers if client.role == "subscribe"),
            f"subscribers reach the tail {self.tail}",
        )
        if self.follower is not None:
            eventually(self._follower_is_there, f"`varlog tail` reaches the tail {self.tail}")
        wait_bound(self.cluster)
        eventually(self._is_well, "nothing is wrong any more")

    def _append_last(self, log: "varlog.sync.Log") -> None:
        """What was given up is not at the tail."""
        self.records.append(recorded_append(log, "last", timeout=PATIENCE_S))

    def _has_enough(self) -> bool:
        appends = [each for client in self.cluster.clients for each in appends_of(client)]
        return len({payload for each in appends if each.outcome == "ack" for payload in each.payloads}) > self.least

    def _is_well(self) -> bool:
        """Every replica works, those that failed made anew."""
        streams = [stream for log in self.cluster.status().logs for stream in log.streams]
        return not any(stream.trouble for stream in streams)

    def _audit(self) -> FinalLog:
        final = read_log(self.cluster.url, self.log)
        wait_committed(self.cluster, final)
        self._look_at_chain()
        info = self.cluster.ask(lambda asked: asked.log(self.log).info())
        self.records += [final, *expected_copies(info, self.probed), *all_replicas(self.cluster)]
        if self.follower is not None:
            followed = printed(self.follower.output.read_bytes(), self.log)
            followed.must_catch_up = True
            self.records.append(followed)
        for client in self.cluster.clients:
            operations = read_operations(client.recordings())
            if client.subscribes:
                _follows_to_the_end(operations)
            self.records += operations  # type: ignore[arg-type]
        return final

    # ------------------------------------------------------------ the verdict

    def _judge(self, final: FinalLog) -> None:
        path = self.cluster.folder / "history.jsonl"
        history = save_history(path, self.records)
        wrong = [str(violation) for violation in check_history(history)]
        wrong += self.cluster.complaints()
        wrong += self._steady_complaints(final) + self._follower_complaints()
        self._count(history)
        if wrong:
            raise AssertionError(self._report(wrong, path))

    def _followed(self) -> list[int]:
        """The positions that `varlog tail` has printed, as far as lines are whole."""
        assert self.follower is not None
        lines = self.follower.output.read_bytes().split(b"\n")[:-1]
        return [json.loads(line)["glsn"] for line in lines]

    def _follower_is_there(self) -> bool:
        assert self.follower is not None
        assert self.follower.alive, f"`varlog tail` ended: {self.follower.last_words()}"
        return self._followed()[-1] >= self.tail

    def _follower_complaints(self) -> list[str]:
        """What it printed is judged as that of any subscriber."""
        if self.follower is None:
            return []
        return [f"`varlog tail` says: {text}" for text in self.follower.all_errors().values()]

    def _steady_complaints(self, final: FinalLog) -> list[str]:
        """S7: one subscription, through everything, every entry once and in order."""
        operations = read_operations(self.steady.recordings())
        if len(operations) != 1:
            return [f"the steady subscriber began anew: {[operation.error for operation in operations]}"]
        only = operations[0]
        assert isinstance(only, Subscription)
        if only.glsns != _positions(final, 1):
            return [f"the steady subscriber saw {len(only.glsns)} entries, the tail is {final.tail}"]
        return []

    def _count(self, history: History) -> None:
        acked: set[str] = set()
        for record in history.records:
            self.counts[f"{record.kind} {record.outcome}" if isinstance(record, Append) else record.kind] += 1
            if isinstance(record, Append) and record.outcome == "ack":
                acked.update(record.payloads)
        self.counts["entries acked"] = len(acked)
        self.counts["entries in the log"] = self.tail

    def _report(self, wrong: list[str], path: Path) -> str:
        more = [f"... and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        parts = [f"seed {self.cluster.seed}: {len(wrong)} violations"]
        parts += [*wrong[:SHOWN], *more, f"history: {path}", self.summary(), *self.chaos.story]
        return "\n".join(parts)

    def summary(self) -> str:
        """What happened, in numbers."""
        done = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.chaos.struck.items()))
        lines = [f"seed {self.cluster.seed}; faults: {faults}", done, f"appends again after {self.recovered_s:.2f} s"]
        return "; ".join([*lines, f"checked: {', '.join(CHECKERS)}"])


def _follows_to_the_end(operations: list[Operation]) -> None:
    """The subscription that was going on at the end was given all the time it needed."""
    if operations and isinstance(operations[-1], Subscription) and operations[-1].end_time is None:
        operations[-1].must_catch_up = True


def _has_all_streams(log: varlog.LogDescription) -> bool:
    """One that is replaced just now is about to have a successor."""
    return sum(stream.writable for stream in log.chain[-1].streams) >= log.streams


def _positions(final: FinalLog, first: int) -> list[int]:
    """All from the first one on to the tail, but for those that were given up."""
    junk = set(final.junk)
    return [glsn for glsn in range(first, final.tail + 1) if glsn not in junk]
