"""A node under `sequencer`: positions it grants, and what happens at the seal. Over a real connection."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers import TIMEOUT_S, Servers, batch, read_parts, run, servers

from varlog.base.errors import (
    Conflict,
    Corrupt,
    InvalidArgument,
    ReplicaFailed,
    Sealed,
    Taken,
    Trimmed,
    Unavailable,
    WrongWriter,
)
from varlog.base.ids import Glsn, Slot
from varlog.base.limits import BATCH_ENTRIES
from varlog.node import settle
from varlog.node.replica import Batches, Replica
from varlog.node.sequencer import REMEMBERED, Sequencer
from varlog.transport.peer import Peer
from varlog.wire.batch import Batch, check_batch, junk_batch
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb
from varlog.wire.record import RecordKind, walk_records

LOG = 99
NAME = pb.ReplicaId(log=LOG, segment=1, stream=1)
ELSEWHERE = 7
"""A member that nobody plays."""


async def open_replica(peer: Peer, *members: int, unit: int = 4, streams: int = 1, index: int = 0) -> None:
    spec = pb.ReplicaSpec(
        replica=NAME, ordering="sequencer", members=members, unit=unit, streams=streams, index=index, ack=len(members)
    )
    await peer.call(Method.OPEN, pb.OpenRequest(spec=spec), timeout=TIMEOUT_S)


async def grant(peer: Peer, count: int = 1, expect: int | None = None, base: int = 1) -> tuple[int, int]:
    request = pb.GrantRequest(log=LOG, segment=1, stream=1, count=count, base=base, expect=expect)
    reply = (await peer.call(Method.GRANT, request, timeout=TIMEOUT_S)).message
    assert isinstance(reply, pb.GrantReply)
    return reply.first, reply.skipped


async def store(peer: Peer, slot: int, *batches: bytes, committed: int = 0) -> pb.ReplicaStatus:
    request = pb.StoreRequest(log=LOG, segment=1, stream=1, slot=slot, base=1, committed=committed)
    status = (await peer.call(Method.STORE, request, batches, timeout=TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return status


async def seal(peer: Peer) -> pb.ReplicaStatus:
    status = (await peer.call(Method.SEAL, pb.SealRequest(replica=NAME), timeout=TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return status


async def finish(peer: Peer, end: int, junk: int | None = None, sources: tuple[int, ...] = ()) -> pb.ReplicaStatus:
    request = pb.FinishRequest(replica=NAME, base=1, end=end, sources=sources, junk_slot=junk)
    status = (await peer.call(Method.FINISH, request, timeout=TIMEOUT_S)).message
    assert isinstance(status, pb.ReplicaStatus)
    return status


async def contents(peer: Peer, **start: Any) -> list[tuple[int, bytes]]:
    """What a reader is shown: slots and batches."""
    parts = await read_parts(peer, pb.LogInfo(id=LOG), **(start or {"slot": 0}))
    return [
        (record.slot, bytes(Batch(part.body[record.body :]).data))
        for part in parts
        for record in walk_records(part.body)
        if record.kind == RecordKind.BATCH
    ]


# ---------------------------------------------------------------- grants


def counter(unit: int = 4, streams: int = 1, base: int = 1) -> Sequencer:
    replica: Any = SimpleNamespace(
        spec=SimpleNamespace(unit=unit, streams=streams), log=SimpleNamespace(sealed=False), id="a replica", leads=0
    )
    sequencer = Sequencer(replica)
    sequencer.begin(Glsn(base))
    return sequencer


def test_positions_are_granted_one_behind_the_other() -> None:
    sequencer = counter(base=10)
    assert [sequencer.grant(count, None) for count in (1, 5, 1)] == [(10, 0), (11, 0), (16, 0)]
    sequencer.begin(Glsn(10))
    assert sequencer.grant(1, None) == (17, 0), "told again where the segment begins it does not begin anew"


def test_a_batch_does_not_go_over_the_edge_of_a_stripe() -> None:
    sequencer = counter(unit=4, streams=2)
    assert sequencer.grant(3, None) == (1, 0)
    assert sequencer.grant(2, None) == (5, 1), "position 4 is left to the caller to fill"
    assert sequencer.grant(4, None) == (9, 2)
    assert sequencer.grant(4, None) == (13, 0)
    with pytest.raises(InvalidArgument, match="stripe"):
        sequencer.grant(5, None)
    assert sequencer.granted == 17


def test_a_condition_is_decided_by_the_next_position() -> None:
    sequencer = counter(unit=4, streams=2)
    assert sequencer.grant(2, 1) == (1, 0)
    for wrong in (1, 2, 4, 5):
        with pytest.raises(Conflict) as conflict:
            sequencer.grant(1, wrong)
        assert conflict.value.tail == 2
    assert sequencer.grant(1, 3) == (3, 0), "who was refused took nothing"
    assert sequencer.grant(2, 5) == (5, 1), "two do not fit before the edge: the next for them is behind it"


def test_who_expects_the_next_position_where_his_batch_does_not_fit_moves_it_behind_the_edge() -> None:
    """He is granted nothing, and told what he is to fill; else the next position would never be that of his batch."""
    sequencer = counter(unit=4, streams=2)
    assert sequencer.grant(2, None) == (1, 0)
    assert sequencer.grant_expected(3, 3, b"one", 0) == (0, 2)
    assert sequencer.granted == 5
    assert sequencer.grant_expected(3, 3, b"one", 0) == (0, 2), "asked again, as the answer was lost"
    with pytest.raises(Conflict) as conflict:
        sequencer.grant_expected(3, 3, b"two", 0)
    assert conflict.value.tail == 4
    assert sequencer.grant_expected(3, 5, b"one", 1) == (5, 0)
    assert sequencer.granted == 8


def test_who_asks_again_for_what_he_was_granted_is_granted_it_again() -> None:
    sequencer = counter(unit=4, streams=2)
    assert sequencer.grant_expected(3, 1, b"one", 0) == (1, 0)
    assert sequencer.grant_expected(2, 5, b"one", 1) == (5, 1)
    assert sequencer.grant(1, None) == (7, 0)
    assert sequencer.grant_expected(3, 1, b"one", 0) == (1, 0)
    assert sequencer.grant_expected(2, 5, b"one", 1) == (5, 1)
    for producer, sequence in ((b"two", 0), (b"one", 2)):
        with pytest.raises(Conflict):
            sequencer.grant_expected(3, 1, producer, sequence)
    for count, expect in ((2, 1), (3, 5)):
        with pytest.raises(Conflict):
            sequencer.grant_expected(count, expect, b"one", 0)
    assert sequencer.grant_expected(3, 9, b"one", 0) == (9, 1), "sent again, it expects another position"
    assert sequencer.grant_expected(3, 1, b"one", 0) == (1, 0)
    assert sequencer.granted == 12
    sequencer._replica.log.sealed = True  # type: ignore[misc]
    with pytest.raises(Sealed):
        sequencer.grant_expected(3, 1, b"one", 0)


def test_a_sequencer_remembers_so_many_grants_and_no_more() -> None:
    sequencer = counter()
    for number in range(REMEMBERED + 1):
        sequencer.grant_expected(1, 1 + number, b"one", number)
    assert sequencer.grant_expected(1, 2, b"one", 1) == (2, 0)
    with pytest.raises(Conflict):
        sequencer.grant_expected(1, 1, b"one", 0)
    assert len(sequencer._granted) == REMEMBERED


@given(st.integers(1, 6), st.integers(1, 4), st.lists(st.integers(1, 6), max_size=40))
def test_no_position_is_granted_twice_and_none_is_forgotten(unit: int, streams: int, counts: list[int]) -> None:
    sequencer = counter(unit, streams)
    granted: list[int] = []
    for count in counts:
        if streams == 1 or count <= unit:
            first, skipped = sequencer.grant(count, None)
            granted += range(first - skipped, first + count)
    assert granted == list(range(1, sequencer.granted))


def test_a_node_grants_until_it_is_sealed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1, ELSEWHERE)
            assert await grant(peer, 3) == (1, 0)
            assert await grant(peer, expect=4) == (4, 0)
            for count in (0, BATCH_ENTRIES + 1):
                with pytest.raises(InvalidArgument):
                    await grant(peer, count)
            with pytest.raises(Conflict):
                await grant(peer, expect=4)
            await seal(peer)
            with pytest.raises(Sealed):
                await grant(peer)

    run(story())


def test_whose_names_are_whose_is_kept_as_long_as_the_segment(tmp_path: Path) -> None:
    """And what has been granted; an id of another length than ids have is not kept at all."""

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            name, claim = b"producer-one-16b", bytes(15) + b"1"
            request = pb.GrantRequest(log=LOG, segment=1, stream=1, base=1, producer=name, claim=claim)
            await peer.call(Method.GRANT, request, timeout=TIMEOUT_S)
            request = pb.GrantRequest(log=LOG, segment=1, stream=1, base=1, producer=name, count=1, expect=1)
            await peer.call(Method.GRANT, request, timeout=TIMEOUT_S)
            (sequencer,) = cluster.nodes[1]._replicas.roles._sequencers.values()
            assert (len(sequencer._claims), len(sequencer._granted)) == (1, 1)
            for request in (
                pb.GrantRequest(log=LOG, segment=1, stream=1, base=1, producer=name * 2, claim=claim),
                pb.GrantRequest(log=LOG, segment=1, stream=1, base=1, producer=name * 2, count=1, expect=2),
                pb.GrantRequest(log=LOG, segment=1, stream=1, base=1, producer=name, claim=claim * 2),
                pb.GrantRequest(log=LOG, segment=1, stream=1, base=1, producer=name),
            ):
                with pytest.raises(InvalidArgument, match="has 16 bytes, not"):
                    await peer.call(Method.GRANT, request, timeout=TIMEOUT_S)
            await seal(peer)
            await finish(peer, 0)
            assert (len(sequencer._claims), len(sequencer._granted)) == (0, 0)

    run(story())


def test_a_node_that_was_started_again_grants_nothing(tmp_path: Path) -> None:
    """Nobody knows what it had granted (I5)."""

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            assert await grant(peer, 3) == (1, 0)
            await cluster.stop_node(1)
            await cluster.start_node(1)
            peer = await cluster.to_node(1)
            with pytest.raises(WrongWriter):
                await grant(peer)
            assert (await store(peer, 0, batch(b"a"))).contiguous == 1, "but it is a member as before"

    run(story())


@pytest.mark.parametrize(("members", "index"), [((ELSEWHERE, 1), 0), ((1, ELSEWHERE), 1)])
def test_only_the_head_of_the_first_stream_grants(tmp_path: Path, members: tuple[int, ...], index: int) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, *members, streams=2, index=index)
            with pytest.raises(WrongWriter):
                await grant(peer)

    run(story())


# ---------------------------------------------------------------- members


def test_a_slot_is_written_once_and_the_same_again_is_success(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            mine = batch(b"a", b"b")
            for _ in range(2):
                assert (await store(peer, 0, mine)).contiguous == 2
            for other in (batch(b"x", b"y"), batch(b"a"), junk_batch(2), junk_batch(1)):
                with pytest.raises(Taken):
                    await store(peer, 0, other)
            for _ in range(2):
                assert (await store(peer, 2, junk_batch(3))).contiguous == 5
            with pytest.raises(Taken):
                await store(peer, 2, batch(b"too late"))
            request = pb.TrimRequest(replica=NAME, upto=3)
            await peer.call(Method.TRIM, request, timeout=TIMEOUT_S)
            with pytest.raises(Trimmed):
                await store(peer, 0, mine)
            (replica,) = cluster.nodes[1].replicas.all()
            with pytest.raises(Trimmed):  # also if that came between the look at the request and the comparison
                await replica.store(Slot(0), [(mine, check_batch(mine))], settle=False)

    run(story())


@pytest.mark.parametrize("last", [True, False])
def test_readers_see_what_the_last_member_has_and_no_more(tmp_path: Path, last: bool) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, *((ELSEWHERE, 1) if last else (1, ELSEWHERE)))
            first, second = batch(b"a"), junk_batch(2)
            await store(peer, 0, first, second)
            both = [(0, first), (1, second)]
            assert await contents(peer) == (both if last else [])
            assert await contents(peer, slot=0, stored=True) == both, "who completes a chain sees all"
            status = await store(peer, 0, committed=1)
            assert (status.contiguous, status.committed) == (3, 3 if last else 1)
            assert await contents(peer) == (both if last else both[:1])

    run(story())


def test_what_was_heard_to_be_committed_is_not_taken_back_and_never_runs_ahead(tmp_path: Path) -> None:
    """A word that comes late says less: what comes next is bound as far as was heard before."""

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1, ELSEWHERE)
            await store(peer, 0, batch(b"a", b"b"))
            assert (await store(peer, 0, committed=4)).committed == 2
            assert (await store(peer, 0, committed=1)).committed == 2
            await store(peer, 2, batch(b"c", b"d", b"e", sequence=1))
            assert (await store(peer, 0, committed=1)).committed == 4

    run(story())


# ---------------------------------------------------------------- the end


def test_no_message_of_a_recovery_is_taken_that_is_not_of_this_one(tmp_path: Path) -> None:
    """Who was not sealed is not settled, and who is finished is finished there: an old message changes nothing."""

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            mine = batch(b"a", b"b")
            await store(peer, 0, mine)
            with pytest.raises(InvalidArgument, match="must be sealed"):
                await finish(peer, 4, junk=2)
            await seal(peer)
            assert (await finish(peer, 2)).state == pb.REPLICA_FINISHED
            for end, junk in ((1, None), (4, 2)):
                with pytest.raises(Corrupt):
                    await finish(peer, end, junk=junk)
            assert await contents(peer) == [(0, mine)]

    run(story())


def test_what_was_given_up_is_filled_stripe_by_stripe(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1, ELSEWHERE, unit=4, streams=2, index=1)
            mine = batch(b"a", b"b")
            await store(peer, 0, mine)
            with pytest.raises(InvalidArgument, match="sealed"):
                await finish(peer, 10, junk=2)
            assert not (await seal(peer)).leads, "how far others are is not for it to say"
            for _ in range(2):  # the repository asks until it has heard the answer
                status = await finish(peer, 10, junk=2)
                assert (status.state, status.contiguous, status.committed) == (pb.REPLICA_FINISHED, 10, 10)
            assert await contents(peer) == [(0, mine), (2, junk_batch(2)), (4, junk_batch(4)), (8, junk_batch(2))]
            (part,) = await read_parts(peer, pb.LogInfo(id=LOG), slot=0)
            pieces = [(each.slot, each.glsn, each.count) for each in part.message.bindings]
            assert (0, 5, 4) in pieces or (0, 5, 2) in pieces
            assert (4, 13, 4) in pieces
            assert (8, 21, 2) in pieces

    run(story())


@pytest.mark.parametrize(("streams", "unit", "count"), [(1, 4, 2 * BATCH_ENTRIES + 7), (2, 1, 300)])
def test_as_much_as_was_given_up_is_filled(
    streams: int, unit: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More slots than a batch may have; and in more pieces than are staged at once."""
    monkeypatch.setattr(settle, "MOST_PIECES", 64)
    at_once: list[int] = []
    plain = Replica.store

    async def store_some(self: Replica, slot: Slot, batches: Batches, *, settle: bool) -> None:
        at_once.append(len(batches))
        await plain(self, slot, batches, settle=settle)

    monkeypatch.setattr(Replica, "store", store_some)

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1, ELSEWHERE, unit=unit, streams=streams)
            mine = batch(b"a")
            await store(peer, 0, mine)
            await seal(peer)
            for _ in range(2):
                status = await finish(peer, 1 + count, junk=1)
                assert (status.state, status.contiguous) == (pb.REPLICA_FINISHED, 1 + count)
            assert max(at_once) <= 64
            first, *filled = await contents(peer)
            assert first == (0, mine)
            assert filled[0][0] == 1
            assert sum(check_batch(data).count for _, data in filled) == count

    run(story())


