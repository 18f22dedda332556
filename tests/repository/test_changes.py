"""What happens to the repository when a change breaks off half way."""

import asyncio

import pytest
from tests.sim.world import Cluster, Small

from varlog.base.errors import NoSpace, OutcomeUnknown, Sealed, VarlogError
from varlog.client import connect as connect_cluster
from varlog.ports.disk import DiskFailed
from varlog.repository import Repository, RepositoryConfig
from varlog.sim.host import Host, Process
from varlog.sim.weather import Latency
from varlog.transport.peer import connect
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

ADDRESS = "repository:1"


class Stage:
    """A repository whose store is slow, and a node that calls it."""

    def __init__(self) -> None:
        self.small = Small()
        self.repository = self.small.host("repository", metadata=True)
        self.node = self.small.host("node")
        self.failures: list[VarlogError] = []
        """Why repositories could not go on."""
        assert self.repository.metadata is not None
        self.repository.metadata.embedded = True
        self.repository.metadata.latency = Latency(0.1, 0.0)

    def start_repository(self) -> None:
        self.repository.start(self._serve)

    async def _serve(self, process: Process) -> None:
        assert process.metadata is not None
        repository = Repository(process.world, process.metadata, RepositoryConfig(listen=ADDRESS))
        await repository.start()
        self.failures.append(await repository.wait_failed())

    async def register(self, *, give_up_after: float = 10.0) -> int:
        """Ask for an id; 0 if the connection broke first."""
        got: list[int] = []

        async def ask(process: Process) -> None:
            peer = await connect(process.world, ADDRESS, {}, timeout=5.0)
            process.clock.call_later(give_up_after, peer.close)
            request = pb.RegisterRequest(incarnation="one", boot=1, address="node:1")
            try:
                reply = await peer.call(Method.REGISTER, request, timeout=5.0)
            except VarlogError:
                return
            assert isinstance(reply.message, pb.RegisterReply)
            got.append(reply.message.node_id)

        await run_to_end(self.node, ask)
        return got[0] if got else 0


async def run_to_end(host: Host, work: object) -> None:
    process = host.start(work)  # type: ignore[arg-type]
    assert process.main is not None
    await process.main
    host.crash(power_loss=False)


def test_a_node_whose_connection_breaks_while_it_registers_gets_one_id() -> None:
    """Else it has two in the store, and after a restart of the repository is told the one it does not have."""
    stage = Stage()

    async def main() -> None:
        stage.start_repository()
        await asyncio.sleep(2.0)
        assert await stage.register(give_up_after=0.25) == 0
        first = await stage.register()
        assert first
        stage.repository.crash(power_loss=False)
        stage.start_repository()
        await asyncio.sleep(2.0)
        assert await stage.register() == first

    stage.small.run(main())


def test_a_repository_whose_store_fails_in_any_change_says_that_it_must_end() -> None:
    """Else it stays up and can take nothing any more, not even the nodes that come back."""
    stage = Stage()

    async def main() -> None:
        stage.start_repository()
        await asyncio.sleep(2.0)
        assert stage.repository.metadata is not None
        stage.repository.metadata.failures_wanted = 1
        assert await stage.register() == 0
        await asyncio.sleep(1.0)

    stage.small.run(main())
    assert [type(error) for error in stage.failures] == [DiskFailed]


@pytest.mark.parametrize("change", ["seal", "remove"])
def test_a_log_goes_on_when_the_store_had_no_room_for_its_end(change: str) -> None:
    small = Cluster()

    async def work(process: Process) -> None:
        store = small.servers.repositories[0].metadata
        assert store is not None
        async with connect_cluster(small.servers.url, world=process.world) as cluster:
            log = await cluster.create_log("orders", replicas=1)
            assert (await log.append(b"a")).first == 1
            store.full = True
            with pytest.raises(NoSpace):
                await (log.seal() if change == "seal" else cluster.remove_log("orders"))
            store.full = False
            assert (await log.append(b"b")).first == 2
            assert await log.seal() == 3
            store.full = True
            with pytest.raises(NoSpace):
                await cluster.remove_log("orders")
            store.full = False
            with pytest.raises(Sealed):
                await log.append(b"c")

    small.run(work)


def test_a_log_is_sealed_and_trimmed_at_the_same_time() -> None:
    small = Cluster()

    async def work(process: Process) -> None:
        async with connect_cluster(small.servers.url, world=process.world) as cluster:
            log = await cluster.create_log("orders", replicas=1)
            await log.append_batch([b"a", b"b", b"c"])
            _, end, _, end_again = await asyncio.gather(log.trim(1), log.seal(), log.trim(2), log.seal())
            assert end == end_again == 4
            info = await log.info()
            assert (info.trimmed, info.sealed) == (2, True)

    small.run(work)


def test_a_seal_whose_commit_failed_may_have_been_done() -> None:
    small = Cluster()

    async def work(process: Process) -> None:
        store = small.servers.repositories[0].metadata
        assert store is not None
        async with connect_cluster(small.servers.url, world=process.world) as cluster:
            log = await cluster.create_log("orders", replicas=1)
            store.failures_wanted = 1
            with pytest.raises(OutcomeUnknown):
                await log.seal()

    small.run(work)
