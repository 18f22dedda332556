"""The node that numbers entries sleeps until another does, and wakes up: it can acknowledge nothing any more (I11).

stop it            appends are on their way to it, and more are sent, also by a client that is stopped itself
wait               the log's record shows the next segment, and an append is acknowledged in it
wake it up         whatever it was asked is refused, or is in the next segment, once
"""

import asyncio
import time
from pathlib import Path

import pytest
from tests.cluster.audit import appends_of, recorded_append, recorded_chain
from tests.cluster.chaos import Chaos
from tests.cluster.cluster import ClientProcess, RealCluster, Server, real_cluster
from tests.cluster.numbering import Numbering
from tests.cluster.processes import PATIENCE_S, eventually
from tests.cluster.straggler import GrantedStraggler, LedStraggler, Straggler
from tests.cluster.trial import Trial

import varlog
from varlog.runtime.loop import run
from varlog.sim.history import Append, Record

ON_THEIR_WAY = 5
"""Appends that are sent to the node in its sleep by who knows no other."""

ATTEMPTS = 5
"""To stop a node that has served somebody in the segment that is the last one then."""


class Overtaken(Chaos):
    """One strike, and what must follow it."""

    def __init__(self, cluster: RealCluster, sleeper: ClientProcess) -> None:
        super().__init__(cluster.seed, [])
        self._cluster = cluster
        self._sleeper = sleeper
        self._numbering = Numbering(cluster)
        self.records: list[Record] = []
        self.slept_in = 0
        """The stream that the node was on the head of."""
        self.asleep = 0.0
        """From this moment on it was stopped."""

    def rage(self, seconds: float) -> None:
        self._began = time.monotonic()
        run(self._play())

    def heal(self) -> None:
        """All is well already."""

    async def _play(self) -> None:
        straggler, node, segment = await self._put_node_to_sleep()
        try:
            self.asleep, self.slept_in = time.monotonic(), straggler.stream
            self._note("pause", node, f"which numbers segment {segment.epoch}")
            sent = [asyncio.create_task(straggler.append()) for _ in range(ON_THEIR_WAY)]
            waiting = await asyncio.to_thread(self._put_client_to_sleep)
            await asyncio.to_thread(self._is_overtaken, node, segment)
            assert not any(each.done() for each in sent), "it answered in its sleep"

            self._resume(node)
            self._resume(self._sleeper)
            for append in await asyncio.gather(*sent):
                assert append.outcome == "refused", f"{append} was on its way to the sleeping {node}"
            append = await straggler.append()
            assert append.outcome == "refused", f"{append} was sent to {node} when it was awake again"
            await asyncio.to_thread(self._ends_elsewhere, waiting)
        finally:
            straggler.close()
            self.records += straggler.appends

    async def _put_node_to_sleep(self) -> tuple[Straggler, Server, varlog.SegmentDescription]:
        """With a client that it has served: on a busy machine others may take over before it is asleep."""
        for _ in range(ATTEMPTS):
            straggler = await self._straggler()
            if await self._is_served(straggler):
                node, segment = await asyncio.to_thread(self._numbering.put_to_sleep)
                if segment.streams[0].id == straggler.stream:
                    return straggler, node, segment
                node.resume()
            straggler.close()
            self.records += straggler.appends
        raise AssertionError(f"nobody numbered entries for long: {[each.error for each in straggler.appends]}")

    async def _straggler(self) -> Straggler:
        info = await asyncio.to_thread(self._cluster.ask, lambda asked: asked.log("orders").info())
        kind = LedStraggler if info.ordering == "leader" else GrantedStraggler
        straggler = kind(info, info.chain[-1])
        await straggler.connect({number: node.address for number, node in enumerate(self._cluster.nodes, 1)})
        return straggler

    async def _is_served(self, straggler: Straggler) -> bool:
        """What it sends is what a node takes. Under `sequencer` it may be too slow, and find its place filled."""
        while (await straggler.append()).outcome != "ack":
            if straggler.appends[-1].error != "Taken":
                return False
        if isinstance(straggler, GrantedStraggler):
            straggler.granted.append(await straggler.grant())
        return True

    def _put_client_to_sleep(self) -> list[str]:
        """When it has sent something to the node, and waits; what it waits for."""
        eventually(self._waits_for, f"{self._sleeper} waits for what it sent to the sleeping node")
        self._sleeper.pause()
        eventually(lambda: self._sleeper.asleep, f"{self._sleeper} is stopped")
        self._note("pause", self._sleeper, "which waits for that node")
        return self._waits_for()

    def _waits_for(self) -> list[str]:
        sent = [each for each in appends_of(self._sleeper) if each.start_time > self.asleep]
        return [each.payloads[0] for each in sent if each.end_time is None]

    def _is_overtaken(self, node: Server, segment: varlog.SegmentDescription) -> None:
        following = self._numbering.next_segment(segment)
        assert self._numbering.node_of(following) is not node
        with self._cluster.connected() as cluster:
            log = cluster.log("orders")
            self.records.append(recorded_chain(log))
            append = recorded_append(log, "in the next segment", timeout=PATIENCE_S)
        self.records.append(append)
        assert append.outcome == "ack", append
        assert append.stream != self.slept_in
        assert node.asleep, "it was to be overtaken in its sleep"

    def _ends_elsewhere(self, waiting: list[str]) -> None:
        """What the sleeping client had sent to the sleeping node."""

        def ended() -> list[Append] | None:
            found = [each for each in appends_of(self._sleeper) if each.payloads[0] in waiting]
            return found if all(each.end_time is not None for each in found) else None

        for append in eventually(ended, f"{self._sleeper} knows what became of {len(waiting)} appends"):
            assert append.outcome == "ack", f"it had all the time it needed, and would have sent it again: {append}"
            assert append.stream != self.slept_in


@pytest.mark.parametrize("ordering", ["leader", "sequencer"])
def test_a_node_that_slept_until_it_was_overtaken_acknowledges_nothing(ordering: str, tmp_path: Path) -> None:
    with real_cluster(tmp_path, nodes=4) as cluster:
        cluster.ask(lambda asked: asked.create_log("orders", ordering=ordering, replicas=3, streams=1))
        steady = cluster.add_client("subscribe", "orders", "steady")
        for role in ("append", "batches", "look"):
            cluster.add_client(role, "orders", pace=0.02)
        sleeper = cluster.add_client("append", "orders", "sleeper", pace=0.02, timeout=PATIENCE_S)
        story = Overtaken(cluster, sleeper)
        trial = Trial(cluster, story, steady, records=story.records)
        trial.run(0.0)
        print(trial.summary())
        appends = [each for each in trial.records if isinstance(each, Append)]
        begun: dict[str, float] = {}
        for each in sorted(appends, key=lambda append: append.start_time):
            begun.setdefault(each.payloads[0], each.start_time)  # who was left in doubt has sent it again, by its token
        late = [each for each in appends if each.outcome == "ack" and begun[each.payloads[0]] > story.asleep]
        assert late
        assert not [each for each in late if each.stream == story.slept_in], "acknowledged where all was over"
