"""What operators ask of nodes: list them, drain one, check what hangs on it, remove it for good."""

import asyncio

from varlog.base.ids import NodeId
from varlog.repository.catalog import Catalog
from varlog.repository.checkup import Checkup, held_by
from varlog.repository.links import NodeLinks
from varlog.repository.opening import has_no_room
from varlog.repository.orderer import Orderer
from varlog.transport.peer import Request
from varlog.wire.proto import varlog_pb2 as pb


class Operations:
    """Handlers of the repository that are about nodes."""

    def __init__(
        self, catalog: Catalog, orderer: Orderer, links: NodeLinks, closing: asyncio.Lock, pause_ms: int
    ) -> None:
        """`closing` is held by whoever changes the members of streams."""
        self._catalog = catalog
        self._orderer = orderer
        self._links = links
        self._closing = closing
        self._checkup = Checkup(catalog, orderer, links, pause_ms)

    def nodes(self) -> list[pb.NodeInfo]:
        """All of them, with what is known of them just now."""
        connected = self._links.connected()
        return [self._served(node, number in connected) for number, node in self._catalog.nodes.items()]

    def _served(self, node: pb.NodeInfo, connected: bool) -> pb.NodeInfo:
        number = NodeId(node.id)
        copy = pb.NodeInfo()
        copy.CopyFrom(node)
        copy.connected = connected
        copy.last_seen_us = self._links.last_seen_us.get(number, 0)
        ended = [held.ended for held in held_by(self._catalog, number)]
        copy.replicas = len(ended)
        copy.ended_streams = sum(ended)
        copy.open_streams = len(ended) - copy.ended_streams
        if volumes := self._links.volumes(number):
            del copy.volumes[:]
            copy.volumes.extend(volumes)
            if has_no_room(volumes):
                copy.troubles.append("its volumes are full: it gets nothing new")
        copy.troubles.extend(self._links.troubles(number))
        return copy

    def _served_now(self, number: int) -> pb.NodeInfo:
        return self._served(self._catalog.node(number), NodeId(number) in self._links.connected())

    def list_nodes(self, request: Request) -> None:
        request.reply(pb.ListNodesReply(nodes=self.nodes()))

    async def drain_node(self, request: Request) -> None:
        """Answered when the wish is recorded; the healer moves what is open."""
        message: pb.DrainNodeRequest = request.message
        await self._catalog.drain_node(NodeId(message.node_id), not message.undo)
        request.reply(self._served_now(message.node_id))

    def check_node(self, request: Request) -> None:
        request.reply(self._checkup.check(self._served_now(request.message.node_id)))

    async def remove_node(self, request: Request) -> None:
        """For good: its id is not given out again, and it is told so when it comes back."""
        message: pb.RemoveNodeRequest = request.message
        number = NodeId(message.node_id)
        async with self._closing:
            node = self._served_now(number)
            self._checkup.refuse_removal(self._checkup.check(node), connected=node.connected, force=message.force)
            for log in await self._catalog.remove_node(number):
                self._orderer.drop_member(log, number)
            self._links.forget(number)
        request.reply(pb.Empty())
