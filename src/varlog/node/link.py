"""The node's tie to the metadata repository: register, push reports, stay connected (C1, S8, S9).

One connection carries everything: REPORTs go out when a replica has something new and as a
heartbeat; ADVANCEs and the repository's own calls (OPEN, TRIM, ...) come in over the same one.
Every report is whole in itself, so one that is lost is made good by the next.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from varlog.base.errors import VarlogError, WrongCluster
from varlog.base.ids import ReplicaId
from varlog.node.lines import ReportLines
from varlog.node.replica import Replica
from varlog.ports import Timer, World
from varlog.transport.peer import Handlers, Peer, Reply, connect
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

CALL_TIMEOUT_S = 2.0
FIRST_LEASE_S = 3.0
"""Until a repository says how long it is."""
FIRST_PAUSE_S = 0.05
APART_S = 0.0002
"""Changes closer together than this share a report."""
LONGEST_PAUSE_S = 0.3
"""Between two rounds through all repositories. Appends wait for it when another one has begun to lead."""


class MakeReport(Protocol):
    def __call__(self, replicas: Sequence[Replica] | None = None) -> pb.GetReportResponse: ...


class RepositoryLink:
    """Keeps a registered connection to one repository at a time."""

    def __init__(
        self,
        world: World,
        addresses: tuple[str, ...],
        handlers: Handlers,
        *,
        registration: Callable[[], pb.RegisterRequest],
        registered: Callable[[pb.RegisterReply], Awaitable[None]],
        report: MakeReport,
        tell: Callable[[str], None],
        suspend: Callable[[str], None],
    ) -> None:
        """`tell` gets a line for people when the repository cannot be reached, and one when it can be again.

        `suspend` gets the reason when the lease has run out (W16), and an empty one when it is renewed.
        """
        self._world = world
        self._addresses = addresses
        self._handlers = handlers
        self._registration = registration
        self._registered = registered
        self._report = report
        self._tell = tell
        self._suspend = suspend
        self._lease_s = FIRST_LEASE_S
        self._lapse: Timer | None = None
        self._peer: Peer | None = None
        self._sequence = 0
        self._lines = ReportLines(world, self._numbered)
        self._changed: dict[ReplicaId, Replica] = {}
        self._flush_due = False
        self._told_at = -APART_S
        """When a change was last reported at once."""
        self._heartbeat_s = 0.5
        loop = asyncio.get_running_loop()
        self._next_beat: asyncio.Future[None] = loop.create_future()
        self.fatal: asyncio.Future[VarlogError] = loop.create_future()
        """Set when this node can never join, with the reason."""
        self.trouble: VarlogError | None = None
        """Why there is no connection just now."""

    @property
    def connected(self) -> bool:
        return self._peer is not None and self._peer.closed_error is None

    # ------------------------------------------------------------ staying connected

    async def run(self) -> None:
        """Until cancelled, or until the repository says that this node is none of its cluster."""
        self._renew(self._lease_s, self._world.clock.now())
        try:
            await self._stay_connected()
        finally:
            if self._lapse is not None:
                self._lapse.cancel()
            await self._lines.close()

    async def _stay_connected(self) -> None:
        pause, turn = FIRST_PAUSE_S, 0
        while True:
            try:
                await self._serve(self._addresses[turn % len(self._addresses)])
                pause = FIRST_PAUSE_S
            except WrongCluster as error:
                if not self.fatal.done():
                    self.fatal.set_result(error)
                return
            except VarlogError as error:
                if self.trouble is None:
                    self._tell(f"no repository at {' or '.join(self._addresses)}, trying on: {error.message}")
                self.trouble = error
                turn += 1  # the next repository may be up, or lead
                if turn % len(self._addresses):
                    continue
            await self._world.clock.sleep(pause * self._world.random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE_S, pause * 2)

    async def _serve(self, address: str) -> None:
        """Register at one repository and report to it until the connection ends."""
        peer = await connect(self._world, address, self._handlers, timeout=CALL_TIMEOUT_S)
        try:
            asked = self._world.clock.now()
            reply = (await peer.call(Method.REGISTER, self._registration(), timeout=CALL_TIMEOUT_S)).message
            assert isinstance(reply, pb.RegisterReply)
            await self._registered(reply)
            self._heartbeat_s = reply.heartbeat_ms / 1000
            self._renew(reply.lease_ms / 1000, asked)
            if self.trouble is not None:
                self._tell(f"connected to the repository at {address}")
            self._peer, self.trouble = peer, None
            await self._beat(peer)
        finally:
            self._peer = None
            peer.close()

    # ------------------------------------------------------------ the lease

    def _ask_lease(self, peer: Peer) -> None:
        """With every heartbeat. The answer counts from when the question left."""
        sent = self._world.clock.now()
        question = pb.LeaseRequest().SerializeToString()
        answered = partial(self._answered, sent)
        peer.start_call(Method.LEASE, question, timeout=self._lease_s, answered=answered)

    def _answered(self, sent: float, answer: "asyncio.Future[Reply]") -> None:
        if answer.exception() is None:
            reply: pb.LeaseReply = answer.result().message
            self._lines.follow(reply.gatherers, reply.indirect)
            self._renew(reply.lease_ms / 1000, sent)

    def _renew(self, lease_s: float, since: float) -> None:
        """The lease runs from `since` on. Out of it no append could be answered; it is refused at once (W16)."""
        if self._lapse is not None:
            self._lapse.cancel()
        self._lease_s = lease_s
        self._suspend("")
        left = max(0.0, since + lease_s - self._world.clock.now())
        self._lapse = self._world.clock.call_later(left, self._lapsed)

    def _lapsed(self) -> None:
        self._suspend(f"out of touch with the repository for {self._lease_s:g} s: it takes no appends")
        if self._peer is not None:
            self._peer.close()  # another repository may answer

    # ------------------------------------------------------------ heartbeats

    async def _beat(self, peer: Peer) -> None:
        """Report everything at once, then on every beat, until the connection ends."""
        peer.on_close(lambda _: _finish(self._next_beat))
        while peer.closed_error is None:
            self._send(None)
            self._ask_lease(peer)
            self._next_beat = asyncio.get_running_loop().create_future()
            timer = self._world.clock.call_later(self._heartbeat_s, _finish, self._next_beat)
            try:
                await self._next_beat
            finally:
                timer.cancel()

    # ------------------------------------------------------------ reports

    def changed(self, replica: Replica) -> None:
        """A replica has something new: it is reported at once, and what changes right behind it with the next turn."""
        self._lines.changed(replica)
        if self._flush_due:
            self._changed[replica.id] = replica
            return
        now = self._world.clock.now()
        if now - self._told_at > APART_S:
            self._told_at = now
            if not self._lines.suffice:
                self._send((replica,))
        else:
            self._changed[replica.id] = replica
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        changed, self._changed = self._changed, {}
        if not self._lines.suffice:
            self._send(list(changed.values()))

    def _send(self, replicas: Sequence[Replica] | None) -> None:
        if self._peer is not None:
            self._peer.notify(Method.REPORT, self._numbered(replicas))

    def _numbered(self, replicas: Sequence[Replica] | None, *, anew: bool = True) -> pb.GetReportResponse:
        """A report as of now; whoever gets it, one with a greater number was made later (S9)."""
        self._sequence += anew or self._peer is None
        report = self._report(replicas)
        report.sequence = self._sequence
        return report


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
