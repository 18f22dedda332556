"""Watching keys in etcd through broken streams, restarts, other members and compaction.

A feed knows the revision up to which it has told everything, and begins its stream right behind it; when the stream
breaks, it begins another at the next member. A member that says nothing is asked for a sign of life now and then.

When etcd no longer has what comes next (`compact_revision`), the feed reads everything under its prefix at one revision
and tells what differs: keys changed since, as etcd's own revisions say, and keys it knew that are gone. For that it
remembers the names of all keys under its prefix. So no key is left in another state than it has; of several changes
that were compacted away only the last is told.

Changes that nobody takes stay in etcd: beyond `WAITING_CHANGES` or `WAITING_BYTES` the stream is not read.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator

from varlog.base.errors import Unavailable, VarlogError
from varlog.metadata.etcd.connection import WATCH, Connection, Stream
from varlog.metadata.etcd.errors import Compacted
from varlog.metadata.etcd.messages import Keys, range_end
from varlog.metadata.etcd.reads import read_range, read_range_at
from varlog.ports.metadata import Change
from varlog.wire.proto import etcd_pb2 as pb

WAITING_CHANGES = 16_384
WAITING_BYTES = 16 << 20
"""What waits for a watcher before its stream is no longer read."""
NUDGE_S = 1.0
"""How often a silent member is asked for a sign of life."""
SILENCE_S = 4.0
"""After how much silence another member is tried."""
PAUSE_S = 0.05
PAUSE_MAX_S = 1.0
"""Between streams that end at once."""

WatchStream = Stream[pb.WatchRequest, pb.WatchResponse]


class Feed:
    """Brings the changes under one prefix from etcd; run by a task of the store."""

    def __init__(self, connection: Connection, keys: Keys, prefix: str) -> None:
        self.prefix = prefix
        self._connection = connection
        self._keys = keys
        self._first = keys.data(prefix)
        self._end = range_end(self._first)
        self.told = connection.revision
        """Everything up to this revision has been told."""
        self.awaited = 0
        """A change at this revision is known to be there for us."""
        self._known: dict[bytes, None] | None = None
        """Names of all keys under the prefix at `told`."""
        self._changes: deque[Change] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._moved = asyncio.Event()
        self._partial: list[pb.Event] = []
        """Of a revision whose rest has not come yet."""
        self._heard = 0.0
        self._ended = False
        self._error: VarlogError | None = None

    # ------------------------------------------------------------ for the watcher

    async def next(self) -> Change:
        while not self._changes:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        change = self._changes.popleft()
        self._bytes -= len(change.value or b"")
        self._taken.set()
        return change

    def end(self, error: VarlogError | None = None) -> None:
        """Nothing comes after what is there; then `error`, if there is one."""
        self._ended = True
        self._error = self._error or error
        self._arrived.set()
        self._moved.set()

    def drop(self) -> None:
        """Nobody wants what is there either."""
        self._changes.clear()
        self.end()

    async def caught_up(self) -> None:
        """Returns when everything awaited has been told, or cannot be."""
        while self.told < self.awaited and not self._ended:
            self._moved.clear()
            await self._moved.wait()

    # ------------------------------------------------------------ the task

    async def run(self) -> None:
        """Until cancelled, or until something is wrong that no retry can help against."""
        pause = PAUSE_S
        while not self._ended:
            before = self.told
            try:
                await self._follow_or_read_all()
            except VarlogError as error:
                if not error.retryable:
                    self.end(error)
            pause = PAUSE_S if self.told > before else min(2 * pause, PAUSE_MAX_S)
            await asyncio.sleep(pause)

    async def _follow_or_read_all(self) -> None:
        try:
            await self._follow()
        except Compacted:
            await self._read_all()

    async def _follow(self) -> None:
        """One stream, until it breaks."""
        if self._known is None:
            await self._learn()
        self._partial.clear()
        stream = await self._connection.stream(WATCH)
        nudging = asyncio.create_task(self._nudge(stream))
        try:
            create = pb.WatchCreateRequest(
                key=self._first, range_end=self._end, start_revision=self.told + 1, fragment=True
            )
            await stream.send(pb.WatchRequest(create_request=create))
            while True:
                await self._receive(stream)
        except Compacted:
            raise
        except VarlogError:
            stream.failed()
            raise
        finally:
            nudging.cancel()
            stream.cancel()

    async def _learn(self) -> None:
        """The names of the keys that are there when the watch begins."""
        try:
            found, _ = await read_range_at(self._connection, self._first, self._end, self.told, keys_only=True)
        except Compacted:
            # What was deleted since cannot be told. It takes a store that heard nothing of etcd for very long.
            await read_range(self._connection, self._first, self._first + b"\0")  # so that it knows the present
            self.end(Unavailable(f"the past of {self.prefix!r} was compacted before a watch began; begin it anew"))
            raise Unavailable("a watch could not begin") from None
        self._known = dict.fromkeys(each.key for each in found)

    async def _receive(self, stream: WatchStream) -> None:
        response = await self._heard_from(stream)
        if response.compact_revision:
            raise Compacted(f"revisions before {response.compact_revision} are gone")
        if response.canceled:
            raise Unavailable(f"etcd ended a watch: {response.cancel_reason}")
        self._partial.extend(response.events)
        await self._tell_complete(more=response.fragment)

    async def _tell_complete(self, *, more: bool) -> None:
        """All that came; but if more of the last revision may come, that one only when all of it is there."""
        partial = self._partial
        complete = len(partial)
        while more and complete and partial[complete - 1].kv.mod_revision == partial[-1].kv.mod_revision:
            complete -= 1
        events, self._partial = partial[:complete], partial[complete:]
        if events:
            await self._tell([self._change(event) for event in events])
            self._advance(events[-1].kv.mod_revision)

    async def _heard_from(self, stream: WatchStream) -> pb.WatchResponse:
        response = await stream.receive()
        self._heard = time.monotonic()
        return response

    async def _nudge(self, stream: WatchStream) -> None:
        """Ask for signs of life; end a stream that gives none. The revision in the answer is not relied on: before
        3.4.25 and 3.5.8 it may run ahead of changes that were not sent yet."""
        self._heard = time.monotonic()
        try:
            while time.monotonic() - self._heard < SILENCE_S:
                await asyncio.sleep(NUDGE_S)
                if self._full():
                    self._heard = time.monotonic()  # we do not listen
                await stream.send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        except VarlogError:
            pass  # whoever receives from the stream meets it too
        finally:
            stream.cancel()  # also after a defect: nobody would notice any more that it is silent

    # ------------------------------------------------------------ what came

    def _change(self, event: pb.Event) -> Change:
        assert self._known is not None
        if event.type == pb.Event.DELETE:
            self._known.pop(event.kv.key, None)
            return Change(self._keys.name(event.kv.key), None)
        self._known[event.kv.key] = None
        return Change(self._keys.name(event.kv.key), event.kv.value)

    async def _read_all(self) -> None:
        """What changed since `told`, found by comparing."""
        assert self._known is not None
        found, revision = await read_range(self._connection, self._first, self._end)
        present = dict.fromkeys(each.key for each in found)
        changes = [Change(self._keys.name(key), None) for key in self._known if key not in present]
        newer = sorted((each for each in found if each.mod_revision > self.told), key=lambda each: each.mod_revision)
        changes += [Change(self._keys.name(each.key), each.value) for each in newer]
        self._known = present
        await self._tell(changes)
        self._advance(revision)

    def _full(self) -> bool:
        return len(self._changes) >= WAITING_CHANGES or self._bytes >= WAITING_BYTES

    async def _tell(self, changes: list[Change]) -> None:
        for change in changes:
            while self._full() and not self._ended:
                self._taken.clear()
                await self._taken.wait()
            self._changes.append(change)
            self._bytes += len(change.value or b"")
            self._arrived.set()

    def _advance(self, revision: int) -> None:
        self.told = max(self.told, revision)
        self._moved.set()


class EtcdWatch(AsyncIterator[Change]):
    """What the watcher has in hand. One that is dropped ends its feed."""

    def __init__(self, feed: Feed, task: "asyncio.Task[None]") -> None:
        self._feed = feed
        self._task = task

    async def __anext__(self) -> Change:
        return await self._feed.next()

    async def aclose(self) -> None:
        """Want no more."""
        self._feed.drop()
        self._task.cancel()

    def __del__(self) -> None:
        if not self._task.done() and not self._task.get_loop().is_closed():
            self._feed.drop()
            self._task.cancel()


class Feeds:
    """All feeds of one store."""

    def __init__(self) -> None:
        self._feeds: dict[Feed, None] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    def add(self, feed: Feed) -> None:
        self._feeds[feed] = None

    def ended(self, feed: Feed) -> None:
        """Its task has, however."""
        self._feeds.pop(feed, None)
        feed.end()

    def changed(self, keys: list[str], revision: int) -> None:
        """We changed these ourselves: whoever watches one will be told."""
        for feed in self._feeds:
            if any(key.startswith(feed.prefix) for key in keys):
                feed.awaited = max(feed.awaited, revision)

    async def close(self, seconds: float) -> None:
        """Let each tell what we know is there, then end it."""
        try:
            async with asyncio.timeout(seconds):
                for feed in list(self._feeds):
                    await feed.caught_up()
        except TimeoutError:
            pass  # etcd is away: who watches reads anew whenever he opens a store again
        for feed in list(self._feeds):
            feed.end()
