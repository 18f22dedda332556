"""The way in: `connect` to a cluster, then make, find and list its logs."""

from collections.abc import Sequence
from types import TracebackType
from typing import cast

from google.protobuf.message import Message

from varlog.archive.reader import FileArchives
from varlog.base.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from varlog.base.ids import LogId
from varlog.base.names import check_name
from varlog.client.address import parse_url
from varlog.client.appender import Appender
from varlog.client.bounds import check_bytes, check_count, check_milliseconds, check_names, check_seconds
from varlog.client.choice import Choice
from varlog.client.context import LogContext
from varlog.client.describe import (
    ClusterStatus,
    LogDescription,
    NodeCheck,
    NodeDescription,
    describe_check,
    describe_log,
    describe_node,
    describe_status,
)
from varlog.client.hints import Hints
from varlog.client.journal import Journal
from varlog.client.limits import TIMEOUT_SECONDS
from varlog.client.log import Log
from varlog.client.repository import Doubt, Repositories
from varlog.client.routes import Routes
from varlog.client.together import Together
from varlog.ports import World
from varlog.runtime.scope import Scope
from varlog.transport.pool import PeerPool
from varlog.transport.world import real_world
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def connect(url: str, *, timeout: float = TIMEOUT_SECONDS, zone: str = "", world: World | None = None) -> "Cluster":
    """A cluster at `varlog://host:port[,host:port...]`, to be used as `async with`.

    `timeout` is how long every call may take that does not say otherwise. Subscriptions read from replicas in
    `zone`, as nodes were told theirs, where there are any.
    """
    return Cluster(parse_url(url), check_seconds(timeout, "a timeout"), world, zone)


