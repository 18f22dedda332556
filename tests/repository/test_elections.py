"""Elections of journal leaders, on real servers in this process: candidates that leave before they lead."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.servers import TIMEOUT_S, Servers, run, servers

import varlog
from varlog.repository.elections import MOST_TTL_MS, Elections
from varlog.repository.orderer import Orderer
from varlog.transport.peer import Peer
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

SOON_S = 15.0
"""Long on any machine, and much less than the leases here."""


def elections(cluster: Servers) -> Elections:
    assert cluster.repository is not None
    assert cluster.repository._term is not None
    return cluster.repository._term._elections


def watchers(cluster: Servers) -> int:
    """How many are told when a connection to the repository ends."""
    assert cluster.repository is not None
    assert cluster.repository._server is not None
    return sum(len(peer._on_close) for peer in cluster.repository._server.peers)


async def create(cluster: Servers, name: str = "wal") -> pb.LogInfo:
    peer = await cluster.to_repository()
    request = pb.CreateLogRequest(name=name, ordering="leader", replicas=3, streams=1, journal=True)
    log = (await peer.call(Method.CREATE_LOG, request, timeout=TIMEOUT_S)).message
    assert isinstance(log, pb.LogInfo)
    peer.close()
    return log


async def ask(peer: Peer, log: pb.LogInfo, act: pb.Candidature, candidate: int) -> pb.LeadLogReply:
    leader = pb.JournalLeader(id=candidate, name=str(candidate), ttl_ms=MOST_TTL_MS)
    request = pb.LeadLogRequest(log=log.id, leader=leader, act=act)
    reply = (await peer.call(Method.LEAD_LOG, request, timeout=TIMEOUT_S)).message
    assert isinstance(reply, pb.LeadLogReply)
    return reply


async def campaign(peer: Peer, log: pb.LogInfo, candidate: int) -> pb.LeadLogReply:
    """Ask until elected."""
    while not (reply := await ask(peer, log, pb.CAMPAIGN, candidate)).elected:
        pass
    return reply


async def waiting(cluster: Servers, *candidates: int) -> None:
    """Wait until just these do."""
    known = elections(cluster)._candidates
    while [each for of_log in known.values() for each in of_log] != list(candidates):
        await asyncio.sleep(0.005)


class NextSegment:
    """The next segment is made only when it is told to."""

    def __init__(self, cluster: Servers) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        reconfigurer = elections(cluster)._reconfigurer
        plain = reconfigurer.next_segment

        async def next_segment(*arguments: Any, **settings: Any) -> None:
            self.begun.set()
            await self.go_on.wait()
            await plain(*arguments, **settings)

        reconfigurer.next_segment = next_segment  # type: ignore[method-assign]


@pytest.mark.parametrize("reconnects", [False, True])
def test_a_candidate_that_resigns_while_it_is_elected_makes_way_for_the_next(tmp_path: Path, reconnects: bool) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log, segment = await create(cluster), NextSegment(cluster)
            first, second = await cluster.to_repository(), await cluster.to_repository()
            gives_up = asyncio.create_task(ask(first, log, pb.CAMPAIGN, 1))
            await segment.begun.wait()
            follows = asyncio.create_task(campaign(second, log, 2))
            await waiting(cluster, 1, 2)
            if reconnects:
                first.close()
                with pytest.raises(varlog.VarlogError):
                    await gives_up
                await waiting(cluster, 2)
                first = await cluster.to_repository()
                gives_up = asyncio.create_task(ask(first, log, pb.CAMPAIGN, 1))
                await waiting(cluster, 2, 1)
            assert not (await ask(first, log, pb.RESIGN, 1)).elected
            segment.go_on.set()
            elected = await asyncio.wait_for(follows, SOON_S)
            assert [each.leader.name for each in elected.log.chain] == ["", "1", "2"]
            assert not (await gives_up).elected

    run(story())


def test_after_one_that_resigned_while_it_was_elected_nobody_leads_until_somebody_comes(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log, segment = await create(cluster), NextSegment(cluster)
            peer = await cluster.to_repository()
            gives_up = asyncio.create_task(ask(peer, log, pb.CAMPAIGN, 1))
            await segment.begun.wait()
            assert not (await ask(peer, log, pb.RESIGN, 1)).elected
            segment.go_on.set()
            assert not (await gives_up).elected
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                async with asyncio.timeout(SOON_S):
                    while len((await client.log("wal").info()).chain) < 3:
                        await asyncio.sleep(0.01)
                async with client.journal("wal") as journal, journal.lead(name="later", timeout=SOON_S) as leader:
                    assert (await leader.append(b"a")).glsn == 1
                    chain = (await journal.info()).chain
                assert [each.leader for each in chain] == ["", "1", "", "later"]

    run(story())


def test_a_standby_that_asks_again_and_again_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            address = f"varlog://{cluster.repository_address}"
            async with (
                varlog.connect(address) as one,
                varlog.connect(address) as two,
                one.journal("wal") as led,
                led.lead(),
                two.journal("wal") as standby,
            ):
                counted = []
                for _ in range(4):
                    with pytest.raises(varlog.Timeout):
                        await standby.lead(timeout=0.1).__aenter__()
                    await asyncio.wait_for(waiting(cluster), SOON_S)
                    counted.append(watchers(cluster))
                assert counted == counted[:1] * 4

    run(story())


def test_no_candidate_whose_connection_has_ended_is_elected(tmp_path: Path) -> None:
    """Nor is anything remembered of it, however many journals it asked for."""

    async def story() -> None:
        async with servers(tmp_path) as cluster:
            logs = [await create(cluster, "wal"), await create(cluster, "other")]
            leader, gone, stays = [await cluster.to_repository() for _ in range(3)]
            for log in logs:
                assert (await campaign(leader, log, 1)).elected
            lost = [asyncio.create_task(ask(gone, log, pb.CAMPAIGN, each)) for log in logs for each in (2, 3)]
            await waiting(cluster, 2, 3, 2, 3)
            follows = [asyncio.create_task(campaign(stays, log, 4)) for log in logs]
            await waiting(cluster, 2, 3, 4, 2, 3, 4)
            gone.close()
            await waiting(cluster, 4, 4)
            await asyncio.gather(*lost, return_exceptions=True)
            for log in logs:
                await ask(leader, log, pb.RESIGN, 1)
            for reply in await asyncio.wait_for(asyncio.gather(*follows), SOON_S):
                assert [each.leader.name for each in reply.log.chain] == ["", "1", "4"]
            for peer in (leader, stays):
                peer.close()
            while elections(cluster)._peers:
                await asyncio.sleep(0.005)

    run(story())


def test_the_time_that_it_takes_to_read_all_logs_is_not_that_of_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the repository serves they cannot give their word to it."""
    plain = Orderer.load

    async def story() -> None:
        async with servers(tmp_path) as cluster:
            log = await create(cluster)
            log = (await campaign(await cluster.to_repository(), log, 1)).log
            loaded = 0.0

            async def load(self: Orderer, info: pb.LogInfo) -> None:
                nonlocal loaded
                await asyncio.sleep(0.05)
                await plain(self, info)
                loaded = cluster.world.clock.now()

            await cluster.stop_repository()
            monkeypatch.setattr(Orderer, "load", load)
            await cluster.start_repository()
            peer = await cluster.to_repository()
            await peer.call(Method.LIST_LOGS, pb.ListLogsRequest(), timeout=TIMEOUT_S)
            assert elections(cluster)._over_at(log) >= loaded + MOST_TTL_MS / 1000

    run(story())
