"""A cluster that does what a test tells it: real protocol, real connections, invented nodes and repository.

Every node keeps its streams' committed batches in memory and orders them at once by one counter. Before a
node handles an append or a read it asks the test's script, which may answer in its place.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from varlog.base.errors import Gap, NotFound, Trimmed, VarlogError
from varlog.client import Cluster, connect
from varlog.runtime.loop import run as run_on_loop
from varlog.transport.peer import Handlers, Request, Server, serve
from varlog.transport.world import real_world
from varlog.wire.batch import BatchHeader, check_batch, padding
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, encode_record_header

LOG_ID = 7
PATIENCE_S = 20.0
TEST_S = 120.0

AppendScript = Callable[["Node", Request, BatchHeader], bool]
ReadScript = Callable[["Node", Request], Coroutine[Any, Any, None]]


@dataclass
class Stored:
    """A committed batch."""

    slot: int
    glsn: int
    count: int
    data: bytes
    time_us: int


@dataclass
class Stream:
    """What all members of a stream have."""

    id: int
    members: list[int]
    batches: list[Stored] = field(default_factory=list)
    taken: dict[bytes, list[Stored]] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> int:
        return self.batches[-1].slot + self.batches[-1].count if self.batches else 0


CLUSTER = "c0ffee"


class Node:
    """One node; `visible` limits what it shows to readers, as one that is behind does."""

    def __init__(self, cluster: "ScriptedCluster", number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.server: Server | None = None
        self.address = ""
        self.on_append: AppendScript | None = None
        self.on_read: ReadScript | None = None
        self.appends: list[BatchHeader] = []
        """Every append that arrived, in order."""
        self.reads: list[pb.ReadRequest] = []
        self.visible: int | None = None

    def handlers(self) -> Handlers:
        return {
            Method.HELLO: lambda request: request.reply(pb.HelloReply(cluster_id=CLUSTER, node_id=self.number)),
            Method.APPEND: self.append,
            Method.PRODUCER: self.producer,
            Method.READ: self.read,
        }

    async def start(self, address: str = "127.0.0.1:0") -> None:
        self.server = await serve(self.cluster.world, address, self.handlers())
        self.address = self.server.address

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.close()
            self.server = None

    async def restart(self) -> None:
        await self.stop()
        await self.start(self.address)

    def append(self, request: Request) -> None:
        header = check_batch(request.body)
        self.appends.append(header)
        if self.on_append is not None and self.on_append(self, request, header):
            return
        self.take(request, header)

    def take(self, request: Request, header: BatchHeader) -> None:
        """What a primary does."""
        request.reply(self.store(request, header))

    def store(self, request: Request, header: BatchHeader) -> pb.AppendReply:
        stream = self.cluster.stream(request.message.stream)
        taken = stream.taken.setdefault(header.producer, [])
        if header.sequence > len(taken):
            raise Gap(f"expected {len(taken)}", len(taken))
        if header.sequence < len(taken):
            stored = taken[header.sequence]
        else:
            stored = self.cluster.commit(stream, bytes(request.body), header)
            taken.append(stored)
        return pb.AppendReply(glsn=stored.glsn, slot=stored.slot, count=stored.count)

    def producer(self, request: Request) -> None:
        stream = self.cluster.stream(request.message.stream)
        request.reply(pb.ProducerReply(next_sequence=len(stream.taken.get(request.message.producer, []))))

    async def read(self, request: Request) -> None:
        message: pb.ReadRequest = request.message
        self.reads.append(message)
        if self.on_read is not None:
            await self.on_read(self, request)
            return
        stream = self.cluster.stream(message.stream)
        slot = self._first_slot(stream, message)
        first = True
        while True:
            shown = stream.batches if self.visible is None else stream.batches[: self.visible]
            batches = [each for each in shown if each.slot + each.count > slot]
            if message.max_batches:
                batches = batches[: message.max_batches]
            if batches or first:
                end = not message.wait
                committed = shown[-1].slot + shown[-1].count if shown else 0
                await request.part(*read_part(batches, slot, committed), end=end)
                if end:
                    return
            first = False
            slot = batches[-1].slot + batches[-1].count if batches else slot
            stream.changed.clear()
            await stream.changed.wait()

    def _first_slot(self, stream: Stream, message: pb.ReadRequest) -> int:
        shown = stream.batches if self.visible is None else stream.batches[: self.visible]
        end = shown[-1].slot + shown[-1].count if shown else 0
        match message.WhichOneof("start"):
            case "glsn":
                if message.glsn <= self.cluster.info.trimmed:
                    raise Trimmed("gone", self.cluster.info.trimmed + 1)
                found = [each.slot for each in shown if each.glsn + each.count > message.glsn]
            case "time_us":
                left = [each for each in shown if each.glsn + each.count > self.cluster.info.trimmed + 1]
                found = [each.slot for each in left if each.time_us >= message.time_us]
            case _:
                return message.slot
        return min(found, default=end)


def read_part(batches: list[Stored], slot: int, committed: int) -> tuple[pb.ReadPart, list[bytes]]:
    part = pb.ReadPart(slot=batches[0].slot if batches else slot, status=pb.ReplicaStatus(committed=committed))
    body = []
    for each in batches:
        part.bindings.add(slot=each.slot, glsn=each.glsn, count=each.count)
        body += [record(RecordKind.BATCH, each.slot, each.data), record(RecordKind.SEAL, each.slot, b"")]
    return part, body


def record(kind: RecordKind, slot: int, body: bytes) -> bytes:
    return encode_record_header(kind, slot, 1, 0, body) + body + bytes(padding(len(body)))


class ScriptedCluster:
    """One log named `log`, its streams and nodes."""

    def __init__(self, nodes: int, streams: int, replicas: int) -> None:
        self.world = real_world()
        self.nodes = [Node(self, number) for number in range(1, nodes + 1)]
        self.streams = [
            Stream(number, [(number - 1 + index) % nodes + 1 for index in range(replicas)])
            for number in range(1, streams + 1)
        ]
        self.info = pb.LogInfo(id=LOG_ID, name="log", ordering="cut", replicas=replicas, streams=streams, version=1)
        self.next_glsn = 1
        self.calls: list[Method] = []
        self.on_call: Callable[[Method, Request], bool] | None = None
        self.repository: Server | None = None
        self.address = ""
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"varlog://{self.address}"

    def stream(self, number: int) -> Stream:
        return self.streams[number - 1]

    def primary(self, stream: int) -> Node:
        return self.nodes[self.streams[stream - 1].members[0] - 1]

    def commit(self, stream: Stream, data: bytes, header: BatchHeader) -> Stored:
        stored = Stored(stream.end, self.next_glsn, header.count, data, header.time_us)
        self.next_glsn += header.count
        stream.batches.append(stored)
        stream.changed.set()
        return stored

    def payloads(self) -> list[bytes]:
        """The whole log, in order."""
        from varlog.wire.batch import Batch

        batches = sorted((each for stream in self.streams for each in stream.batches), key=lambda each: each.glsn)
        return [payload for each in batches for payload in Batch(each.data).payloads()]

    # ------------------------------------------------------------ the repository

    async def start_repository(self, address: str = "127.0.0.1:0") -> None:
        handlers: dict[Method, Any] = {
            method: self._scripted(method, handler)
            for method, handler in {
                Method.GET_LOG: self._get_log,
                Method.WATCH_LOG: self._watch_log,
                Method.TAIL: self._tail,
                Method.STATUS: self._status,
                Method.SEAL_LOG: self._seal_log,
                Method.CREATE_LOG: lambda request: request.reply(self.served()),
                Method.REMOVE_LOG: lambda request: request.reply(pb.Empty()),
            }.items()
        }
        handlers[Method.HELLO] = lambda request: request.reply(pb.HelloReply(cluster_id=CLUSTER))
        self.repository = await serve(self.world, address, handlers)
        self.address = self.repository.address

    def _scripted(self, method: Method, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        def handle(request: Request) -> Any:
            self.calls.append(method)
            if self.on_call is not None and self.on_call(method, request):
                return None
            return handler(request)

        return handle

    def served(self) -> pb.LogInfo:
        info = pb.LogInfo()
        info.CopyFrom(self.info)
        segment = info.chain.add(epoch=1, ordering="cut", base=1, end=self.next_glsn if info.sealed else 0)
        segment.state = pb.SEGMENT_SEALED if info.sealed else pb.SEGMENT_OPEN
        for stream in self.streams:
            state = pb.STREAM_FINALIZED if info.sealed else pb.STREAM_WRITABLE
            segment.streams.add(id=stream.id, members=stream.members, state=state, end_slot=stream.end)
        for node in self.nodes:
            info.nodes.add(node_id=node.number, address=node.address)
        return info

    def change(self) -> None:
        """Tell those who watch."""
        self.info.version += 1
        self._changed.set()

    def _get_log(self, request: Request) -> None:
        if request.message.name != "log":
            raise NotFound(f"there is no log named {request.message.name!r}")
        request.reply(self.served())

    async def _watch_log(self, request: Request) -> None:
        while True:
            await request.part(self.served())
            self._changed.clear()
            await self._changed.wait()

    def _tail(self, request: Request) -> None:
        if request.message.log != self.info.id:
            raise NotFound(f"there is no log with id {request.message.log}")
        request.reply(pb.TailReply(tail=self.next_glsn - 1, trimmed=self.info.trimmed, segment=1))

    def _status(self, request: Request) -> None:
        reply = pb.StatusReply(cluster_id="scripted")
        status = reply.logs.add(log=self.served(), tail=self.next_glsn - 1)
        for stream in self.streams:
            status.streams.add(log=LOG_ID, segment=1, stream=stream.id, committed=stream.end)
        request.reply(reply)

    def _seal_log(self, request: Request) -> None:
        self.info.sealed = True
        self.change()
        request.reply(self.served())


async def stay_silent(_: Node, __: Request) -> None:
    """The reader waits in vain."""
    await asyncio.Event().wait()


def fail_with(error: VarlogError, times: int) -> AppendScript:
    """Refuse the first appends that arrive."""
    left = times

    def script(_: Node, request: Request, __: BatchHeader) -> bool:
        nonlocal left
        left -= 1
        if left >= 0:
            request.fail(error)
        return left >= 0

    return script


@asynccontextmanager
async def scripted(
    nodes: int = 1, streams: int = 1, replicas: int = 1, *, timeout: float = PATIENCE_S
) -> AsyncIterator[tuple[ScriptedCluster, Cluster]]:
    """A scripted cluster, and a client connected to it."""
    cluster = ScriptedCluster(nodes, streams, replicas)
    for node in cluster.nodes:
        await node.start()
    await cluster.start_repository()
    try:
        async with connect(cluster.url, timeout=timeout) as client:
            yield cluster, client
    finally:
        for node in cluster.nodes:
            await node.stop()
        if cluster.repository is not None:
            await cluster.repository.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """One test on a loop of its own; an error that nobody took fails it."""
    lost: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
        await asyncio.wait_for(work, TEST_S)

    run_on_loop(watched())
    assert not lost, lost