class Cluster:
    """A connection to a cluster."""

    def __init__(self, addresses: list[str], timeout: float, world: World | None, zone: str = "") -> None:
        self._addresses = addresses
        self._timeout = timeout
        self._given_world = world
        self._zone = zone
        self._open: _Open | None = None

    async def __aenter__(self) -> "Cluster":
        if self._open is not None:
            raise InvalidArgument("this connection is open already")
        opened = _Open(self._given_world or real_world(), self._addresses, self._timeout, self._zone)
        try:
            await opened.repositories.connect(self._timeout)
        except BaseException:
            await opened.close()
            raise
        self._open = opened
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything that is under way: appends, producers, subscriptions."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()

    def __repr__(self) -> str:
        return f"<Cluster varlog://{','.join(self._addresses)}>"

    # ------------------------------------------------------------ logs

    async def create_log(
        self,
        name: str,
        *,
        ordering: str = "cut",
        replicas: int = 3,
        streams: int = 1,
        ack: int | None = None,
        unit: int | None = None,
        roll_bytes: int = 0,
        roll_seconds: float = 0.0,
        retain_bytes: int = 0,
        retain_seconds: float = 0.0,
        retain_archived: bool = False,
        journal: bool = False,
        pin: Sequence[str] = (),
        replication: str = "",
        timeout: float | None = None,
    ) -> Log:
        """Make a log; `AlreadyExists` if there is one of this name.

        `ack` is how many durable copies an acknowledgement needs, a majority if it is left open; where all copies
        that there are acknowledge (under `cut` and `sequencer`, and in a chain), with how few the log goes on while
        there are no nodes for more. `unit`, under `sequencer`, is how many positions go to one stream before the next
        has its turn. A segment that holds `roll_bytes`, or is `roll_seconds` old, is followed by the next one; 0: never
        for that. What is older than `retain_seconds`, or more than the newest `retain_bytes` of one copy, is trimmed by
        and by; 0: never. With `retain_archived` nothing of that goes before it is archived. With `journal` it is led by
        one client at a time; see `journal`. A change of the log that would take away one of the capabilities in `pin`
        is refused. `replication`, under `leader`, is "broadcast" (the default) or "chain".

        Should the connection break on the way and the log then be there with these very settings, it is
        taken for the one this call made.
        """
        opened = self._opened()
        request = _creation(name, ordering, replicas, ack, roll_bytes, roll_seconds)
        request.streams = check_count(streams, "streams")
        request.ack = 0 if ack is None else check_count(ack, "ack")
        request.unit = 0 if unit is None else check_count(unit, "unit")
        request.roll_bytes = check_bytes(roll_bytes, "roll_bytes")
        request.roll_ms = check_milliseconds(roll_seconds, "roll_seconds")
        request.retain_bytes = check_bytes(retain_bytes, "retain_bytes")
        request.retain_ms = check_milliseconds(retain_seconds, "retain_seconds")
        request.retain_archived = retain_archived
        request.journal = journal
        request.replication = replication
        request.pin.extend(check_names(pin, "pin"))
        doubt = Doubt()
        seconds = self._seconds(timeout)
        log = opened.log(name)
        try:
            answer = await opened.repositories.call(
                Method.CREATE_LOG, request, timeout=seconds, changes=True, doubt=doubt
            )
        except AlreadyExists:
            if not doubt.repeated:
                raise
            answer = await opened.repositories.call(Method.GET_LOG, pb.GetLogRequest(name=name), timeout=seconds)
            found = cast(pb.LogInfo, answer)
            made = (found.ordering, found.replicas, found.streams, found.journal)
            if made != (ordering, replicas, streams, journal):
                raise
        opened.contexts[name].routes.adopt(cast(pb.LogInfo, answer))
        return log

    def log(self, name: str) -> Log:
        """A handle on a log, made without asking anybody: one that does not exist raises `NotFound` when it is used."""
        return self._opened().log(check_name(name))

    def journal(
        self,
        name: str,
        *,
        replicas: int = 3,
        ack: int | None = None,
        roll_bytes: int = 0,
        roll_seconds: float = 0.0,
        replication: str = "",
        timeout: float | None = None,
    ) -> Journal:
        """A journal, to be used as `async with`; one that does not exist is made then, with these settings.

        It is a log that one client at a time leads: `journal.lead()` waits to be elected. Everybody may read it.
        With `replication="chain"` its leader sends each event once, to the first member, which passes it on.
        """
        wanted = _creation(name, "leader", replicas, ack, roll_bytes, roll_seconds)
        wanted.streams, wanted.journal, wanted.replication = 1, True, replication
        return self._opened().journal(wanted, self._seconds(timeout))

    async def logs(self, *, timeout: float | None = None) -> list[LogDescription]:
        """All logs of the cluster."""
        answer = await self._ask(Method.LIST_LOGS, pb.ListLogsRequest(), timeout)
        return [describe_log(info) for info in cast(pb.ListLogsReply, answer).logs]

    async def remove_log(self, name: str, *, timeout: float | None = None) -> None:
        """Remove a log with everything in it; its name is free again."""
        opened, doubt = self._opened(), Doubt()
        request = pb.RemoveLogRequest(name=check_name(name))
        context = opened.contexts.get(name)
        known = None if context is None else context.routes.info
        try:
            await opened.repositories.call(
                Method.REMOVE_LOG, request, timeout=self._seconds(timeout), changes=True, doubt=doubt
            )
        except NotFound:
            if not doubt.repeated:
                raise
        if context is not None and known is not None:
            context.routes.forget(LogId(known.id))

    # ------------------------------------------------------------ the cluster

    async def nodes(self, *, timeout: float | None = None) -> list[NodeDescription]:
        """All storage nodes."""
        answer = await self._ask(Method.LIST_NODES, pb.ListNodesRequest(), timeout)
        return [describe_node(info) for info in cast(pb.ListNodesReply, answer).nodes]

    async def drain_node(self, node: int, *, undo: bool = False, timeout: float | None = None) -> NodeDescription:
        """Have everything open move off a node, and nothing new come; `undo` takes that back.

        Returns when this is recorded. `check_node` tells how far it is; appends go on meanwhile.
        """
        request = pb.DrainNodeRequest(node_id=check_count(node, "a node id"), undo=undo)
        answer = await self._opened().repositories.call(
            Method.DRAIN_NODE, request, timeout=self._seconds(timeout), changes=True
        )
        return describe_node(cast(pb.NodeInfo, answer))

    async def check_node(self, node: int, *, timeout: float | None = None) -> NodeCheck:
        """What would become of its streams if a node were stopped now."""
        answer = await self._ask(
            Method.CHECK_NODE, pb.CheckNodeRequest(node_id=check_count(node, "a node id")), timeout
        )
        return describe_check(cast(pb.CheckNodeReply, answer))

    async def scrub_node(self, node: int, *, timeout: float | None = None) -> NodeDescription:
        """Have a node read all its files now, and look for rot; `nodes` tells how far it is."""
        request = pb.ScrubNodeRequest(node_id=check_count(node, "a node id"))
        return describe_node(cast(pb.NodeInfo, await self._ask(Method.SCRUB_NODE, request, timeout)))

    async def remove_node(self, node: int, *, force: bool = False, timeout: float | None = None) -> None:
        """Remove a node for good; `Conflict` says why it has to stay.

        One that is lost for good may be removed by `force` though it held copies of streams that have ended,
        as long as others have them too.
        """
        doubt = Doubt()
        request = pb.RemoveNodeRequest(node_id=check_count(node, "a node id"), force=force)
        try:
            await self._opened().repositories.call(
                Method.REMOVE_NODE, request, timeout=self._seconds(timeout), changes=True, doubt=doubt
            )
        except NotFound:
            if not doubt.repeated:
                raise

    async def status(self, *, timeout: float | None = None) -> ClusterStatus:
        """Nodes, logs, streams and replicas at once."""
        answer = await self._ask(Method.STATUS, pb.StatusRequest(), timeout)
        return describe_status(cast(pb.StatusReply, answer))

    async def _ask(self, method: Method, message: Message, timeout: float | None) -> Message:
        return await self._opened().repositories.call(method, message, timeout=self._seconds(timeout))

    def _opened(self) -> "_Open":
        if self._open is None:
            raise Unavailable("not connected: use the cluster inside `async with varlog.connect(...)`")
        return self._open

    def _seconds(self, timeout: float | None) -> float:
        if timeout is None:
            return self._timeout
        return check_seconds(timeout, "a timeout")


