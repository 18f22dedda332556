"""Waits until a node on whose disks bits flipped has had the time to find them all."""

from collections.abc import Awaitable, Callable

from google.protobuf.message import Message

from varlog.sim.cluster import NODE_PORT
from varlog.sim.host import Host, Process
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

Ask = Callable[[Process, Method, Message], Awaitable[Message]]
PASSES = 2
"""So many must end: the first of them may have begun before the last bit flipped."""


async def await_scrubbed(admin: Process, host: Host, ask: Ask, seconds: float) -> None:
    """Until the node has begun and ended to read all it has, or time is up."""
    deadline = admin.clock.now() + seconds
    begun: tuple[int, int] | None = None
    while admin.clock.now() < deadline:
        reply = await ask(admin, Method.STATUS, pb.StatusRequest())
        assert isinstance(reply, pb.StatusReply)
        node = next((each for each in reply.nodes if each.address == f"{host.name}:{NODE_PORT}"), None)
        if node is not None and node.connected:
            begun = (node.boot, node.scrub.passes) if begun is None or begun[0] != node.boot else begun
            if node.scrub.passes >= begun[1] + PASSES:
                return
        await admin.clock.sleep(0.5)
