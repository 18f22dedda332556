"""Nodes and logs: what the repository knows, in memory and in the metadata store, always in that order of truth.

Every change is committed to the store before memory shows it; only how full a node's volumes are need not be.
Changes are rare, so they go one at a time. What is served to clients is a copy with the present addresses filled in.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from varlog.base.errors import (
    AlreadyExists,
    Conflict,
    InvalidArgument,
    NoSpace,
    NotFound,
    Overloaded,
    TooLarge,
    WrongCluster,
)
from varlog.base.ids import LogId, NodeId
from varlog.ports import MetadataStore, Random, Transaction
from varlog.repository import keys
from varlog.repository.coming import Coming
from varlog.wire.proto import varlog_pb2 as pb

REFUSED = (Conflict, NoSpace, TooLarge, InvalidArgument, Overloaded)
"""Errors of a change after which it is certain that nothing was changed, and another may succeed."""
PART_BYTES = 1 << 19
PART_STEPS = 500
"""What is put and deleted in one transaction, where there may be any number of things to change: well below what etcd
takes. A single record may be larger, and then goes alone."""


class Catalog:
    """The cluster's nodes, logs and chains."""

    def __init__(self, store: MetadataStore, random: Random) -> None:
        self._store = store
        self._random = random
        self._changing = asyncio.Lock()
        self._waiting: dict[asyncio.Future[None], None] = {}
        self.cluster_id = ""
        self.directory_version = 0
        self.nodes: dict[NodeId, pb.NodeInfo] = {}
        self.removed: dict[NodeId, str] = {}
        """Nodes that are none any more, with their incarnations."""
        self.logs: dict[LogId, pb.LogInfo] = {}
        self.gone: dict[LogId, dict[NodeId, int]] = {}
        """Removed or never finished logs, with the nodes that may still hold replicas of them. The number is the last
        start of a node that may have been asked to make any: one that was started later lists all it has."""
        self.may_hold: Callable[[LogId], Iterable[NodeId]] = lambda _: ()
        """Nodes that may have replicas of a log though they are no members of it: others took their places."""
        self.left: Callable[[pb.LogInfo, NodeId], None] = lambda *_: None
        """Told of each log whose ended streams a node is no member of any more, as soon as that is in the store."""
        self._names: dict[str, LogId] = {}
        self.coming = Coming()
        """What is being opened just now, and counts as load."""
        self.changes = 0
        """Grows with every change of a log's record."""

    async def load(self) -> None:
        """Read everything back; on a new store, found the cluster."""
        found = await self._store.get(keys.CLUSTER)
        if found is None:
            self.cluster_id = f"{self._random.getrandbits(64):016x}"
            await self._commit(Transaction(expect={keys.CLUSTER: 0}, put={keys.CLUSTER: self.cluster_id.encode()}))
        else:
            self.cluster_id = found.value.decode()
        self.directory_version = await self._number(keys.DIRECTORY)
        for _, record in await self._store.scan(keys.NODES):
            node = pb.NodeInfo.FromString(record.value)
            self.nodes[NodeId(node.id)] = node
        for key, record in await self._store.scan(keys.REMOVED):
            self.removed[NodeId(int(key.removeprefix(keys.REMOVED)))] = record.value.decode()
        for _, record in await self._store.scan(keys.LOGS):
            self._show(_with_journals(pb.LogInfo.FromString(record.value)))
        for key, record in await self._store.scan(keys.GONE):
            nodes = [NodeId(int(each)) for each in record.value.decode().split()]
            self.gone[LogId(int(key.removeprefix(keys.GONE)))] = self._starts(nodes)

    # ------------------------------------------------------------ looking

    def log_named(self, name: str) -> pb.LogInfo:
        number = self._names.get(name)
        if number is None:
            raise NotFound(f"there is no log named {name!r}; `varlog log ls` lists them")
        return self.logs[number]

    def log(self, number: int) -> pb.LogInfo:
        found = self.logs.get(LogId(number))
        if found is None:
            raise NotFound(f"there is no log with id {number}; it may have been removed")
        return found

    def node(self, number: int) -> pb.NodeInfo:
        found = self.nodes.get(NodeId(number))
        if found is None:
            was = "was removed" if number in self.removed else "does not exist"
            raise NotFound(f"node {number} {was}; `varlog node ls` lists those there are")
        return found

    def served(self, log: pb.LogInfo) -> pb.LogInfo:
        """A copy for clients, with the addresses of all members."""
        copy = pb.LogInfo()
        copy.CopyFrom(log)
        for node in sorted(set(members_of(log))):
            known = self.nodes.get(node)
            if known is not None:
                copy.nodes.add(node_id=node, address=known.address, zone=known.zone)
        return copy

    def directory(self) -> pb.NodeDirectory:
        nodes = [pb.NodeAddress(node_id=node.id, address=node.address) for node in self.nodes.values()]
        return pb.NodeDirectory(version=self.directory_version, nodes=nodes)

    def load_of(self, nodes: Iterable[NodeId]) -> dict[NodeId, int]:
        """How many replicas each of the given nodes has."""
        counts = dict.fromkeys(nodes, 0)
        coming = (node for placed in self.coming for members in placed.streams for node in members)
        for node in chain(*map(members_of, self.logs.values()), coming):
            _count(counts, node)
        return counts

    def open_of(self, nodes: Iterable[NodeId], without: LogId | None = None) -> dict[NodeId, int]:
        """Of how many open streams each of the given nodes is a member, those of one log not counted."""
        counts = dict.fromkeys(nodes, 0)
        for _, members in self._open_streams(without):
            for node in members:
                _count(counts, node)
        return counts

    def primaries_of(self, nodes: Iterable[NodeId], without: LogId | None = None) -> dict[NodeId, int]:
        """Of how many open streams each of the given nodes is the primary; a journal has none, a client leads it."""
        counts = dict.fromkeys(nodes, 0)
        for journal, members in self._open_streams(without):
            if not journal:
                _count(counts, members[0])
        return counts

    def grants_of(self, nodes: Iterable[NodeId], without: LogId | None = None) -> dict[NodeId, int]:
        """For how many logs each of the given nodes grants positions: the head of a segment's first stream does."""
        counts = dict.fromkeys(nodes, 0)
        ending = self.coming.ending()
        for number, log in self.logs.items():
            granting = log.chain[-1].ordering == "sequencer" and number != without
            for stream in log.chain[-1].streams[:1] if granting else ():
                if stream.state != pb.STREAM_FINALIZED and (number, stream.id) not in ending:
                    _count(counts, stream.members[0])
        for placed in self.coming:
            if placed.granting and placed.log != without:
                _count(counts, placed.streams[0][0])
        return counts

    def _open_streams(self, without: LogId | None) -> Iterator[tuple[bool, Sequence[int]]]:
        """Of each open stream whether it is a journal's, and its members; as it will be when what comes is there."""
        ending = self.coming.ending()
        for number, log in self.logs.items():
            for stream in log.chain[-1].streams if number != without else ():
                if stream.state != pb.STREAM_FINALIZED and (number, stream.id) not in ending:
                    yield log.journal, stream.members
        for placed in self.coming:
            for members in placed.streams if placed.log != without else ():
                yield placed.journal, members

    @contextmanager
    def changed(self) -> Iterator["asyncio.Future[None]"]:
        """Done at the next change of anything; forgotten when nobody waits for it any more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            yield future
        finally:
            self._waiting.pop(future, None)

    # ------------------------------------------------------------ nodes

    async def register(self, request: pb.RegisterRequest) -> pb.NodeInfo:
        """Take a node in, or take it back; asking twice changes nothing.

        Then nothing is committed either: a node whose connection broke comes back though the store is full.
        """
        async with self._changing:
            known = self._known_node(request)
            node = pb.NodeInfo(
                id=known.id if known else (request.node_id or await self._next(keys.NEXT_NODE, self.nodes)),
                incarnation=request.incarnation,
                address=request.address,
                zone=request.zone,
                volumes=request.volumes,
                boot=request.boot,
                draining=known is not None and known.draining,
            )
            if known is not None and _but_space(known) == _but_space(node):
                self.nodes[NodeId(node.id)] = node
                return node
            moved = known is None or known.address != node.address
            transaction = Transaction(put={keys.node(NodeId(node.id)): node.SerializeToString()})
            if moved:
                transaction.put[keys.DIRECTORY] = str(self.directory_version + 1).encode()
            if known is None:
                transaction.put[keys.NEXT_NODE] = str(max(node.id + 1, await self._number(keys.NEXT_NODE))).encode()
            await self._commit(transaction)
            self.nodes[NodeId(node.id)] = node
            if moved:
                self.directory_version += 1
                self._tell()
            return node

    def _known_node(self, request: pb.RegisterRequest) -> pb.NodeInfo | None:
        if request.cluster_id and request.cluster_id != self.cluster_id:
            raise WrongCluster(
                f"the node's data folder belongs to cluster {request.cluster_id}; this is {self.cluster_id}. "
                "Start it with the repository of its own cluster, or with an empty folder"
            )
        for node in self.nodes.values():
            if node.incarnation == request.incarnation:
                return node
        for number, incarnation in self.removed.items():
            if incarnation == request.incarnation:
                raise WrongCluster(
                    f"node {number} was removed from this cluster for good; "
                    "this machine may join as a new node: start it with an empty folder and without an id"
                )
        if request.node_id in self.removed:
            raise WrongCluster(
                f"the id {request.node_id} was that of a node which was removed, and is not given out again: "
                "start it without an id"
            )
        if request.node_id in self.nodes:
            raise WrongCluster(
                f"node {request.node_id} is known with other data than this folder's; a node that lost its data "
                "joins as a new one: start it without an id"
            )
        if request.cluster_id:
            raise WrongCluster(f"this cluster does not know node {request.node_id}, though its folder says so")
        return None

    async def drain_node(self, number: NodeId, draining: bool) -> pb.NodeInfo:
        """From now on it gets nothing new, or it does again."""
        async with self._changing:
            node = pb.NodeInfo()
            node.CopyFrom(self.node(number))
            if node.draining != draining:
                node.draining = draining
                await self._commit(Transaction(put={keys.node(number): node.SerializeToString()}))
                self.nodes[number] = node
            return node

    async def remove_node(self, number: NodeId, refuse: Callable[[], None]) -> None:
        """A node is none any more, and no member of a stream that has ended.

        What it was a member of may be more than one transaction takes: it leaves part by part, and is a node until the
        last of them. If that is as far as it gets, the same can be asked again, and goes on from there.

        `refuse` raises if it has to stay: asked when nothing else can change before the node is gone, and again before
        each further part, for who has a whole copy may have left meanwhile.
        """
        async with self._changing:
            refuse()
            logs = [left for log in self.logs.values() if (left := _without(log, number)) is not None]
            steps = [self._leave(log, number) for log in logs]
            steps += [self._forget(log, number) for log, nodes in self.gone.items() if number in nodes]
            steps.append(self._end(number))
            await self._take(steps, refuse)

    def _leave(self, log: pb.LogInfo, node: NodeId) -> "_Step":
        def show() -> None:
            self._show(log)
            self.left(log, node)

        return _Step(show, put={keys.log(LogId(log.id)): log.SerializeToString()})

    def _end(self, node: NodeId) -> "_Step":
        incarnation = self.node(node).incarnation
        version = self.directory_version + 1

        def show() -> None:
            del self.nodes[node]
            self.removed[node] = incarnation
            self.directory_version = version

        put = {keys.removed(node): incarnation.encode(), keys.DIRECTORY: str(version).encode()}
        return _Step(show, put=put, delete=[keys.node(node)])

    # ------------------------------------------------------------ logs

    async def reserve_log(self, nodes: list[NodeId]) -> LogId:
        """An id for a log that is about to be made on these nodes; as long as it is not, it is `gone`."""
        async with self._changing:
            number = LogId(await self._next(keys.NEXT_LOG, self.logs))
            put = {keys.NEXT_LOG: str(number + 1).encode(), keys.gone(number): _join(nodes)}
            await self._commit(Transaction(put=put))
            self.gone[number] = self._starts(nodes)
            return number

    async def add_log(self, log: pb.LogInfo) -> None:
        """A reserved log whose replicas are open becomes real."""
        async with self._changing:
            if log.name in self._names:
                raise AlreadyExists(f"a log named {log.name!r} exists")
            number = LogId(log.id)
            log.version = 1
            put = {keys.log(number): log.SerializeToString(), keys.name(log.name): str(number).encode()}
            await self._commit(Transaction(expect={keys.name(log.name): 0}, put=put, delete=[keys.gone(number)]))
            self.gone.pop(number, None)
            self._show(log)
            self._tell()

    async def reserve_streams(self, number: LogId, count: int) -> int:
        """Ids for new streams of a log, never given out again; the first of them."""
        first = 0

        def reserve(log: pb.LogInfo) -> None:
            nonlocal first
            used = [stream.id for segment in log.chain for stream in segment.streams]
            first = max(log.next_stream, 1 + max(used, default=0))
            log.next_stream = first + count

        await self.change_log(number, reserve)
        return first

    async def change_log(self, number: LogId, change: Callable[[pb.LogInfo], None]) -> pb.LogInfo:
        """Have `change` work on a copy of a log's record, which then takes its place."""
        async with self._changing:
            log = pb.LogInfo()
            log.CopyFrom(self.log(number))
            change(log)
            log.version += 1
            await self._commit(Transaction(put={keys.log(number): log.SerializeToString()}))
            self._show(log)
            self._tell()
            return log

    async def remove_log(self, log: pb.LogInfo) -> None:
        """The name is free at once; replicas go as their nodes are reached.

        Also from nodes whose places others have taken: one that is away may come back with what it had.
        """
        async with self._changing:
            number = LogId(log.id)
            # Who is no member was not asked to make any: the next list of it tells, a start is not waited for.
            nodes = {node: start - 1 for node, start in self._starts(self.may_hold(number)).items()}
            nodes |= self._starts(members_of(self.log(number)))
            prefix = keys.cuts(number)
            await self._commit(
                Transaction(
                    put={keys.gone(number): _join(nodes)} if nodes else {},
                    delete=[keys.log(number), keys.name(log.name), keys.cut_base(number)],
                    delete_ranges=[(prefix, prefix + "~")],
                )
            )
            self.changes += 1
            del self.logs[number], self._names[log.name]
            if nodes:
                self.gone[number] = nodes
            self._tell()

    async def forget_gone(self, logs: Iterable[LogId], node: NodeId) -> None:
        """A node has no replicas any more of logs that are no more."""
        async with self._changing:
            await self._take([self._forget(log, node) for log in logs if node in self.gone.get(log, {})])

    def _forget(self, log: LogId, node: NodeId) -> "_Step":
        nodes = {each: start for each, start in self.gone[log].items() if each != node}

        def show() -> None:
            if nodes:
                self.gone[log] = nodes
            else:
                del self.gone[log]

        return _Step(show, put={keys.gone(log): _join(nodes)}) if nodes else _Step(show, delete=[keys.gone(log)])

    # ------------------------------------------------------------ within

    def _show(self, log: pb.LogInfo) -> None:
        self.changes += 1
        self.logs[LogId(log.id)] = log
        self._names[log.name] = LogId(log.id)

    def _starts(self, nodes: Iterable[NodeId]) -> dict[NodeId, int]:
        """Those of them that are nodes, with their last starts."""
        return {node: self.nodes[node].boot for node in nodes if node in self.nodes}

    async def _take(self, steps: "list[_Step]", refuse: Callable[[], None] = lambda: None) -> None:
        """All of the steps in their order, as many at once as one transaction takes; `refuse` may end it between."""
        for count, part in enumerate(_parts(steps)):
            if count:
                refuse()
            transaction = Transaction()
            for step in part:
                transaction.put |= step.put
                transaction.delete += step.delete
            await self._commit(transaction)
            for step in part:
                step.show()
            self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _number(self, key: str) -> int:
        found = await self._store.get(key)
        return int(found.value) if found is not None else 0

    async def _next(self, key: str, taken: Iterable[int]) -> int:
        return max(1, await self._number(key), *(number + 1 for number in taken))

    async def _commit(self, transaction: Transaction) -> None:
        if not await self._store.commit(transaction):
            raise Conflict("the metadata store was changed by another; is a second repository using it?")


