"""A member of a chain that does not lead it: passes on what it is given, and answers when all behind it have it.

    leader --STORE--> member 2 --STORE--> member 3 --> its disk
           <--answer--        <--answer--          <--

Each byte leaves a node once, whatever the number of copies. An answer says how far the member is and how far all
from it to the end of the chain are (`behind`); the leader commits what it has itself and what those have. The leader
of a journal is a client, and has nothing: there the first member passes on, too.
"""

from collections.abc import Callable

from varlog.base.ids import Glsn, NodeId, Slot
from varlog.node.leader import RELEASE_IDLE_S
from varlog.node.replica import Replica
from varlog.ports import Clock, Timer
from varlog.transport.request import Request
from varlog.wire.proto import varlog_pb2 as pb


class Relay:
    """Of one replica; without another behind it, it is the end of the chain."""

    def __init__(self, replica: Replica, followed: bool, clock: Clock, changed: Callable[[Replica], None]) -> None:
        """`followed`: there is another member behind. `changed` is called when there is something new to report."""
        self.tell: list[Callable[[], None]] = []
        """Called when the next member should hear of what is committed."""
        self._replica = replica
        self._followed = followed
        self._clock = clock
        self._changed = changed
        self._behind = Slot(0)
        """How far the next member is, and all behind that."""
        self._waiting: list[tuple[Slot, Request]] = []
        """STOREs that are not answered yet, with where they end."""
        self._timer: Timer | None = None
        replica.on_finish.append(lambda _: self._answer_all())
        replica.on_fail.append(lambda _: self._answer_all())
        if followed:
            replica.on_release.append(self._release_soon)

    @property
    def base(self) -> Glsn | None:
        released = self._replica.released
        return released[0] if released is not None else None

    @property
    def committed(self) -> Slot:
        released = self._replica.released
        return released[1] if released is not None else Slot(0)

    # ------------------------------------------------------------ for who stores here

    def status(self) -> pb.ReplicaStatus:
        """With how far all members from here on are."""
        status = self._replica.status()
        status.behind = self._stored
        return status

    @property
    def _stored(self) -> Slot:
        durable = self._replica.log.durable
        return min(durable, self._behind) if self._followed else durable

    def answer(self, request: Request, end: Slot) -> None:
        """When all members from here on have everything before `end`, or when that cannot be any more."""
        if self._stored >= end or self._replica.log.sealed or self._replica.failure is not None:
            request.reply(self.status())
        else:
            # Those before it whose time is up nobody waits for any more, and each has its bytes.
            self._waiting = [each for each in self._waiting if not each[1].done]
            self._waiting.append((end, request))

    # ------------------------------------------------------------ from who stores at the next

    def has(self, backup: NodeId, tail: Slot) -> None:
        """The next member says how far it is."""
        if tail <= self._behind:
            return
        self._behind = tail
        waiting, self._waiting = self._waiting, []
        for end, request in waiting:
            self.answer(request, end)

    def give_up(self, why: str) -> None:
        """The next member can never be brought up in this segment: another one is asked for."""
        if self._replica.leads != pb.LEADS_NO_MORE:
            self._replica.leads = pb.LEADS_NO_MORE
            self._replica.trouble = why
            self._changed(self._replica)

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, request in waiting:
            request.reply(self.status())

    def _release_soon(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(RELEASE_IDLE_S, self._release)

    def _release(self) -> None:
        self._timer = None
        for tell in self.tell:
            tell()
