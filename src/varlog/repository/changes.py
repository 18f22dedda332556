"""Whose turn it is to change what: a log is changed by one at a time, different logs at once, up to a limit.

    of(log)    change, seal, remove or heal one log       others wait for the same log, or for a free place
    alone()    what concerns the members of all logs      waits for all that are under way, and holds off all that
                                                          come later: they go on behind it

Who comes first goes first: a turn is given in the order of asking, except that who waits for a log that is busy lets
others pass to theirs. So nobody starves: neither `alone`, which is not overtaken, nor those whom it holds off. Who has
a turn must not ask for another. Who gives up while he waits, or in the moment in which his turn comes, leaves nothing
behind.

What a change may rely on while it has its turn, and what it may not:

    its log's record     Nobody else reconfigures, seals, removes or heals the log. So what was read of its last segment
                         stays true but for what others may do to any log at any time, a field or an ended stream in
                         one step of `Catalog.change_log`: trim points, the archive, copies of ended streams.
                         Who is refused by the store takes back only what he himself has stopped.
    stream ids           are reserved in the record, by the same step, before they are used.
    placement            Two changes are placed side by side. What one has chosen is counted from that moment on, before
                         any record says so (`coming`): choosing and counting is one step, without a wait in between.
    nodes                None is removed from under a change: that is done alone. One may be lost, or begin to drain:
                         then the healer comes after it. A log that is made has no turn, for nobody knows it yet: of
                         nodes, it too may get one that is removed meanwhile, and is healed; two of one name are told
                         apart by the catalog.
    cuts                 An end is known when what was planned before it is persisted (`Orderer.finalize`); for that
                         many may wait at once, and none holds up another's log.
    the store            takes the commits of all, one after the other (`Catalog`). One whose outcome is not known ends
                         the term, and all that is under way with it.
    the order of logs    is nobody's: what must go one log after the other, as streams do that leave a node which
                         drains, is kept so by who begins it.
"""

import asyncio
from types import TracebackType

from varlog.base.ids import LogId

AT_ONCE = 16
"""Logs that are changed at once. Each has replicas opened and sealed on its nodes, which sync their disks for it, well
within the time that a call may take."""


class Changes:
    """Gives turns; one for each term."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._going: dict[LogId | None, None] = {}
        """Logs that are being changed; None stands for all of them."""
        self._waiting: dict[Turn, None] = {}
        """In the order in which they came."""

    def of(self, log: LogId) -> "Turn":
        """`async with` it: the log is changed by nobody else."""
        return Turn(self, log)

    def alone(self) -> "Turn":
        """`async with` it: no log is being changed."""
        return Turn(self, None)

    async def _take(self, turn: "Turn") -> None:
        self._waiting[turn] = None
        self._admit()
        try:
            await turn.come
        except asyncio.CancelledError:
            if turn in self._waiting:
                del self._waiting[turn]
                self._admit()  # those may go whom it held off
            else:
                self._give_back(turn)
            raise

    def _give_back(self, turn: "Turn") -> None:
        del self._going[turn.log]
        self._admit()

    def _admit(self) -> None:
        """Everybody whose turn it is by now."""
        for turn in list(self._waiting):
            if None in self._going or len(self._going) >= self._at_once:
                return
            if turn.come.done():  # it is giving up, and has only to be told so
                continue
            if turn.log is None and self._going:
                return
            if turn.log not in self._going:
                del self._waiting[turn]
                self._going[turn.log] = None
                turn.come.set_result(None)


class Turn:
    """One turn of one who asks; used once."""

    def __init__(self, changes: Changes, log: LogId | None) -> None:
        self._changes = changes
        self.log = log
        """None: all of them."""
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> None:
        await self._changes._take(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._changes._give_back(self)
