"""The `cut` ordering: global cuts over the streams of one log (M2, M3, C1, C2).

    stream 1   slots  ...|==========|-----             = what all members have synced
    stream 2   slots  ...|====|                        - what only some have
    stream 3   slots  ...|=======|---------
                         ^       ^
                     last cut    next cut: stream 1, then 2, then 3, above the high watermark

Members report how far they have synced without a gap. A stream's part in the next cut is what lies
between its last cut and the smallest tail over *all* its members. The parts get consecutive GLSNs
above the log's high watermark, in stream-id order. Then, and in this order, the driver persists the
cut, `apply`s it here, and tells the members. It may `plan` further cuts while one is being persisted;
they are applied in the order planned, each only when it and all before it are persisted.

What must hold, and where:
- A member that has not reported since this object was made keeps its stream where it is: a missing
  report is not zero, and not infinity (`_ready_end`).
- A cut is computed from applied and planned cuts and reported tails only, so computing it again gives the
  same result or a longer one, never another (`next_cut`). A planned cut is persisted as it is, or nothing
  behind it counts: planned ones are never taken back.
- A tail that moves back is amnesia: the member lost what it had synced. Its stream gets no further
  cut (`_notice_amnesia`); what was cut before stays true.
- Batches are reported whole, and all members have the same ones, so the smallest tail is a batch
  edge and a cut never splits a batch (I7).
- Cuts are kept until every member of every stream in them has its binding on disk, so any member
  can be given all it missed (`missed`, `bound_cuts`).
- A stream that has ended is forgotten when nobody needs its cuts any more (`end`): a log that gets new
  streams and segments for years does not make its cuts dearer.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from varlog.base.ids import FIRST_SLOT, Epoch, Glsn, LogId, NodeId, Slot, StreamId
from varlog.base.invariant import invariant
from varlog.base.ranges import Binding


@dataclass(frozen=True, slots=True)
class Commit:
    """What a cut means for one stream: seed 003's commit result."""

    stream: StreamId
    binding: Binding
    previous_high_watermark: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Cut:
    """One global cut. `commits` are in stream-id order and adjoin: they cover all GLSNs in (previous, high]."""

    log: LogId
    segment: Epoch
    previous_high_watermark: int
    high_watermark: int
    commits: tuple[Commit, ...]


@dataclass(slots=True)
class _Kept:
    """A cut in the history, and how many of its commits are not yet bound by all their members."""

    cut: Cut
    open_commits: int


@dataclass(slots=True)
class StreamOrder:
    """What the ordering knows of one stream."""

    id: StreamId
    members: tuple[NodeId, ...]
    committed: Slot = FIRST_SLOT
    """End of the last cut's part: persisted, never moving back."""
    planned: Slot = FIRST_SLOT
    """The same with the cuts that are being persisted."""
    stopped: str = ""
    """Why it gets no more cuts; empty while it does."""
    finalized: bool = False
    """It ends at its last cut: another stream takes its place."""
    ended: bool = False
    """And that is recorded: it will not be taken back."""
    tails: dict[NodeId, Slot] = field(default_factory=dict)
    """Per member that has reported: how far it is synced."""
    bound: dict[NodeId, Slot] = field(default_factory=dict)
    """Per member: how far its bindings are synced."""
    history: deque[tuple[Commit, _Kept]] = field(default_factory=deque)
    """Commits that some member may still need, in order."""

    def ready_end(self) -> Slot:
        """How far the next cut may go."""
        if self.stopped or self.finalized or len(self.tails) < len(self.members):
            return self.committed
        return max(self.committed, min(self.tails.values()))

    def bound_end(self) -> Slot:
        """How far every member has its bindings on disk."""
        if len(self.bound) < len(self.members):
            return FIRST_SLOT
        return min(self.bound.values())


