"""A candidate for the lead of a journal, and its lease: asking to be elected, giving word, leaving.

Nothing here keeps an old leader from anything: that is done by the end of its segment.
"""

from collections.abc import Callable
from math import inf
from typing import cast

from varlog.base.errors import Fenced, OutcomeUnknown, Sealed, Timeout, Unavailable, VarlogError
from varlog.client.context import LogContext
from varlog.client.errors import CLOSED
from varlog.client.limits import CAMPAIGN_SECONDS, RENEWALS, RESIGN_SECONDS, SHORTEST_ATTEMPT_SECONDS
from varlog.client.repository import pause
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

PASSING = (Unavailable, Timeout, OutcomeUnknown)
"""Errors after which it is asked again."""


class Lease:
    """Of one candidate."""

    def __init__(self, context: LogContext, log: int, leader: pb.JournalLeader) -> None:
        self._context = context
        self._world = context.world
        self._log = log
        self._leader = leader

    async def campaign(self, timeout: float | None) -> pb.LogInfo:
        """Wait to be elected; the log as it is then. Raises `Timeout` if that did not happen in time."""
        clock = self._world.clock
        deadline = inf if timeout is None else clock.now() + timeout
        failures = 0
        while (left := deadline - clock.now()) > SHORTEST_ATTEMPT_SECONDS:
            try:
                reply = await self._ask(pb.CAMPAIGN, min(left, CAMPAIGN_SECONDS))
            except PASSING:
                self._check_open()
                failures += 1
                await clock.sleep(min(max(0.0, deadline - clock.now()), pause(self._world, failures)))
                continue
            failures = 0
            if reply.elected:
                self._check_open()  # a leader has to hear of it
                return reply.log
        raise Timeout(f"not elected in {timeout:g} s: another leads {self._context.routes.name!r}")

    def _check_open(self) -> None:
        if self._context.scope.closed:
            raise Unavailable(CLOSED)

    async def keep(self, renewed: Callable[[pb.LogInfo], None]) -> None:
        """Give word until cancelled, or until another has taken over; `renewed` gets the log as it is."""
        every = self._leader.ttl_ms / 1000 / RENEWALS
        while True:
            await self._world.clock.sleep(every)
            try:
                renewed((await self._ask(pb.RENEW, 2 * every)).log)
            except (Fenced, Sealed):
                return
            except VarlogError:
                pass  # as long as nobody else takes over, all goes on

    async def resign(self) -> None:
        """So that another need not wait until the lease is over; who does not hear of it waits."""
        try:
            await self._ask(pb.RESIGN, RESIGN_SECONDS)
        except VarlogError:
            pass

    async def _ask(self, act: pb.Candidature, timeout: float) -> pb.LeadLogReply:
        request = pb.LeadLogRequest(log=self._log, leader=self._leader, act=act)
        return cast(pb.LeadLogReply, await self._context.repositories.call(Method.LEAD_LOG, request, timeout=timeout))
