"""What a run need not reach in the end, and exactly why: copies that are out for good, too few nodes left.

Everything else must work again once faults have stopped; see `Scenario`.
"""

from varlog.core.ordering.leader import seal_quorum
from varlog.sim.audit import sync_failures
from varlog.sim.checkers import Violation
from varlog.sim.cluster import NODE_PORT, SimulatedCluster
from varlog.sim.drainer import Drainer
from varlog.sim.faults import Nemesis
from varlog.sim.history import Replica
from varlog.sim.host import Host
from varlog.sim.weather import Shape
from varlog.wire.proto import varlog_pb2 as pb

LOST_WITH_THE_END = ("I1", "I2", "I3", "I4", "I9", "I10", "numbers", "places")
"""What an end that is too low breaks, from its segment on."""

END_IS_GONE = "all who had the end of it are lost, have rotted or failed"


class Excuses:
    """Of one run."""

    def __init__(self, cluster: SimulatedCluster, nemesis: Nemesis, shape: Shape) -> None:
        self._cluster = cluster
        self._nemesis = nemesis
        self._shape = shape
        self.lost: list[Host] = []
        """Gone for good."""
        self.drainer: Drainer | None = None
        self.replicas: dict[tuple[int, int], list[pb.ReplicaReport]] = {}
        """What the members of each stream reported last."""

    def healable(self, info: pb.LogInfo) -> bool:
        """Whether there are nodes enough for streams without those that are lost or drain."""
        usable = [host for host in self._cluster.nodes if not self.is_drained(host)]
        if info.ordering == "cut":
            return len(usable) >= info.ack
        # A node with a flipped bit may not even start; a leader does not wait for it, others take over.
        return sum(host is not self._nemesis.rotten for host in usable) >= info.ack

    def is_drained(self, host: Host) -> bool:
        return self.drainer is not None and self.drainer.address == f"{host.name}:{NODE_PORT}"

    def on_drained(self, info: pb.LogInfo) -> list[pb.StreamInfo]:
        """Open streams of a log that are on the node which drains."""
        open_streams = [stream for stream in streams_of(info) if stream.state != pb.STREAM_FINALIZED]
        return [
            stream
            for stream in open_streams
            if any(self.is_drained(self.host_of(info, node)) for node in stream.members)
        ]

    def not_left(self, infos: dict[str, pb.LogInfo]) -> list[Violation]:
        """A drained node has nothing open any more, where there are nodes enough without it."""
        return [
            Violation("I14", name, f"stream {stream.id} has not left the node that drains")
            for name, info in infos.items()
            if not info.sealed and self.healable(info) and self._has_room_elsewhere(info)
            # Not under `cut` all streams of a segment end together: if one cannot be sealed, none goes.
            if all(self._sealable(info, stream) for stream in info.chain[-1].streams)
            for stream in self.on_drained(info)
        ]

    def not_replaced(self, infos: dict[str, pb.LogInfo]) -> list[Violation]:
        """A log has as many open streams as it wants: others follow those that end, where there are nodes for them."""
        found = []
        for name, info in infos.items():
            left = sum(stream.state != pb.STREAM_FINALIZED for stream in info.chain[-1].streams)
            if left < info.streams and not info.sealed and self.healable(info):
                found.append(Violation("I14", name, f"{left} of the {info.streams} streams it wants are open"))
        return found

    def short_of_nodes(self, info: pb.LogInfo, stream: pb.StreamInfo) -> bool:
        """Whether it has fewer members than are wanted, and there is no node for another."""
        segment = next(segment for segment in info.chain if stream in segment.streams)
        hosts = [self.host_of(info, node) for node in stream.members]
        others = [host for host in self._cluster.nodes if host not in hosts and not self.is_drained(host)]
        return len(hosts) < segment.replicas and others in ([], [self._nemesis.rotten])

    def _has_room_elsewhere(self, info: pb.LogInfo) -> bool:
        """Without the node that drains, and without one that a flipped bit may keep from starting."""
        fit = [host for host in self._cluster.nodes if not self.is_drained(host) and host is not self._nemesis.rotten]
        return len(fit) >= info.ack

    def not_moved(self, infos: dict[str, pb.LogInfo]) -> list[Violation]:
        """Nor has it copies of what has ended, where others can take them."""
        return [
            Violation("I14", name, f"the copy of stream {stream.id} has not left the node that drains")
            for name, info in infos.items()
            for stream in streams_of(info)
            if stream.state == pb.STREAM_FINALIZED and self.is_whole(info, stream) and self._can_move(info, stream)
        ]

    def is_whole(self, info: pb.LogInfo, stream: pb.StreamInfo) -> bool:
        """Whether somebody has all of a stream that has ended."""
        return self.has_source(info, stream) and not self.end_is_gone(info, stream)

    def _can_move(self, info: pb.LogInfo, stream: pb.StreamInfo) -> bool:
        hosts = [self.host_of(info, node) for node in stream.members]
        others = [host for host in self._cluster.nodes if host not in hosts and not self.is_drained(host)]
        if others == [self._nemesis.rotten]:
            return False  # a node with a flipped bit may not even start
        return any(map(self.is_drained, hosts)) and bool(others)

    def excuse(self, info: pb.LogInfo, stream: pb.StreamInfo) -> str:
        """Why a stream need not take appends: one of its members is out for good, and it is not reconfigured yet."""
        if info.sealed:
            return "the log is sealed"
        if stream.state == pb.STREAM_FINALIZED:
            return "it has ended"
        # Positions go round all streams of a segment under a sequencer: if one is stuck, all are.
        segment = next(segment for segment in info.chain if stream in segment.streams)
        together = list(segment.streams) if segment.ordering == "sequencer" else [stream]
        troubles = [
            trouble for each in together for node in each.members if (trouble := self.trouble(info, each, node))
        ]
        troubles += filter(None, [self.stuck_with_rot(info, each) for each in together])
        if self.healable(info) and all(self._sealable(info, each) for each in together):
            # It must be noticed, and another stream take its place; but a flipped bit is found only by who reads it.
            troubles = [trouble for trouble in troubles if trouble.startswith("a bit")]
        return next(iter(troubles), "")

    def _sealable(self, info: pb.LogInfo, stream: pb.StreamInfo) -> bool:
        """Under a leader, whether enough members are left to tell what was acknowledged."""
        segment = next(segment for segment in info.chain if stream in segment.streams)
        if segment.ordering == "cut":
            return True
        left = [node for node in stream.members if not self.trouble(info, stream, node)]
        return len(left) >= seal_quorum(len(stream.members), segment.ack)

    def stuck_with_rot(self, info: pb.LogInfo, stream: pb.StreamInfo) -> str:
        """Why rot in a stream that has not ended is not repaired: there are too few nodes to replace the stream."""
        hosts = [self.host_of(info, node) for node in stream.members]
        open_ = stream.state != pb.STREAM_FINALIZED and not info.sealed
        if not open_ or self.healable(info) or self._nemesis.rotting not in hosts:
            return ""
        return f"bits flipped on {self._nemesis.rotting.name}, and there are too few nodes for another stream"

    def trouble(self, info: pb.LogInfo, stream: pb.StreamInfo, node: int) -> str:
        """What puts a member out for good: the loss of its node, a flipped bit, or a failed sync of its own files."""
        host = self.host_of(info, node)
        if host in self.lost:
            return f"{host.name} is lost for good"
        if host is self._nemesis.rotten:
            return f"a bit flipped on {host.name}"
        epoch = next(segment.epoch for segment in info.chain if stream in segment.streams)
        if sync_failures(host, f"{info.id}.{epoch}.{stream.id}"):
            return f"a sync of its replica on {host.name} failed"
        return ""

    def readable(self, info: pb.LogInfo) -> bool:
        """Whether every stream of a log has a member left."""
        last = info.chain[-1]
        led = last.ordering != "cut" and not info.sealed
        if led and not (self._can_go_on(info, last) or not any(self.excuse(info, stream) for stream in last.streams)):
            return False  # where it ends only its leader knows, or who may seal it
        if any(self.end_is_gone(info, stream) for stream in streams_of(info)):
            return False
        return all(self.has_source(info, stream) for stream in streams_of(info))

    def _can_go_on(self, info: pb.LogInfo, last: pb.SegmentInfo) -> bool:
        """Whether another segment may follow the last one, whoever of its members is out."""
        return self.healable(info) and all(self._sealable(info, stream) for stream in last.streams)

    def end_is_gone(self, info: pb.LogInfo, stream: pb.StreamInfo) -> bool:
        """Not under `cut`: those that had the last slots of a segment when it ended are lost, have rotted or failed.

        That may be one member alone, where the others counted as lost already.
        A replica that has failed, as junk was decided where it has something, has nothing that others could copy.
        """
        ordering = next(segment.ordering for segment in info.chain if stream in segment.streams)
        out = [*self.lost, self._nemesis.rotten, self._nemesis.rotting]
        gone = [node for node in stream.members if self.host_of(info, node) in out]
        if ordering == "cut":
            return False
        known = self.replicas.get((info.id, stream.id), ())
        whole = [each for each in known if each.reported and each.state != pb.REPLICA_FAILED and each.node not in gone]
        tails = [each.contiguous for each in whole]
        had = [node for node in stream.held_by if node in stream.members]
        return (
            stream.state == pb.STREAM_FINALIZED
            and max(tails, default=0) < stream.end_slot
            and bool(gone or had)
            and all(node in gone or self.trouble(info, stream, node) for node in had)
        )

    def lost_with_the_end(self, info: pb.LogInfo) -> int | None:
        """The position from which on a log may lack what was acknowledged; None: nowhere.

        Not under `cut`: rot in what a replica wrote last, with nothing synced behind it, looks like a write that was
        torn, and is cut off when its node starts again. If nobody else is there to say more, that replica alone tells
        where its segment ends: what was acknowledged behind is gone. Nothing on its disk could have told it."""
        rotten = [path for host in self._cluster.nodes for platter in host.platters for path in platter.rotten_ends]
        bases = {
            f"{info.id}.{segment.epoch}.{stream.id}": segment.base
            for segment in info.chain
            if segment.ordering != "cut"
            for stream in segment.streams
        }
        folders = [path.split("/")[1] for path in rotten if path.endswith(".data")]
        names = [".".join(folder.split(".")[:3]) for folder in folders]  # a copy has its number behind
        return min((bases[name] for name in names if name in bases), default=None)

    def has_source(self, info: pb.LogInfo, stream: pb.StreamInfo) -> bool:
        """Whether a member is left that nothing has happened to."""
        return any(
            not self.trouble(info, stream, node) and self.host_of(info, node) is not self._nemesis.rotting
            for node in stream.members
        )

    def thin(self, info: pb.LogInfo, stream: pb.StreamInfo) -> str:
        """Why a stream need not have all its replicas at the end; empty: it must."""
        troubles = [trouble for node in stream.members if (trouble := self.trouble(info, stream, node))]
        if self.end_is_gone(info, stream):
            return END_IS_GONE
        if not troubles:
            return self.stuck_with_rot(info, stream)
        if any(trouble.startswith("a bit") for trouble in troubles) or not self._shape.rebuilds:
            return troubles[0]
        if stream.state != pb.STREAM_FINALIZED:
            return f"it has not ended, and {troubles[0]}"
        if not self.has_source(info, stream):
            return "no member is left to copy from"
        hosts = [self.host_of(info, node) for node in stream.members]
        if sum(host not in hosts for host in self._cluster.nodes) < len(troubles):
            return "there are no nodes left to copy to"
        return ""

    def excuse_replica(self, info: pb.LogInfo, replica: Replica, host: Host) -> None:
        """Say what the files of a replica need not show at the end."""
        for stream in streams_of(info):
            if stream.id != replica.stream:
                continue
            if host is self._nemesis.rotting:
                replica.excuse = replica.excuse or self.thin(info, stream)
            given_up = stream.HasField("junk_slot") and replica.durable > stream.junk_slot  # without it, which has some
            if self.end_is_gone(info, stream) and (replica.durable < stream.end_slot or given_up):
                replica.unfinished = END_IS_GONE

    def host_of(self, info: pb.LogInfo, node: int) -> Host:
        address = next(each.address for each in info.nodes if each.node_id == node)
        return next(host for host in (*self._cluster.nodes, *self.lost) if f"{host.name}:{NODE_PORT}" == address)


def streams_of(info: pb.LogInfo) -> list[pb.StreamInfo]:
    """Those of all segments."""
    return [stream for segment in info.chain for stream in segment.streams]


def is_lost_with_the_end(violation: Violation, lost_from: int | None) -> bool:
    """Whether it is about what an end that is too low took away; what comes before stays asked for."""
    return lost_from is not None and violation.invariant in LOST_WITH_THE_END and violation.glsn >= lost_from
