"""The cut loop: reports in, cuts persisted, commits out (M2-M4).

    reports    ──┬─────┬───────┬──────────▶
    cut 1        |── persist ──|announce
    cut 2              |── persist ──|announce      not before cut 1 is, however early its answer comes

While cuts are being persisted, reports gather, and the next cut covers them all: under load the cost of
a cut is shared by everything that arrived meanwhile, and an idle log costs none. The cuts of all logs that
are due travel in one transaction, or in as few as a store takes. In a store of its own one is under way at a time; in
a shared one, which may be far away, one leaves every `APART_S` at most while others are under way, up to `WINDOW`: so
throughput does not wait for the store's latency, and a store that is near gets no more to do than it would one by one.

A shared store applies what overlaps in any order, so a leader that dies may leave a cut behind without the one
before it. Nobody was told of such a cut: each is announced only when all before it are persisted. The next leader
takes the cuts that continue each other and deletes the rest before it makes any (`load`). Its fence keeps what
is still on its way from being applied later. When a cut fails, nothing behind it is announced, and the term is over.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from varlog.base.errors import NoSpace, NotFound, Timeout, Unavailable, VarlogError
from varlog.base.ids import Epoch, Glsn, LogId, NodeId, Slot, StreamId
from varlog.base.invariant import invariant
from varlog.base.ranges import Binding
from varlog.core.ordering.cut import Commit, Cut, LogOrder
from varlog.ports import Clock, MetadataStore, Transaction
from varlog.repository import keys
from varlog.runtime.timeout import deadline
from varlog.wire.proto import varlog_pb2 as pb

WINDOW = 8
"""Transactions with cuts under way at once, in a store that is shared."""
APART_S = 0.003
"""Between two of them. With an etcd on the same machine, which answers in one to three, each that leaves earlier costs
more than it brings: at 64 entries on their way, 4 at once made half as many cuts a second as one by one."""
CUTS_PER_TRANSACTION = 1000
"""What is due beyond them, or beyond `TRANSACTION_BYTES`, travels in the next one: stores refuse what is too large."""
TRANSACTION_BYTES = 1 << 20
"""Of cuts; one that passes this mark is the last."""
DROPS_PER_LOG = 256
"""Cuts of one log forgotten along with a new one, at most."""
DROPS_PER_TRANSACTION = 1000
"""Cuts forgotten at once; the log that passes this mark is the last."""
DROPS_AT_LEAST = 64
"""Fewer do not travel with a cut: forgetting costs a new cut's latency, so it is done for many at once."""
NO_SPACE_PAUSE_S = 0.5
"""How long a store without room is left alone."""
FULL_S = 2.0
"""How long it is waited for cuts before it is looked whether the store is full."""
DROP_IDLE_S = 1.0
"""How long forgotten cuts wait for a new one to travel with."""

_Ended: TypeAlias = asyncio.Future[VarlogError | None]
"""Done when the cuts of a transaction, and all before, are persisted; or with what one of them failed of."""


@dataclass(eq=False, slots=True)
class Planned:
    """Cuts that travel in one transaction."""

    cuts: list[tuple[LogOrder, Cut]]
    transaction: Transaction
    before: _Ended | None
    """Of those planned before."""
    ended: _Ended