def _creation(
    name: str, ordering: str, replicas: int, ack: int | None, roll_bytes: int, roll_seconds: float
) -> pb.CreateLogRequest:
    return pb.CreateLogRequest(
        name=check_name(name),
        ordering=ordering,
        replicas=check_count(replicas, "replicas"),
        ack=0 if ack is None else check_count(ack, "ack"),
        roll_bytes=check_bytes(roll_bytes, "roll_bytes"),
        roll_ms=check_milliseconds(roll_seconds, "roll_seconds"),
    )


class _Open:
    """What exists while the cluster is connected."""

    def __init__(self, world: World, addresses: list[str], timeout: float, zone: str) -> None:
        self._world = world
        self._zone = zone
        self._timeout = timeout
        self._scope = Scope()
        self._pool = PeerPool(world)
        self.repositories = Repositories(world, self._pool, addresses)
        self.contexts: dict[str, LogContext] = {}
        self._appenders: dict[str, Appender] = {}

    def log(self, name: str) -> Log:
        return Log(self._context(name), self._appenders[name], self._timeout)

    def journal(self, wanted: pb.CreateLogRequest, timeout: float) -> Journal:
        return Journal(self._context(wanted.name), self._appenders[wanted.name], timeout, wanted)

    def _context(self, name: str) -> LogContext:
        context = self.contexts.get(name)
        if context is None:
            routes = Routes(name, self.repositories, self._world, self._scope, self._zone)
            choice = Choice(self._world, routes, self._scope)
            archives = self._world.archives or FileArchives()
            context = LogContext(
                world=self._world,
                pool=self._pool,
                repositories=self.repositories,
                scope=self._scope,
                routes=routes,
                choice=choice,
                hints=Hints(),
                archives=archives,
                tails=Together(self._world.clock, self._scope, f"tail of {name}"),
            )
            self.contexts[name] = context
            self._appenders[name] = Appender(context)
        return context

    async def close(self) -> None:
        for appender in self._appenders.values():
            appender.close()
        for context in self.contexts.values():
            for callback in list(context.on_close):
                callback()
        self._pool.close()
        await self._scope.close()
