"""Is this still the leader? Asked of the store itself, for answers that must be as fresh as the call (I10).

A leader whose clock stood still (a frozen machine) may believe in its lease when another leads already. What it
writes is fenced; what it answers from memory is not. So before it says where a log ends it asks the store, once for
all questions that wait: those that come while it asks wait for the next round.
"""

import asyncio
from collections.abc import Callable

from varlog.base.errors import NotLeader, VarlogError
from varlog.ports import Leadership, MetadataStore
from varlog.ports.election import leader_key
from varlog.runtime.scope import Scope

Done = Callable[[VarlogError | None], None]


class Freshness:
    """Of one term."""

    def __init__(self, store: MetadataStore, leadership: Leadership, scope: Scope) -> None:
        self._store = store
        self._leadership = leadership
        self._scope = scope
        self._waiting: list[Done] = []
        self._asking = False

    def confirm(self, done: Done) -> None:
        """Call back when it is certain that nobody else led when this was asked, or with the reason why not."""
        if self._leadership.sole:
            done(None)
            return
        self._waiting.append(done)
        if not self._asking:
            self._asking = True
            self._scope.spawn(self._ask(), name="confirm the lead")

    async def confirmed(self) -> None:
        """The same for who can wait; raises the reason why not."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: VarlogError | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        self.confirm(done)
        await answer

    async def _ask(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                error = await self._look()
                for done in waiting:
                    done(error)
        finally:
            self._asking = False

    async def _look(self) -> VarlogError | None:
        try:
            found = await self._store.get(leader_key(self._leadership.name))
        except VarlogError as error:
            return NotLeader(f"whether this repository still leads is not known: {error.message}")
        if found is None or found.version != self._leadership.term:
            self._leadership.lose()
            return NotLeader("this repository no longer leads; ask another")
        return None