@dataclass(frozen=True, slots=True)
class _Step:
    """What a transaction changes, maybe together with others, and how memory shows it then."""

    show: Callable[[], None]
    put: dict[str, bytes] = field(default_factory=dict)
    delete: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(len(key) + len(value) for key, value in self.put.items()) + sum(map(len, self.delete))


def _parts(steps: Iterable[_Step]) -> Iterator[list[_Step]]:
    """The steps in their order, each part small enough for one transaction."""
    part: list[_Step] = []
    size = 0
    for step in steps:
        if part and (len(part) == PART_STEPS or size + step.size > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(step)
        size += step.size
    if part:
        yield part


def _but_space(node: pb.NodeInfo) -> pb.NodeInfo:
    """All of a node's record that has to be kept: how full its volumes are it says anew in every report."""
    copy = pb.NodeInfo()
    copy.CopyFrom(node)
    for volume in copy.volumes:
        volume.ClearField("free_bytes")
        volume.ClearField("total_bytes")
    return copy


def _with_journals(log: pb.LogInfo) -> pb.LogInfo:
    """Records that are older than changes of it say once for all segments that they are of a journal."""
    if log.journal and not log.chain[-1].journal:
        for segment in log.chain:
            segment.journal = True
    return log


def _count(counts: dict[NodeId, int], node: int) -> None:
    """One more, if it is one of those that are counted."""
    if NodeId(node) in counts:
        counts[NodeId(node)] += 1


def members_of(log: pb.LogInfo) -> list[NodeId]:
    """The nodes of all replicas of a log, one for each replica, those included that are being copied."""
    found: list[NodeId] = []
    for segment in log.chain:
        for stream in segment.streams:
            found += map(NodeId, stream.members)
            if stream.HasField("copy"):
                found.append(NodeId(stream.copy.node))
    return found


def _without(log: pb.LogInfo, node: NodeId) -> pb.LogInfo | None:
    """A log's record with a node, and copies to it, taken out of the streams that have ended; None if none has it."""
    copy = pb.LogInfo()
    copy.CopyFrom(log)
    for segment in copy.chain:
        for stream in segment.streams:
            if stream.state == pb.STREAM_FINALIZED and node in stream.members:
                stream.members.remove(node)
            if stream.copy.node == node:
                stream.ClearField("copy")
    if copy == log:
        return None
    copy.version += 1
    return copy


def _join(nodes: Iterable[NodeId]) -> bytes:
    return " ".join(map(str, nodes)).encode()
