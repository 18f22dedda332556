"""The node that numbers the entries of a log: it leads the last segment, or grants its positions."""

from tests.cluster.cluster import RealCluster, Server
from tests.cluster.processes import Process, eventually

import varlog
from varlog.repository import RepositoryConfig

LOST_S = (RepositoryConfig().silent_ms + RepositoryConfig().lost_ms) / 1000
"""After so long without a word from a node others take over from it."""


class Numbering:
    """Of one log, under `leader` or `sequencer`: it is on the head of the last segment's first stream."""

    def __init__(self, cluster: RealCluster, log: str = "orders") -> None:
        self._cluster = cluster
        self._log = log
        self._struck_in: dict[Process, int] = {}
        """The segment that was the last one when it was struck last."""
        self.overtaken: list[Process] = []
        """Those that were struck, and followed by others before that was undone."""

    def segment(self) -> varlog.SegmentDescription:
        """The last one, by the log's record."""
        info = self._cluster.ask(lambda asked: asked.log(self._log).info())
        assert isinstance(info, varlog.LogDescription)
        return info.chain[-1]

    def node_of(self, segment: varlog.SegmentDescription) -> Server:
        return self._cluster.nodes[segment.streams[0].members[0] - 1]

    # ------------------------------------------------------------ as faults want it

    def aim(self) -> Server:
        """Whom to strike."""
        segment = self.segment()
        node = self.node_of(segment)
        self._struck_in[node] = segment.epoch
        return node

    def is_over(self, victim: Process) -> bool:
        """The segment in which it was struck is not the last one any more."""
        over = self.segment().epoch > self._struck_in[victim]
        if over:
            self.overtaken.append(victim)
        return over

    # ------------------------------------------------------------ by hand

    def put_to_sleep(self) -> tuple[Server, varlog.SegmentDescription]:
        """It, and the segment that it numbers in its sleep."""
        return eventually(self._try_to_put_to_sleep, "the node that numbers entries sleeps")

    def _try_to_put_to_sleep(self) -> tuple[Server, varlog.SegmentDescription] | None:
        """None: when it was asleep, another did that."""
        segment = self.segment()
        node = self.node_of(segment)
        node.pause()
        eventually(lambda: node.asleep, f"{node} is stopped")
        if self.segment().epoch == segment.epoch:
            return node, segment
        node.resume()
        return None

    def next_segment(self, after: varlog.SegmentDescription) -> varlog.SegmentDescription:
        """Wait for one that follows."""

        def look() -> varlog.SegmentDescription | None:
            last = self.segment()
            return last if last.epoch > after.epoch else None

        return eventually(look, f"segment {after.epoch} is followed by another")