def test_what_is_missing_before_the_junk_comes_from_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            head, last = await cluster.to_node(1), await cluster.to_node(2)
            first, second = batch(b"a", b"b"), batch(b"c", sequence=1)
            for peer in (head, last):
                await open_replica(peer, 1, 2)
                await store(peer, 0, first)
            await store(head, 2, second)
            for peer in (head, last):
                await seal(peer)
            with pytest.raises(Unavailable, match="lacks slots"):
                await finish(last, 6, junk=3)
            for peer, sources in ((last, (1,)), (head, (2,))):
                assert (await finish(peer, 6, junk=3, sources=sources)).contiguous == 6
                assert await contents(peer) == [(0, first), (2, second), (3, junk_batch(3))]

    run(story())


def test_a_member_that_has_something_where_junk_was_decided_stops(tmp_path: Path) -> None:
    """It was away when the others were sealed. Nobody was answered for it, and it is copied anew."""

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1, ELSEWHERE)
            mine = batch(b"a")
            await store(peer, 0, mine, batch(b"nobody else has it", sequence=1), committed=1)
            await seal(peer)
            with pytest.raises(Unavailable, match="anew"):
                await finish(peer, 4, junk=1)
            assert (await store(peer, 0)).state == pb.REPLICA_FAILED
            assert await contents(peer, slot=0) == [(0, mine)]  # nobody else may be there who has it
            for beyond in ({"slot": 1}, {"slot": 0, "stored": True}, {"slot": 0, "whole": True}):
                with pytest.raises(ReplicaFailed, match="given up"):
                    await contents(peer, **beyond)

    run(story())


