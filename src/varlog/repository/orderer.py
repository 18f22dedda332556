"""The cut loop: reports in, cuts persisted, commits out (M2-M4).

One cut is made at a time. While it is being persisted, reports gather, and the next cut covers them
all: under load the cost of a cut is shared by everything that arrived meanwhile, and an idle log
costs none. The cuts of all logs that are due travel in one transaction.
"""

import asyncio
from collections.abc import Callable, Iterator

from varlog.base.errors import NoSpace, NotFound, VarlogError
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, Slot, StreamId
from varlog.base.invariant import invariant
from varlog.base.ranges import Binding
from varlog.core.ordering.cut import Commit, Cut, LogOrder
from varlog.ports import Clock, MetadataStore, Transaction
from varlog.repository import keys
from varlog.wire.proto import varlog_pb2 as pb

DROPS_PER_TRANSACTION = 256
"""Cuts forgotten along with a new one, at most."""
DROPS_AT_LEAST = 64
"""Fewer do not travel with a cut: forgetting costs a new cut's latency, so it is done for many at once."""
NO_SPACE_PAUSE_S = 0.5
"""How long a store without room is left alone."""
DROP_IDLE_S = 1.0
"""How long forgotten cuts wait for a new one to travel with."""


class Orderer:
    """Orders every `cut` log of the cluster."""

    def __init__(self, store: MetadataStore, clock: Clock, announce: Callable[[list[Cut]], None]) -> None:
        """`announce` is called with cuts that are persisted, and only with those."""
        self._store = store
        self._clock = clock
        self._announce = announce
        self._orders: dict[LogId, LogOrder] = {}
        self._due: dict[LogId, LogOrder] = {}
        self._wake = asyncio.Event()
        self._cutting = asyncio.Lock()
        self._dropping: list[tuple[LogOrder, int]] = []
        """What the transaction in the making deletes."""
        self.cuts = 0
        """Made since the start."""

    # ------------------------------------------------------------ logs

    async def load(self, log: pb.LogInfo) -> None:
        """Take an existing log back: its streams, where they stood, and the cuts that are kept."""
        found = await self._store.get(keys.cut_base(LogId(log.id)))
        base = pb.CutBase.FromString(found.value) if found is not None else pb.CutBase()
        order = self._make(log, base)
        for _, record in await self._store.scan(keys.cuts(LogId(log.id))):
            order.restore(_decode(pb.Cut.FromString(record.value)))
        _end_streams(order, log)
        if log.sealed:
            order.close()

    def add(self, log: pb.LogInfo) -> None:
        """Begin to order a new log."""
        self._make(log, pb.CutBase())

    def _make(self, log: pb.LogInfo, base: pb.CutBase) -> LogOrder:
        segment = log.chain[-1]
        order = LogOrder(LogId(log.id), Epoch(segment.epoch), max(base.high_watermark, segment.base - 1))
        for stream in _streams(log, "cut"):
            members = [NodeId(node) for node in stream.members]
            ended = stream.state == pb.STREAM_FINALIZED
            order.add_stream(
                StreamId(stream.id), members, Slot(stream.end_slot if ended else base.committed[stream.id])
            )
            if ended:
                order.finalize(StreamId(stream.id))
        self._orders[LogId(log.id)] = order
        return order

    def extend(self, log: pb.LogInfo) -> None:
        """A log has other streams by now, or another segment: what ended goes, what was added is ordered."""
        order = self.order(LogId(log.id))
        _end_streams(order, log)
        segment = log.chain[-1]
        if segment.epoch > order.segment:
            order.begin_segment(Epoch(segment.epoch), segment.base - 1)
        for stream in segment.streams if segment.ordering == "cut" else ():
            if stream.state != pb.STREAM_FINALIZED and order.stream(StreamId(stream.id)) is None:
                order.add_stream(StreamId(stream.id), [NodeId(node) for node in stream.members])

    def drop_member(self, log: pb.LogInfo, node: NodeId) -> None:
        """A node is no member any more of the streams of a log that have ended."""
        order = self.order(LogId(log.id))
        for stream in _streams(log):
            if stream.state == pb.STREAM_FINALIZED:
                order.drop_member(StreamId(stream.id), node)

    def replace(self, log: LogId, stream: StreamId, lost: NodeId, node: NodeId) -> None:
        """An ended stream has another member in the place of a lost one."""
        order = self.order(log)
        if order.stream(stream) is not None:
            order.replace(stream, lost, node)

    def remove(self, log: LogId) -> None:
        self._orders.pop(log, None)
        self._due.pop(log, None)

    def order(self, log: LogId) -> LogOrder:
        found = self._orders.get(log)
        if found is None:
            raise NotFound(f"there is no log with id {log}; it may have been removed")
        return found

    async def close(self, log: LogId) -> LogOrder:
        """No more cuts for this log; on return the last one is known."""
        order = self.order(log)
        order.close()
        async with self._cutting:
            return order

    async def finalize(self, log: LogId, stream: StreamId) -> Slot:
        """No more cuts for this stream; on return the last one is known, and with it where the stream ends."""
        order = self.order(log)
        order.finalize(stream)
        async with self._cutting:
            return order.finalize(stream)  # by now a cut that was being persisted counts

    def resume(self, log: LogId, stream: StreamId) -> None:
        """A stream is not to end after all."""
        order = self.order(log)
        known = order.stream(stream)
        if known is not None:
            known.finalized = False
        self._due[log] = order
        self._wake.set()

    def reopen(self, log: LogId) -> None:
        """It is not to be closed after all."""
        order = self.order(log)
        order.reopen()
        self._due[log] = order
        self._wake.set()

    # ------------------------------------------------------------ reports

    def report(self, log: LogId, node: NodeId, stream: StreamId, tail: Slot, bound: Slot) -> None:
        order = self._orders.get(log)
        if order is not None and order.report(node, stream, tail, bound):
            self._due[log] = order
            self._wake.set()

    # ------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Until cancelled. An error of the store ends it: what is not persisted is never announced."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            async with self._cutting:
                await self._cut()

    async def _cut(self) -> None:
        due, self._due = self._due, {}
        cuts = [cut for order in due.values() if (cut := order.next_cut()) is not None]
        if not cuts:
            return
        transaction = Transaction()
        for cut in cuts:
            self._drop_bound(self._orders[cut.log], transaction, DROPS_AT_LEAST)
            transaction.put[keys.cut(cut.log, cut.high_watermark)] = _encode(cut).SerializeToString()
        if not await self._commit(transaction):
            self._due = due | self._due
            return
        for cut in cuts:
            due[cut.log].apply(cut)
        self.cuts += len(cuts)
        self._announce(cuts)

    async def drop_idle(self) -> None:
        """Until cancelled: forget cuts that nobody needs, of logs that get no new ones."""
        while True:
            await self._clock.sleep(DROP_IDLE_S)
            async with self._cutting:
                transaction = Transaction()
                for order in self._orders.values():
                    self._drop_bound(order, transaction, 1)
                if transaction.delete:
                    await self._commit(transaction)

    def _drop_bound(self, order: LogOrder, transaction: Transaction, at_least: int) -> None:
        """Every member has these on disk; the base says where the log stands without them (M3)."""
        bound = order.bound_cuts(DROPS_PER_TRANSACTION)
        if len(bound) < at_least:
            return
        self._dropping.append((order, len(bound)))
        transaction.delete.extend(keys.cut(order.log, cut.high_watermark) for cut in bound)
        base = pb.CutBase(
            high_watermark=order.high_watermark,
            committed={stream.id: stream.committed for stream in order.streams},
        )
        transaction.put[keys.cut_base(order.log)] = base.SerializeToString(deterministic=True)

    async def _commit(self, transaction: Transaction) -> bool:
        """False: there was no room, nothing was changed, and it will be tried again."""
        dropping, self._dropping = self._dropping, []
        try:
            committed = await self._store.commit(transaction)
        except NoSpace:
            await self._clock.sleep(NO_SPACE_PAUSE_S)
            self._wake.set()
            return False
        except VarlogError:
            # whether it is there is known only after a restart
            for order in self._orders.values():
                order.close()
            raise
        invariant(committed, "a cut has no condition that could fail")
        for order, count in dropping:
            order.forget(count)
        return True


