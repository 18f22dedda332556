"""What operators ask of nodes: list them, drain one, check what hangs on it, remove it for good."""

from collections.abc import Iterable, Iterator

from varlog.base.ids import NodeId
from varlog.repository.catalog import Catalog
from varlog.repository.changes import Changes
from varlog.repository.checkup import Checkup, count_streams
from varlog.repository.links import NodeLinks
from varlog.repository.opening import has_no_room
from varlog.repository.orderer import Orderer
from varlog.transport.peer import Request
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


class Operations:
    """Handlers of the repository that are about nodes."""

    def __init__(self, catalog: Catalog, orderer: Orderer, links: NodeLinks, changes: Changes, pause_ms: int) -> None:
        self._catalog = catalog
        self._links = links
        self._changes = changes
        self._checkup = Checkup(catalog, orderer, links, pause_ms)

    def nodes(self) -> list[pb.NodeInfo]:
        """All of them, with what is known of them just now."""
        return [self._served(node) for node in self._with_counts(self._catalog.nodes.values())]

    def _with_counts(self, nodes: Iterable[pb.NodeInfo]) -> Iterator[pb.NodeInfo]:
        """Copies that say how much is on each; the streams are looked through once for all of them."""
        counts = count_streams(self._catalog)
        connected = dict.fromkeys(self._links.connected())
        for node in nodes:
            copy = pb.NodeInfo()
            copy.CopyFrom(node)
            copy.connected = NodeId(node.id) in connected
            copy.open_streams, copy.ended_streams = counts.get(NodeId(node.id), (0, 0))
            copy.replicas = copy.open_streams + copy.ended_streams
            yield copy

    def _served(self, node: pb.NodeInfo) -> pb.NodeInfo:
        """With what the node itself has said."""
        number = NodeId(node.id)
        node.last_seen_us = self._links.last_seen_us.get(number, 0)
        if volumes := self._links.volumes(number):
            del node.volumes[:]
            node.volumes.extend(volumes)
            if has_no_room(volumes):
                node.troubles.append("its volumes are full: it gets nothing new")
        node.troubles.extend(self._links.troubles(number))
        if (scrub := self._links.scrub(number)) is not None:
            node.scrub.CopyFrom(scrub)
        return node

    def _served_now(self, number: int) -> pb.NodeInfo:
        (node,) = self._with_counts([self._catalog.node(number)])
        return self._served(node)

    def list_nodes(self, request: Request) -> None:
        request.reply(pb.ListNodesReply(nodes=self.nodes()))

    async def drain_node(self, request: Request) -> None:
        """Answered when the wish is recorded; the healer moves what is open."""
        message: pb.DrainNodeRequest = request.message
        await self._catalog.drain_node(NodeId(message.node_id), not message.undo)
        request.reply(self._served_now(message.node_id))

    def check_node(self, request: Request) -> None:
        request.reply(self._checkup.check(self._served_now(request.message.node_id)))

    async def scrub_node(self, request: Request) -> None:
        """Have a node read all its files now; its reports say how far it is."""
        number = NodeId(self._catalog.node(request.message.node_id).id)
        status = await self._links.ask(number, Method.SCRUB, pb.ScrubRequest(begin=True))
        node = self._served_now(number)
        assert isinstance(status, pb.ScrubStatus)
        node.scrub.CopyFrom(status)
        request.reply(node)

    async def remove_node(self, request: Request) -> None:
        """For good: its id is not given out again, and it is told so when it comes back."""
        message: pb.RemoveNodeRequest = request.message
        number = NodeId(message.node_id)

        def refuse() -> None:
            node = self._served_now(number)
            self._checkup.refuse_removal(self._checkup.check(node), connected=node.connected, force=message.force)

        async with self._changes.alone():  # nobody is choosing it, or has chosen it for a stream that is not there yet
            await self._catalog.remove_node(number, refuse)
            self._links.forget(number)
        request.reply(pb.Empty())