def test_a_member_that_gave_up_serves_all_that_is_committed_in_one_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1, ELSEWHERE, unit=64)
            mine = [batch(b"%d" % number, sequence=number) for number in range(20)]
            await store(peer, 0, *mine, batch(b"nobody else has it", sequence=20), committed=20)
            await seal(peer)
            with pytest.raises(Unavailable, match="anew"):
                await finish(peer, 30, junk=20)
            assert await contents(peer, slot=0, part_bytes=100) == list(enumerate(mine))

    run(story())


def test_a_member_that_has_shown_what_was_given_up_shows_nothing_any_more(tmp_path: Path) -> None:
    """As all members before it had that once, their disks have lost it: who of them is right nobody can tell."""

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            peer = await cluster.to_node(1)
            await open_replica(peer, 1)
            await store(peer, 0, batch(b"a"), batch(b"b", sequence=1))
            await seal(peer)
            with pytest.raises(Unavailable, match="anew"):
                await finish(peer, 4, junk=1)
            with pytest.raises(ReplicaFailed, match="given up"):
                await contents(peer, slot=0)

    run(story())


# ---------------------------------------------------------------- a head that was started again


async def lose_last_batch(cluster: Servers, number: int) -> None:
    """Stop a node, flip a bit of what its replica stored last, and start it: it looks like a write that was torn."""
    await cluster.stop_node(number)
    (path,) = (cluster.folder / f"node{number}" / "replicas" / "99.1.1").glob("*[0-9].data")
    content = bytearray(path.read_bytes())
    content[content.rindex(LAST)] ^= 1
    path.write_bytes(content)
    await cluster.start_node(number)