def _streams(log: pb.LogInfo, ordering: str = "") -> Iterator[pb.StreamInfo]:
    """Those of all segments, or of those under an ordering, in id order."""
    return (stream for segment in log.chain if ordering in ("", segment.ordering) for stream in segment.streams)


def _end_streams(order: LogOrder, log: pb.LogInfo) -> None:
    """What has ended by the log's record is only kept as long as a member lacks some of its cuts."""
    for stream in _streams(log):
        if stream.state == pb.STREAM_FINALIZED:
            order.end(StreamId(stream.id))


def _encode(cut: Cut) -> pb.Cut:
    message = pb.Cut(
        log=cut.log,
        segment=cut.segment,
        previous_high_watermark=cut.previous_high_watermark,
        high_watermark=cut.high_watermark,
    )
    for commit in cut.commits:
        binding = commit.binding
        message.ranges.add(stream=commit.stream, slot=binding.slot, glsn=binding.glsn, count=binding.count)
    return message


def _decode(message: pb.Cut) -> Cut:
    previous, high = message.previous_high_watermark, message.high_watermark
    commits = tuple(
        Commit(StreamId(each.stream), Binding(Slot(each.slot), Glsn(each.glsn), each.count), previous, high)
        for each in message.ranges
    )
    return Cut(LogId(message.log), Epoch(message.segment), previous, high, commits)