class Orderer:
    """Orders every `cut` log of the cluster."""

    def __init__(
        self, store: MetadataStore, clock: Clock, announce: Callable[[list[Cut]], None], window: int = 1
    ) -> None:
        """`announce` is called with cuts that are persisted, and only with those; `window`: how many at once."""
        self._store = store
        self._clock = clock
        self._announce = announce
        self._orders: dict[LogId, LogOrder] = {}
        self._due: dict[LogId, LogOrder] = {}
        self._idle: list[asyncio.Future[None]] = []
        """Of each `run` that has nothing to do."""
        self._choosing = False
        """One of them has been called, or needs no call, and makes the next cut of all that is due by then."""
        self._last: _Ended | None = None
        """Of the transaction planned last."""
        self._under_way = 0
        self._begun = 0.0
        """When the last one left."""
        self._room = asyncio.Event()
        """The next one may leave."""
        self._dropping: list[tuple[LogOrder, int]] = []
        """What is being deleted, by one transaction at a time: each says where its log stands."""
        self._full = False
        """The store had no room for the last one."""
        self.window = window
        self.cuts = 0
        """Made since the start."""

    # ------------------------------------------------------------ logs

    async def load(self, log: pb.LogInfo) -> None:
        """Take an existing log back: its streams, where they stood, and the cuts that are kept."""
        found = await self._store.get(keys.cut_base(LogId(log.id)))
        base = pb.CutBase.FromString(found.value) if found is not None else pb.CutBase()
        order = self._make(log, base)
        strays = []
        for key, record in await self._store.scan(keys.cuts(LogId(log.id))):
            cut = _decode(pb.Cut.FromString(record.value))
            if order.is_stray(cut):
                strays.append(key)
            else:
                order.restore(cut)
        if strays:
            await self._store.commit(Transaction(delete=strays))
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
        await self._all_persisted()
        return order

    async def finalize(self, log: LogId, stream: StreamId) -> Slot:
        """No more cuts for this stream; on return the last one is known, and with it where the stream ends."""
        order = self.order(log)
        order.finalize(stream)
        await self._all_persisted()
        return order.finalize(stream)  # by now cuts that were being persisted count

    async def _all_persisted(self) -> None:
        """Returns when every cut planned so far is applied; raises if that can not be said of one.

        Those planned since do not matter: as long as other logs are busy there is always one. Whoever asks holds up
        all who want to change the same log. While the store has no room for cuts he is refused instead: it has none for
        his change either, and some logs need no cuts.
        """
        last = self._last
        while last is not None and not last.done():
            try:
                async with deadline(self._clock, FULL_S):
                    await asyncio.shield(last)
            except Timeout:
                if self._full:
                    raise NoSpace("the metadata store has no room for what was ordered before") from None
        await _succeeded(last)

    def resume(self, log: LogId, stream: StreamId) -> None:
        """A stream is not to end after all."""
        order = self.order(log)
        known = order.stream(stream)
        if known is not None:
            known.finalized = False
        self._due[log] = order
        self._call()

    def reopen(self, log: LogId) -> None:
        """It is not to be closed after all."""
        order = self.order(log)
        order.reopen()
        self._due[log] = order
        self._call()

    # ------------------------------------------------------------ reports

    def report(self, log: LogId, node: NodeId, stream: StreamId, tail: Slot, bound: Slot) -> None:
        order = self._orders.get(log)
        if order is not None and order.report(node, stream, tail, bound):
            self._due[log] = order
            if self._idle and not self._choosing:
                self._call()

    def _call(self) -> None:
        """A cut may be due: one who is idle makes it. If nobody is, the first to be so looks by himself."""
        while self._idle and not self._choosing:
            idle = self._idle.pop()
            if not idle.done():  # it is cancelled when the repository stops
                self._choosing = True
                idle.set_result(None)

    # ------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Until cancelled; `window` of these work side by side.

        An error of the store ends it: what is not persisted is never announced.
        """
        while True:
            if self._choosing or not self._due:
                idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
            self._choosing = True
            if self._under_way:
                await self._keep_apart()
            self._choosing = False
            planned = self._plan()
            if planned is not None:
                await self._persist(planned)

    async def _keep_apart(self) -> None:
        """While others are under way, let some time pass."""
        left = self._begun + APART_S - self._clock.now()
        if left <= 0:
            return
        self._room.clear()
        timer = self._clock.call_later(left, self._room.set)
        try:
            await self._room.wait()
        finally:
            timer.cancel()

    def _plan(self) -> Planned | None:
        """As many of the cuts that are due as one transaction takes; for the others somebody else is called."""
        cuts: list[tuple[LogOrder, Cut]] = []
        transaction, size = Transaction(), 0
        may_drop = not self._dropping
        while self._due and len(cuts) < CUTS_PER_TRANSACTION and size < TRANSACTION_BYTES:
            order = self._due.pop(next(iter(self._due)))
            cut = order.next_cut()
            if cut is None:
                continue
            cuts.append((order, cut))
            order.plan(cut)
            if may_drop:
                size += self._drop_bound(order, transaction, DROPS_AT_LEAST)
            encoded = _encode(cut).SerializeToString()
            transaction.put[keys.cut(cut.log, cut.high_watermark)] = encoded
            size += len(encoded)
        if self._due:
            self._call()
        return self._behind_last(cuts, transaction) if cuts else None

    def _behind_last(self, cuts: list[tuple[LogOrder, Cut]], transaction: Transaction) -> Planned:
        before, self._last = self._last, asyncio.get_running_loop().create_future()
        return Planned(cuts, transaction, before, self._last)

    async def _persist(self, planned: Planned) -> None:
        error: VarlogError | None = Unavailable("the repository stops")
        self._begun = self._clock.now()
        self._under_way += 1
        try:
            await self._commit(planned.transaction)
            await _succeeded(planned.before)
            self._apply(planned.cuts)
            error = None
        except VarlogError as failed:
            error = failed
            raise
        finally:
            planned.ended.set_result(error)
            self._under_way -= 1
            if not self._under_way:
                self._room.set()

    def _apply(self, planned: list[tuple[LogOrder, Cut]]) -> None:
        """They are persisted, as are all before: that is what an append waits for, so it is told first."""
        self._announce([cut for _, cut in planned])
        for order, cut in planned:
            order.apply(cut)
        self.cuts += len(planned)

    async def drop_idle(self) -> None:
        """Until cancelled: forget cuts that nobody needs, of logs that get no new ones."""
        while True:
            await self._clock.sleep(DROP_IDLE_S)
            if self._dropping:
                continue
            transaction, size = Transaction(), 0
            for order in self._orders.values():
                if size < TRANSACTION_BYTES:
                    size += self._drop_bound(order, transaction, 1)
            if transaction.delete:
                await self._persist(self._behind_last([], transaction))

    def _drop_bound(self, order: LogOrder, transaction: Transaction, at_least: int) -> int:
        """Every member has these on disk; the base says where the log stands without them (M3). Its bytes."""
        bound = order.bound_cuts(DROPS_PER_LOG)
        if len(bound) < at_least or len(transaction.delete) >= DROPS_PER_TRANSACTION:
            return 0
        self._dropping.append((order, len(bound)))
        transaction.delete.extend(keys.cut(order.log, cut.high_watermark) for cut in bound)
        base = pb.CutBase(
            high_watermark=order.high_watermark,
            committed={stream.id: stream.committed for stream in order.streams},
        )
        encoded = base.SerializeToString(deterministic=True)
        transaction.put[keys.cut_base(order.log)] = encoded
        return len(encoded)

    async def _commit(self, transaction: Transaction) -> None:
        """Until there is room for it. Any other error leaves open whether it is there: only who comes next can say."""
        while True:
            try:
                committed = await self._store.commit(transaction)
            except NoSpace:
                self._full = True
                await self._clock.sleep(NO_SPACE_PAUSE_S)
            except VarlogError:
                for order in self._orders.values():
                    order.close()
                raise
            else:
                break
        self._full = False
        invariant(committed, "a cut has no condition that could fail")
        if transaction.delete:
            dropped, self._dropping = self._dropping, []
            for order, count in dropped:
                order.forget(count)


async def _succeeded(ended: _Ended | None) -> None:
    """Returns when it has, and all before it; raises if one has not."""
    if ended is None:
        return
    failed = ended.result() if ended.done() else await asyncio.shield(ended)
    if failed is not None:
        raise type(failed)(f"a cut before it failed: {failed.message}", failed.value)


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