LAST = b"the last one"


async def chain_of_two(cluster: Servers, index: int = 0) -> list[bytes]:
    """Two batches on both members; only the last of the chain knows that they are committed."""
    batches = [batch(b"a", b"b"), batch(LAST, sequence=1)]
    for peer in (await cluster.to_node(1), await cluster.to_node(2)):
        await open_replica(peer, 1, 2, streams=index + 1, index=index)
        for slot, each in zip((0, 2), batches, strict=True):
            await store(peer, slot, each)
    return batches


@pytest.mark.parametrize("index", [0, 1])
def test_a_head_that_was_started_again_takes_nothing_more(tmp_path: Path, index: int) -> None:
    """Its disk may have lost what is acknowledged: with another batch there, members would differ in that."""

    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            first, last = await chain_of_two(cluster, index)
            await lose_last_batch(cluster, 1)
            [replica] = cluster.nodes[1].replicas.all()
            assert replica.leads == pb.LEADS_NO_MORE, "so that another segment follows"
            head = await cluster.to_node(1)
            question = pb.ProducerRequest(log=LOG, segment=1, stream=1, producer=b"producer-one-16b")
            for batches in ([junk_batch(1)], [last]):
                with pytest.raises(Unavailable, match="started again"):
                    await store(head, 2, *batches)
            with pytest.raises(Unavailable, match="started again"):
                await head.call(Method.PRODUCER, question, timeout=TIMEOUT_S)
            assert (await store(head, 0)).contiguous == 2  # who only asks is answered
            assert (await seal(head)).contiguous == 2
            with pytest.raises(Sealed):
                await store(head, 2, junk_batch(1))
            assert (await seal(await cluster.to_node(2))).contiguous == 3
            await finish(head, 3, sources=(2,))
            assert await contents(head, slot=0) == [(0, first), (2, last)]

    run(story())


