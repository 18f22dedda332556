"""What a replica is for its stream: who takes appends, copies them, grants positions, passes on; or just a member.

cut         the first member is the primary: it copies to the others, and takes back first what it may have lost
leader      the first member leads, once it is told so; in a chain each but the last passes on; a journal's is a client
sequencer   all are passive; the first decides what is at a slot, and that of the first stream grants positions
"""

import asyncio
from collections.abc import Callable, Sequence

from varlog.base.errors import NotFound, Unavailable, WrongWriter
from varlog.base.ids import Glsn, NodeId, ReplicaId, Slot
from varlog.core.ordering.leader import CHAIN
from varlog.core.replica import ReplicaState
from varlog.node.ahead import Ahead
from varlog.node.copier import Connect
from varlog.node.forwarder import Forwarder
from varlog.node.leader import Leader
from varlog.node.primary import Primary
from varlog.node.relay import Relay
from varlog.node.replica import Replica
from varlog.node.replicator import Head, Replicator
from varlog.node.sequencer import Sequencer
from varlog.node.settle import settle
from varlog.node.takeback import TakeBack
from varlog.ports import Clock
from varlog.runtime.scope import Scope
from varlog.storage.volume import Volume
from varlog.wire.proto import varlog_pb2 as pb


class Roles:
    """Of all replicas of a node."""

    def __init__(
        self, clock: Clock, volumes: Sequence[Volume], connect: Connect, changed: Callable[[Replica], None]
    ) -> None:
        """`changed`: there is something to report of a replica."""
        self._clock = clock
        self._volumes = volumes
        self._connect = connect
        self._changed = changed
        self._primaries: dict[ReplicaId, Primary] = {}
        self._leaders: dict[ReplicaId, Leader] = {}
        self._sequencers: dict[ReplicaId, Sequencer] = {}
        self._ahead: dict[ReplicaId, Ahead] = {}
        """Of open replicas under `sequencer`."""
        self._heads: dict[ReplicaId, None] = {}
        """Those of them that decide what is at a slot, or did in an earlier life."""
        self.relays: dict[ReplicaId, Relay] = {}
        """Of the replicas that are in a chain behind its leader."""
        self._settling: dict[ReplicaId, asyncio.Lock] = {}
        self._suspended = ""
        """Why no primary takes appends; empty when they do."""

    # ------------------------------------------------------------ asked for

    def primary(self, replica: Replica) -> Primary:
        """That of the replica's stream, if it is this node.

        Of one that has ended every member knows what is in it; so it is where clients write to the members themselves.
        """
        primary = self._primaries.get(replica.id)
        passive = replica.spec.ordering == "sequencer" and replica.state in (ReplicaState.OPEN, ReplicaState.FAILED)
        if primary is None and (passive or replica.state is ReplicaState.FINISHED):
            primary = self._primaries[replica.id] = Primary(replica)
        if primary is None and replica.state is ReplicaState.SEALED:
            raise Unavailable(f"{replica.id} is sealed; where it ends is not known here yet")
        if primary is None and replica.leads == pb.LEADS_NO_MORE:
            raise Unavailable(f"this node was started since it led {replica.id}; another segment follows")
        if primary is None:
            raise NotFound(f"this node is not the primary of {replica.id}")
        if self._suspended and replica.state is ReplicaState.OPEN and replica.spec.ordering == "cut":
            raise Unavailable(f"the primary of {replica.id} is {self._suspended}")
        return primary

    def suspend(self, why: str) -> None:
        """Take no appends for this reason; with an empty one, take them again."""
        self._suspended = why

    def leader(self, replica: Replica) -> Leader:
        """Of a stream that this node leads."""
        found = self._leaders.get(replica.id)
        if found is None:
            raise WrongWriter(f"this node does not lead {replica.id}, or was started since it was opened")
        return found

    def sequencer(self, replica: Replica) -> Sequencer:
        """Of a segment whose positions this node grants."""
        found = self._sequencers.get(replica.id)
        if found is None:
            raise WrongWriter(f"this node does not grant positions of {replica.id}, or was started since it was opened")
        return found

    def ahead(self, replica: Replica) -> Ahead | None:
        """What came before its turn, where stores may."""
        return self._ahead.get(replica.id)

    async def settle(self, replica: Replica, request: pb.FinishRequest) -> None:
        """Complete a sealed replica as FINISH wants it; one at a time of each."""
        junk = Slot(request.junk_slot) if request.HasField("junk_slot") else None
        base, end = Glsn(request.base), Slot(request.end)
        sources = [NodeId(node) for node in request.sources]
        lock = self._settling.setdefault(replica.id, asyncio.Lock())
        async with lock:
            await settle(replica, base, end, junk, sources, self._connect, take=request.take)

    # ------------------------------------------------------------ coming and going

    def forget(self, replica: ReplicaId) -> None:
        """It is not here any more; who waits for an append there is told."""
        primary = self._primaries.pop(replica, None)
        self._leaders.pop(replica, None)
        self._sequencers.pop(replica, None)
        self._heads.pop(replica, None)
        self.relays.pop(replica, None)
        self._settling.pop(replica, None)
        ahead = self._ahead.pop(replica, None)
        if ahead is not None:
            ahead.close()
        if primary is not None:
            primary.dropped()

    def close(self) -> None:
        for ahead in self._ahead.values():
            ahead.close()

    def take(self, replica: Replica, scope: Scope, *, new: bool) -> None:
        """From now on; asked again, nothing is taken twice."""
        if replica.spec.ordering == "sequencer":
            self._take_sequencer_role(replica, new=new)
            return
        members = [NodeId(member) for member in replica.spec.members]
        me = NodeId(self._volumes[0].identity.node_id)
        relays = replica.state is not ReplicaState.FINISHED and me in _passing_on(replica.spec)
        if relays and replica.id not in self.relays:
            self._relay(replica, members[members.index(me) + 1 :][:1], scope)
        if replica.spec.journal or members[0] != me or replica.id in self._primaries:
            return  # a journal is led by a client
        if replica.state is ReplicaState.FINISHED:
            return  # every member can say what is in it, and nobody copies it by pushing
        if replica.spec.ordering == "leader":
            replica.leads = pb.LEADS_WAITING if new else pb.LEADS_NO_MORE
            if not new:
                return  # a leader that was started again never continues its segment
        self._primaries[replica.id] = Primary(replica)
        replica.keep_recent = len(members) > 1
        if replica.spec.ordering == "leader":
            chained = replica.spec.replication == CHAIN
            self._lead(replica, members[1:2] if chained else members[1:], scope)
        elif new or len(members) == 1:
            self._forward(replica, members[1:], scope)
        else:
            replica.closed = f"{replica.id} has been started again and looks at what its backups have"
            scope.spawn(self._resume(replica, members[1:], scope), name=f"take back {replica.id}")

    def _take_sequencer_role(self, replica: Replica, *, new: bool) -> None:
        """All members are passive. The first decides what is at a slot; that of the first stream also grants positions.

        Neither goes on after its node was started again. What a head had synced may be on the others, acknowledged, and
        rotted on its own disk unseen: it would give such a slot to another, and cannot find out by asking the others,
        as what is on its way to them carries nobody's number. Another segment begins, in which nothing is on its way.
        """
        if replica.state is not ReplicaState.OPEN:
            return
        me = self._volumes[0].identity.node_id  # 0 as long as it is not known: then this is asked again
        members = [NodeId(member) for member in replica.spec.members]
        replica.last_of_chain = members[-1] == me
        if replica.id not in self._ahead:
            self._ahead[replica.id] = Ahead(replica, self._clock)
        if members[0] != me or replica.id in self._heads:
            return
        self._heads[replica.id] = None
        grants = not replica.spec.index
        if new and grants:
            sequencer = self._sequencers[replica.id] = Sequencer(replica)
            replica.on_end.append(sequencer.ended)
            replica.leads = pb.LEADS_WAITING
        if not new and len(members) > 1:
            replica.closed = f"{replica.id} was started again as the head of its chain: another segment is to follow"
        if not new and (grants or replica.closed):
            replica.leads = pb.LEADS_NO_MORE

    async def _resume(self, replica: Replica, backups: list[NodeId], scope: Scope) -> None:
        boot = self._volumes[0].identity.boot
        await TakeBack(replica, backups, self._connect, self._clock, boot).run()
        replica.closed = ""
        self._forward(replica, backups, scope)

    def _lead(self, replica: Replica, backups: list[NodeId], scope: Scope) -> None:
        ack = len(backups) + 1 if replica.spec.replication == CHAIN else replica.spec.ack
        leader = self._leaders[replica.id] = Leader(replica, backups, ack, self._clock, self._changed)
        self._replicate(replica, backups, leader, scope)

    def _relay(self, replica: Replica, following: list[NodeId], scope: Scope) -> None:
        """This node is in a chain: what it is given it gives to the next, if there is one."""
        relay = self.relays[replica.id] = Relay(replica, bool(following), self._clock, self._changed)
        replica.keep_recent = bool(following)
        self._replicate(replica, following, relay, scope)

    def _replicate(self, replica: Replica, backups: list[NodeId], head: Head, scope: Scope) -> None:
        # Members of a journal take stores in the name of its leader alone, whoever passes them on.
        writer = replica.spec.writer if replica.spec.journal else self._volumes[0].identity.boot
        for backup in backups:
            replicator = Replicator(replica, backup, self._connect, self._clock, writer, head)
            scope.spawn(replicator.run(), name=f"replicate {replica.id} to {backup}")

    def _forward(self, replica: Replica, backups: list[NodeId], scope: Scope) -> None:
        for backup in backups:
            boot = self._volumes[0].identity.boot
            forwarder = Forwarder(replica, backup, self._connect, self._clock, boot)
            scope.spawn(forwarder.run(), name=f"forward {replica.id} to {backup}")


def _passing_on(spec: pb.ReplicaSpec) -> list[int]:
    """Of a chain those that somebody stores at: where a client leads all of them, and none where nobody does yet."""
    if spec.replication != CHAIN:
        return []
    if spec.journal:
        return list(spec.members) if spec.writer else []
    return list(spec.members[1:])