class LogOrder:
    """The order of one log: of its last segment, and of earlier streams as long as some member needs their cuts."""

    def __init__(self, log: LogId, segment: Epoch, high_watermark: int = 0) -> None:
        self.log = log
        self.segment = segment
        """The last one. All streams that get cuts belong to it."""
        self.high_watermark = high_watermark
        """Of the last cut applied."""
        self._planned = high_watermark
        """Of the last cut planned."""
        self.kept_cuts = 0
        self._streams: dict[StreamId, StreamOrder] = {}
        self._bound_cuts: list[Cut] = []
        self._closed = False

    # ------------------------------------------------------------ set-up

    def add_stream(self, stream: StreamId, members: Sequence[NodeId], committed: Slot = FIRST_SLOT) -> None:
        """Streams come in id order; that order is part of every cut."""
        invariant(not self._streams or stream > max(self._streams), "streams are added in id order", stream=stream)
        invariant(len(set(members)) == len(members) > 0, "members are distinct", members=members)
        self._streams[stream] = StreamOrder(stream, tuple(members), committed, committed)

    def finalize(self, stream: StreamId) -> Slot:
        """No more cuts for this stream; the others go on. Where its last applied cut ends."""
        known = self._streams[stream]
        known.finalized = True
        return known.committed

    def end(self, stream: StreamId) -> None:
        """That a stream has ended is recorded: it is forgotten as soon as every member has all its cuts."""
        known = self._streams.get(stream)
        if known is not None:
            known.finalized = known.ended = True
            self._forget_ended(known)

    def begin_segment(self, segment: Epoch, high_watermark: int) -> None:
        """Every stream so far has ended; those that are added from now on belong to the next segment."""
        still_open = [stream.id for stream in self._streams.values() if not stream.ended]
        invariant(not still_open, "a segment ends before the next begins", streams=still_open)
        invariant(segment > self.segment and high_watermark >= self.high_watermark, "segments follow each other")
        self.segment = segment
        self.high_watermark = self._planned = high_watermark

    def drop_member(self, stream: StreamId, node: NodeId) -> None:
        """A copy of a stream that has ended is given up: nobody waits for it any more."""
        known = self._streams.get(stream)
        if known is None or node not in known.members:
            return
        invariant(known.finalized, "members of an open stream stay", stream=stream, node=node)
        known.members = tuple(member for member in known.members if member != node)
        known.tails.pop(node, None)
        known.bound.pop(node, None)
        self._release(known)

    def replace(self, stream: StreamId, lost: NodeId, node: NodeId) -> None:
        """Another node has all that an ended stream holds, on disk, and is a member in the place of one, or besides."""
        known = self._streams[stream]
        invariant(known.finalized or self._closed, "only what has ended gets other members", stream=stream)
        if lost in known.members:
            known.members = tuple(node if member == lost else member for member in known.members)
        else:
            known.members = (*known.members, node)
        known.tails.pop(lost, None)
        known.bound.pop(lost, None)
        known.stopped = ""  # it asked for nothing but this
        self._release(known)

    def restore(self, cut: Cut) -> None:
        """Take a persisted cut back into the history; cuts come in order, some may already have been dropped."""
        self.high_watermark = self._planned = max(self.high_watermark, cut.high_watermark)
        self._keep(cut)

    def is_stray(self, cut: Cut) -> bool:
        """Whether one before it was never persisted, so that nobody was told of it; of cuts that come in order.

        Those up to where the log is known to have stood need not continue each other: some were dropped.
        """
        return cut.high_watermark > self.high_watermark != cut.previous_high_watermark

    def close(self) -> None:
        """No more cuts: the segment's end is fixed."""
        self._closed = True

    def reopen(self) -> None:
        """Nothing was made of its end."""
        self._closed = False

    # ------------------------------------------------------------ reports

    @property
    def streams(self) -> Iterable[StreamOrder]:
        return self._streams.values()

    def stream(self, stream: StreamId) -> StreamOrder | None:
        return self._streams.get(stream)

    def report(self, node: NodeId, stream: StreamId, tail: Slot, bound: Slot) -> bool:
        """Take a member's report; the driver has dropped late ones. True: a cut may be due."""
        known = self._streams.get(stream)
        if known is None or node not in known.members:
            return False
        if tail < known.tails.get(node, FIRST_SLOT) or tail < known.committed:
            self._notice_amnesia(known, node, tail)
        known.tails[node] = tail
        if bound > known.bound.get(node, -1):
            known.bound[node] = bound
            self._release(known)
        return tail > known.planned and not self._closed and known.ready_end() > known.planned

    def _notice_amnesia(self, stream: StreamOrder, node: NodeId, tail: Slot) -> None:
        # Members of a closed log cut off what lies beyond its end: they have forgotten nothing that counts.
        known = FIRST_SLOT if self._closed or stream.finalized else stream.tails.get(node, FIRST_SLOT)
        before = max(known, stream.committed)
        if tail < before and not stream.stopped:
            stream.stopped = f"node {node} has lost synced entries: it had {before} and reports {tail}"

    # ------------------------------------------------------------ cuts

    def next_cut(self) -> Cut | None:
        """The cut that is due now, above all that are planned, or None. Changes nothing."""
        if self._closed:
            return None
        glsn = Glsn(self._planned + 1)
        bindings: list[tuple[StreamId, Binding]] = []
        for stream in self._streams.values():
            count = stream.ready_end() - stream.planned
            if count > 0:
                bindings.append((stream.id, Binding(stream.planned, glsn, count)))
                glsn = Glsn(glsn + count)
        if not bindings:
            return None
        previous, high = self._planned, glsn - 1
        commits = tuple([Commit(stream, binding, previous, high) for stream, binding in bindings])
        return Cut(self.log, self.segment, previous, high, commits)

    def plan(self, cut: Cut) -> None:
        """The cut is about to be persisted: the next one goes on behind it."""
        self._planned = cut.high_watermark
        for commit in cut.commits:
            self._streams[commit.stream].planned = commit.binding.slot_end

    def apply(self, cut: Cut) -> None:
        """The cut is persisted, as are all before it: from now on it is the truth."""
        invariant(
            cut.previous_high_watermark == self.high_watermark,
            "a cut continues the last one",
            log=self.log,
            high_watermark=self.high_watermark,
            previous=cut.previous_high_watermark,
        )
        for commit in cut.commits:
            stream = self._streams[commit.stream]
            invariant(stream.committed == commit.binding.slot, "a commit continues its stream", commit=commit)
        self.high_watermark = cut.high_watermark
        self._planned = max(self._planned, self.high_watermark)
        self._keep(cut)

    # ------------------------------------------------------------ history

    def missed(self, stream: StreamId, start: Slot) -> list[Commit]:
        """Every kept commit of a stream that ends beyond `start`, in order."""
        known = self._streams.get(stream)
        if known is None:
            return []
        history = known.history
        first = bisect_right(history, start, key=lambda kept: kept[0].binding.slot_end)
        return [history[index][0] for index in range(first, len(history))]

    def can_catch_up(self, stream: StreamId, start: Slot) -> bool:
        """Whether a member that has commits up to `start` can be given all it missed."""
        known = self._streams.get(stream)
        if known is None or start >= known.committed:
            return True
        missed = self.missed(stream, start)
        return bool(missed) and missed[0].binding.slot <= start

    def bound_cuts(self, limit: int) -> list[Cut]:
        """Cuts that every member has on disk: the driver deletes them, then calls `forget`."""
        return self._bound_cuts[:limit]

    def forget(self, count: int) -> None:
        """The first `count` of the bound cuts are deleted."""
        del self._bound_cuts[:count]

    def _keep(self, cut: Cut) -> None:
        kept = _Kept(cut, len(cut.commits))
        self.kept_cuts += 1
        for commit in cut.commits:
            stream, end = self._streams[commit.stream], commit.binding.slot_end
            if end > stream.committed:
                stream.committed = end
                stream.planned = max(stream.planned, end)
            stream.history.append((commit, kept))

    def _release(self, stream: StreamOrder) -> None:
        end, history = stream.bound_end(), stream.history
        while history:
            commit, kept = history[0]
            slot, _, count = commit.binding
            if slot + count > end:
                break
            history.popleft()
            kept.open_commits -= 1
            if not kept.open_commits:
                self.kept_cuts -= 1
                self._bound_cuts.append(kept.cut)
        if stream.ended:
            self._forget_ended(stream)

    def _forget_ended(self, stream: StreamOrder) -> None:
        if stream.ended and not stream.history:
            self._streams.pop(stream.id, None)


class ReportGate:
    """Tells a node's late reports from new ones (S9): reports grow by boot, then by sequence."""

    def __init__(self) -> None:
        self._last = (0, 0)

    def admits(self, boot: int, sequence: int) -> bool:
        if (boot, sequence) <= self._last:
            return False
        self._last = (boot, sequence)
        return True
