"""Compares the replicas of ended streams with each other, by what their nodes have read from their own disks.

    nodes read everything, checksum by checksum --> fingerprints --> equal: all is well
                                                            `--> not: what each holds there, slot by slot
                                              most agree: the others are made anew
                                              no majority: it is said with the exact range, and nothing is touched

All of them match their checksums, so a difference is no rot that a node could find alone: a write that went
astray, or a defect of ours. Nothing of an ended stream changes any more but its trim point.
"""

from collections.abc import Sequence
from typing import NamedTuple

from varlog.base.errors import VarlogError
from varlog.base.ids import NodeId, ReplicaId
from varlog.ports import Clock
from varlog.repository.catalog import Catalog
from varlog.repository.ended import EndedStreams
from varlog.repository.links import NodeLinks, slots_of
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

LOOK_S = 1.0
"""How often it is looked whether nodes have read something anew."""
STRETCH_SLOTS = 1 << 16
"""Slots that one number of a fingerprint stands for."""
PIECE_SLOTS = 1 << 14
"""Compared with one question: its answer fits the header of a frame whatever the batches are."""

Rows = dict[int, tuple[int, int, int]]
"""Slot of a batch -> count, crc, GLSN of its first entry."""


class Fingerprint(NamedTuple):
    """Of one replica."""

    first: int
    crcs: list[int]

    def at(self, stretch: int) -> int | None:
        inside = self.first <= stretch < self.first + len(self.crcs)
        return self.crcs[stretch - self.first] if inside else None


class Comparer:
    """Looks at the ended streams of all logs."""

    def __init__(self, clock: Clock, catalog: Catalog, links: NodeLinks) -> None:
        self._clock = clock
        self._links = links
        self._ended = EndedStreams(catalog)
        self._compared: dict[ReplicaId, dict[NodeId, int]] = {}
        """When the replicas that were compared last had been read."""
        self._troubles: dict[ReplicaId, str] = {}

    def trouble(self, replica: ReplicaId) -> str:
        """How the replicas of a stream differ, for people; empty if they do not, as far as is known."""
        return self._troubles.get(replica, "")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            self._forget_others()
            for name in self._ended.turn():
                stream = self._ended.all.get(name)  # as it is by now
                if stream is None or stream.HasField("copy"):
                    continue
                read = self._read(name, stream)
                if len(read) > 1 and read != self._compared.get(name):
                    await self._try(name, read)

    def _forget_others(self) -> None:
        ended = self._ended.all.keys() - self._ended.copied.keys()
        self._compared = {name: known for name, known in self._compared.items() if name in ended}
        self._troubles = {name: trouble for name, trouble in self._troubles.items() if name in ended}

    def _read(self, name: ReplicaId, stream: pb.StreamInfo) -> dict[NodeId, int]:
        """Members whose replica is whole, and when it was read last."""
        found = {}
        for node in map(NodeId, stream.members):
            row = self._links.row(node, name)
            whole = row is not None and row.state == pb.REPLICA_FINISHED and not row.damage
            if row is not None and whole and row.read_us and slots_of(row) == stream.end_slot:
                found[node] = row.read_us
        return found

    # ------------------------------------------------------------ one stream

    async def _try(self, name: ReplicaId, read: dict[NodeId, int]) -> None:
        try:
            prints = {node: await self._fingerprint(node, name) for node in read}
            differing = [number for number in _stretches(prints) if not _agree(prints, number)]
            self._troubles.pop(name, None)
            for number in differing[:1]:
                await self._settle(name, list(read), number)
        except VarlogError:
            return  # a node is gone, or was just asked to do something else: the next look finds out
        self._compared[name] = read

    async def _fingerprint(self, node: NodeId, name: ReplicaId) -> Fingerprint:
        crcs: list[int] = []
        first = following = 0
        while True:
            request = pb.FingerprintRequest(replica=_name(name), first=following)
            reply = await self._links.ask(node, Method.FINGERPRINT, request)
            assert isinstance(reply, pb.FingerprintReply)
            first = first if crcs else reply.first
            crcs += reply.crcs
            following = reply.next
            if not following:
                return Fingerprint(first, crcs)

    async def _settle(self, name: ReplicaId, nodes: Sequence[NodeId], number: int) -> None:
        """They differ in a stretch: find the slots, and who is alone with what he has."""
        found = {node: await self._rows(node, name, number * STRETCH_SLOTS) for node in nodes}
        trimmed = max(each.trimmed for each in found.values())
        held = {node: each.above(trimmed) for node, each in found.items()}
        most = max(nodes, key=lambda node: sum(held[node] == held[other] for other in nodes))
        agreeing = [node for node in nodes if held[node] == held[most]]
        others = [node for node in nodes if node not in agreeing]
        for node in others:
            damage = _difference(held[most], held[node])
            if 2 * len(agreeing) > len(nodes):
                nodes_named = ", ".join(map(str, agreeing))
                why = f"it differs from nodes {nodes_named}, which agree, though its checksums are right"
                request = pb.CondemnRequest(replica=_name(name), damage=damage, why=why)
                await self._links.ask(node, Method.CONDEMN, request)
            else:
                where = f"slots {damage.slot} to {damage.end_slot - 1}"
                where += f" (positions {damage.glsn} to {damage.end_glsn - 1})"
                self._troubles[name] = (
                    f"its copies on nodes {most} and {node} differ in {where}, and both match their checksums: "
                    "which of them is right cannot be told; nothing was changed"
                )

    async def _rows(self, node: NodeId, name: ReplicaId, low: int) -> "_Held":
        """What a node holds of a stretch."""
        rows: Rows = {}
        trimmed = 0
        for at in range(low, low + STRETCH_SLOTS, PIECE_SLOTS):
            request = pb.DigestRequest(replica=_name(name), low=at, high=at + PIECE_SLOTS, bindings=True)
            reply = await self._links.ask(node, Method.DIGEST, request)
            assert isinstance(reply, pb.DigestReply)
            trimmed = reply.status.trimmed
            for row in reply.rows:
                if row.content == pb.SLOT_DATA and row.slot < reply.status.committed:
                    rows[row.slot] = (row.count, row.crc, _glsn_of(reply.bindings, row.slot))
        return _Held(rows, trimmed)


class _Held(NamedTuple):
    rows: Rows
    trimmed: int

    def above(self, slot: int) -> Rows:
        return {at: row for at, row in self.rows.items() if at >= slot}


def _glsn_of(bindings: Sequence[pb.Binding], slot: int) -> int:
    return next((each.glsn + slot - each.slot for each in bindings if each.slot <= slot < each.slot + each.count), 0)


def _stretches(prints: dict[NodeId, Fingerprint]) -> range:
    """Those that all of them have."""
    known = list(prints.values())
    return range(max(each.first for each in known), min(each.first + len(each.crcs) for each in known))


def _agree(prints: dict[NodeId, Fingerprint], number: int) -> bool:
    return len({each.at(number) for each in prints.values()}) == 1


def _difference(one: Rows, other: Rows) -> pb.Damage:
    """From the first to the last batch that one has otherwise, or not at all."""
    slots = sorted(slot for slot in {**one, **other} if one.get(slot) != other.get(slot))
    count, _, glsn = one.get(slots[-1]) or other[slots[-1]]
    first = (one.get(slots[0]) or other[slots[0]])[2]
    return pb.Damage(slot=slots[0], end_slot=slots[-1] + count, glsn=first, end_glsn=glsn + count)


def _name(replica: ReplicaId) -> pb.ReplicaId:
    return pb.ReplicaId(log=replica.log, segment=replica.segment, stream=replica.stream)