def test_who_is_not_the_head_goes_on_after_a_start(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=2) as cluster:
            await chain_of_two(cluster)
            await cluster.stop_node(2)
            await cluster.start_node(2)
            following = batch(b"c", sequence=2)
            assert (await store(await cluster.to_node(2), 3, following)).contiguous == 4

    run(story())


def test_what_the_last_member_takes_before_others_have_it_is_not_shown(tmp_path: Path) -> None:
    """Also where it was told, while the segment was open, that all it has is in the log (I2)."""

    async def story() -> None:
        async with servers(tmp_path, nodes=3) as cluster:
            peers = [await cluster.to_node(number) for number in (1, 2, 3)]
            for peer in peers:
                await open_replica(peer, 1, 2, 3)
                await store(peer, 0, batch(b"a"))
            await store(peers[0], 1, batch(b"b", sequence=1))
            for peer in peers:
                await seal(peer)
            take = pb.FinishRequest(replica=NAME, base=1, end=2, sources=[1], take=True)
            status = (await peers[2].call(Method.FINISH, take, timeout=TIMEOUT_S)).message
            assert isinstance(status, pb.ReplicaStatus)
            assert (status.contiguous, status.committed) == (2, 1)
            assert [slot for slot, _ in await contents(peers[2])] == [0]
            await finish(peers[2], 2, sources=(1,))
            assert [slot for slot, _ in await contents(peers[2])] == [0, 1]

    run(story())
