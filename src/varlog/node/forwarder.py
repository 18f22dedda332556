"""Copies a stream from its primary to one backup, in slot order, and tells it what is committed (S4).

    primary --STORE slot 7, commits up to 5--> backup      pushed, not answered
            --STORE slot 9, commits up to 7-->             a commit says as much: every member has it on disk

One task per backup connects, asks how far the backup is, and deals with whatever goes wrong. The usual
work needs no task: each group of batches is sent the moment it is about to be written here (`_push`), as far
ahead of the commits as `WINDOW_BYTES` allows. A backup that cannot take what comes leaves it. So when nothing
is committed for a while, the task asks again, and goes on from the backup's own word.

The repository tells commits to the primary alone: they ride on the next STORE, or follow by themselves
if there is none at once. What gets lost on this way the repository sends again, as reports show it missing.
"""

from collections import deque
from collections.abc import Sequence

from varlog.base.ids import NodeId, Slot
from varlog.base.ranges import Binding
from varlog.node.copier import OVER, STORE_BYTES, Connect, Copier
from varlog.node.replica import Replica
from varlog.ports import Clock, Timer
from varlog.transport.peer import Peer, notification
from varlog.wire.frame import Buffer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

WINDOW_BYTES = 16 << 20
"""Sent to a backup and not known to be on its disk; beyond it nothing is sent."""
DOUBT_S = 0.25
"""When nothing of what was sent is committed for so long, the backup is asked."""
RELAY_S = 0.002
"""How long commits wait for a STORE to ride on."""
COMMITS_WAITING = 1024
"""Commits that wait for a backup that is not there; more are left to the repository."""


class Forwarder(Copier):
    """Brings one backup up to the primary and keeps it there."""

    def __init__(self, replica: Replica, backup: NodeId, connect: Connect, clock: Clock, writer: int) -> None:
        super().__init__(replica, backup, connect, clock, writer)
        self._connected: Peer | None = None
        self._peer: Peer | None = None
        """Set while copies may be sent at once."""
        self._sure = Slot(0)
        """The backup has everything below on its disk."""
        self._unsure: deque[tuple[Slot, int]] = deque()
        """Of each STORE that may not be there yet its end and its size."""
        self._unsure_bytes = 0
        self._in_doubt = False
        self._doubt: Timer | None = None
        self._sure_before = Slot(0)
        """When that timer was set."""
        self._commits: list[tuple[Binding, int]] = []
        """What the backup has not been told, with the high watermark."""
        self._relay: Timer | None = None
        replica.on_group.append(self._push)
        replica.on_commit.append(self._committed)
        replica.on_sync.append(self._wake_if_behind)

    async def _follow(self, peer: Peer) -> None:
        self._connected = peer
        await self._ask(peer)
        self.trouble = ""
        await self._copy(peer)

    def _left(self) -> None:
        self._peer = self._connected = None

    def _stop(self) -> None:
        self._replica.on_commit.remove(self._committed)
        for timer in (self._doubt, self._relay):
            if timer is not None:
                timer.cancel()

    async def _ask(self, peer: Peer) -> None:
        """Go on from where the backup is, by its own word."""
        self._cursor = self._sure = await self._tail_of(peer, self._request(Slot(0)))
        self._unsure.clear()
        self._unsure_bytes = 0
        self._in_doubt = False

    # ------------------------------------------------------------ the task's part

    async def _copy(self, peer: Peer) -> None:
        """Send from the cursor on, until the stream has ended: from memory or, what is only there, from the disk."""
        with peer.waking(self._wake):
            while self._replica.state not in OVER:
                self._wake.clear()
                if peer.closed_error is not None:
                    raise peer.closed_error
                if self._in_doubt:
                    self._peer = None
                    await self._ask(peer)
                self._peer = peer
                self._push()
                if not peer.writable:
                    await peer.drained()
                elif self._is_behind() and self._unsure_bytes < WINDOW_BYTES:
                    self._peer = None  # nothing overtakes what is being read
                    self._send(peer, *await self._read_back())
                else:
                    await self._wake.wait()
        self._tell_commits()  # the last ones, without which the backup cannot be finished

    def _wake_if_behind(self) -> None:
        if self._peer is not None and self._cursor < self._replica.log.durable and self._is_behind():
            self._wake.set()

    # ------------------------------------------------------------ without a task

    def _push(self) -> None:
        """Send all batches that are in memory, as far as the backup takes them."""
        peer, recent = self._peer, self._replica.recent
        if peer is None or (found := recent(self._cursor)) is None:
            return
        while found is not None and peer.writable and self._unsure_bytes < WINDOW_BYTES:
            body: list[Buffer] = []
            size, end = 0, self._cursor
            while size < STORE_BYTES and found is not None:
                end, data = found
                body.append(data)
                size += len(data)
                found = recent(end)
            self._send(peer, end, body)
        if found is not None and not peer.writable:
            self._wake.set()  # the task waits until it is

    def _send(self, peer: Peer, end: Slot, body: list[Buffer]) -> None:
        size = sum(map(len, body))
        peer.push(Method.STORE, self._frame(end, body))
        self._cursor = end
        self._unsure.append((end, size))
        self._unsure_bytes += size
        if self._doubt is None:
            self._set_doubt()

    def _frame(self, end: Slot, body: list[Buffer]) -> Sequence[Buffer]:
        """The STORE of these batches. Backups that are equally far get the same, made once."""
        told = (self._writer, self._cursor, end, self._commits)
        made = self._replica.last_store
        if made is None or made[0] != told:
            message = self._with_commits(self._request(self._cursor))
            made = self._replica.last_store = (told, notification(Method.STORE, message, body))
        else:
            self._tell_no_more()
        return made[1]

    # ------------------------------------------------------------ commits

    def _committed(self, binding: Binding) -> None:
        """Every member has this on disk, or it would not be committed."""
        slot, _, count = binding
        end = Slot(slot + count)
        if end > self._sure:
            self._sure = end
        full = self._unsure_bytes >= WINDOW_BYTES
        unsure = self._unsure
        while unsure and unsure[0][0] <= end:
            self._unsure_bytes -= unsure.popleft()[1]
        if len(self._commits) < COMMITS_WAITING:
            self._commits.append((binding, self._replica.log.high_watermark))
        if self._relay is None:
            self._relay = self._clock.call_later(RELAY_S, self._tell_commits)
        if full:
            self._push()
            self._wake.set()

    def _with_commits(self, request: pb.StoreRequest) -> pb.StoreRequest:
        for (slot, glsn, count), high_watermark in self._commits:
            request.commits.add(slot=slot, glsn=glsn, count=count, high_watermark=high_watermark)
        self._tell_no_more()
        return request

    def _tell_no_more(self) -> None:
        """The backup hears of every commit so far."""
        self._commits = []
        if self._relay is not None:
            self._relay.cancel()
            self._relay = None

    def _tell_commits(self) -> None:
        """No STORE came to ride on."""
        self._relay = None
        if self._connected is not None and self._commits:
            self._connected.notify(Method.STORE, self._with_commits(self._request(Slot(0))))

    # ------------------------------------------------------------ doubts

    def _set_doubt(self) -> None:
        self._sure_before = self._sure
        self._doubt = self._clock.call_later(DOUBT_S, self._look)

    def _look(self) -> None:
        """Has anything of what was sent been committed meanwhile?"""
        self._doubt = None
        if self._cursor <= self._sure:
            return
        if self._sure > self._sure_before:
            self._set_doubt()
        elif self._peer is not None:
            self._in_doubt = True
            self._wake.set()
