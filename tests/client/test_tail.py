"""The tail of a log whose members number its last segment: they are asked, and show that no other has followed.

That is asked, too, before the word of a sequencer on where the log ends is believed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from google.protobuf.message import Message
from tests.servers import TIMEOUT_S, Servers, run, servers

import varlog
from varlog.base.ids import Epoch, Glsn, LogId
from varlog.client import tail
from varlog.client.chain import Over
from varlog.client.limits import FILL_SECONDS
from varlog.client.routes import Routes
from varlog.client.tail import is_last_segment
from varlog.node.verbs import Verbs
from varlog.repository.service import Service
from varlog.transport.request import Request
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb

KINDS: list[dict[str, Any]] = [
    {"ordering": "leader"},
    {"ordering": "leader", "replication": "chain"},
    {"ordering": "leader", "ack": 3},
    {"ordering": "sequencer"},
    {"ordering": "sequencer", "streams": 3, "unit": 4},
]
NEVER_MS = 600_000
"""A lost node is not noticed."""


class Questions:
    """What members are asked, and the repository is, for the tail."""

    def __init__(self) -> None:
        self.asked = 0
        """Questions to members."""
        self.lost = 0
        """So many of those that come next are never answered."""
        self.deaf: object = None
        """The replicas of a member that answers once the repository has refused,"""
        self.refuses = False
        """which it does if this is set."""
        self.refused = asyncio.Event()


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> Questions:
    made = Questions()
    plain_lead, plain_tail = Verbs.lead, Service.tail

    async def lead(self: Verbs, request: Request) -> None:
        made.asked += 1
        if made.lost:
            made.lost -= 1
            await asyncio.get_running_loop().create_future()
        if self._replicas is made.deaf:
            await made.refused.wait()
        plain_lead(self, request)

    def tail(self: Service, request: Request) -> Awaitable[None] | None:
        if made.refuses:
            made.refused.set()
            raise varlog.Unavailable("ask again later")
        return plain_tail(self, request)

    monkeypatch.setattr(Verbs, "lead", lead)
    monkeypatch.setattr(Service, "tail", tail)
    return made


@asynccontextmanager
async def log_of(folder: Path, **kind: Any) -> AsyncIterator[tuple[Servers, varlog.Log]]:
    async with (
        servers(folder, lost_ms=NEVER_MS) as cluster,
        varlog.connect(f"varlog://{cluster.repository_address}") as client,
    ):
        yield cluster, await client.create_log("orders", replicas=3, **kind)


async def watches_nothing(_: Routes) -> bool:
    return False


async def entries(log: varlog.Log) -> list[bytes]:
    return [entry.payload async for entry in log.subscribe(1, wait=False)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_with_the_repository_stopped_a_log_is_read_up_to_its_tail(tmp_path: Path, kind: dict[str, Any]) -> None:
    async def story() -> None:
        async with log_of(tmp_path, **kind) as (cluster, log):
            assert await log.tail() == 0
            await cluster.stop_repository()
            payloads = [b"%d" % number for number in range(10)]
            for number, payload in enumerate(payloads, 1):
                assert (await log.append(payload)).glsn == number
                assert await log.tail() == number
            assert await entries(log) == payloads
            with pytest.raises(varlog.NotWritten) as refused:
                await log.read(11)
            assert refused.value.tail == 10

    run(story())


def test_followers_of_a_journal_read_what_is_acknowledged_while_the_repository_is_stopped(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, lost_ms=NEVER_MS) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
            varlog.connect(f"varlog://{cluster.repository_address}") as other,
            client.journal("wal") as journal,
            journal.lead(ttl=30.0) as leader,
        ):
            follower = other.log("wal")
            assert await follower.tail() == 0
            await cluster.stop_repository()
            for number in range(1, 11):
                assert (await leader.append(b"%d" % number)).glsn == number
                assert await follower.tail() == number
                assert (await follower.read(number)).payload == b"%d" % number, "though no replica may have heard yet"
            assert len(await entries(follower)) == 10
            await cluster.start_repository()

    run(story())


@pytest.mark.parametrize("gone", [1, 2])
def test_a_follower_that_is_away_is_not_waited_for(tmp_path: Path, gone: int) -> None:
    async def story() -> None:
        async with log_of(tmp_path, ordering="leader") as (cluster, log):
            await log.append(b"a")
            members = (await log.info()).chain[-1].streams[0].members
            await cluster.stop_repository()
            await cluster.stop_node(members[gone])
            began = monotonic()
            assert await log.tail() == 1
            assert monotonic() - began < TIMEOUT_S / 10

    run(story())


def test_as_many_members_tell_the_tail_of_their_leader_as_acknowledge(tmp_path: Path) -> None:
    """Two of four that are open leave too few to seal the segment, so no other has begun: appends go on, too."""

    async def story() -> None:
        async with (
            servers(tmp_path, nodes=4, lost_ms=NEVER_MS) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            log = await client.create_log("orders", ordering="leader", replicas=4, ack=2)
            await log.append(b"a")
            members = (await log.info()).chain[-1].streams[0].members
            await cluster.stop_repository()
            for gone in members[2:]:
                await cluster.stop_node(gone)
            assert (await log.append(b"b")).glsn == 2
            assert await log.tail() == 2

    run(story())


def test_members_that_stand_still_for_a_moment_are_asked_again(tmp_path: Path, questions: Questions) -> None:
    """However long that is: with the repository stopped nobody else knows."""

    async def story() -> None:
        async with log_of(tmp_path, ordering="leader") as (cluster, log):
            await log.append(b"a")
            await cluster.stop_repository()
            questions.lost = 3
            assert await log.tail(timeout=TIMEOUT_S) == 1
            assert not questions.lost

    run(story())


def test_that_the_repository_is_away_ends_nothing_while_members_may_answer(
    tmp_path: Path, questions: Questions
) -> None:
    """All three have to say that they are open, and one does only once the repository has refused."""

    async def story() -> None:
        async with log_of(tmp_path, ordering="leader", ack=3) as (cluster, log):
            await log.append(b"a")
            members = (await log.info()).chain[-1].streams[0].members
            questions.deaf = cluster.nodes[members[2]]._replicas
            questions.refuses = True
            assert await log.tail(timeout=TIMEOUT_S) == 1

    run(story())


def test_where_a_member_stays_away_the_repository_answers(tmp_path: Path, questions: Questions) -> None:
    async def story() -> None:
        async with log_of(tmp_path, ordering="sequencer") as (cluster, log):
            await log.append(b"a")
            members = (await log.info()).chain[-1].streams[0].members
            questions.deaf = cluster.nodes[members[1]]._replicas
            assert await log.tail(timeout=TIMEOUT_S) == 1

    run(story())


@pytest.mark.parametrize("ordering", ["leader", "sequencer"])
def test_who_asks_at_once_shares_the_questions(tmp_path: Path, questions: Questions, ordering: str) -> None:
    async def story() -> None:
        async with log_of(tmp_path, ordering=ordering) as (cluster, log):
            await log.append(b"a")
            await cluster.stop_repository()
            questions.asked = 0
            assert await asyncio.gather(*(log.tail(timeout=TIMEOUT_S) for _ in range(200))) == 200 * [1]
            assert questions.asked < 200

    run(story())


@pytest.mark.parametrize("to", ["cut", "leader", "sequencer"])
@pytest.mark.parametrize("kind", [{"ordering": "leader"}, {"ordering": "sequencer"}], ids=str)
def test_who_missed_a_switch_is_told_the_tail_of_what_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any], to: str
) -> None:
    async def story() -> None:
        async with (
            log_of(tmp_path, **kind) as (cluster, log),
            varlog.connect(f"varlog://{cluster.repository_address}") as other,
        ):
            await log.append(b"a")
            with monkeypatch.context() as patch:
                patch.setattr(Routes, "_watch_once", watches_nothing)
                stale = other.log("orders")
                assert await stale.tail() == 1
                await log.reconfigure(ordering=to, roll=True)
                assert (await log.append(b"b")).glsn == 2
                known = stale._context.routes.info
                assert known is not None
                assert len(known.chain) == 1, "it has not heard of it"
                assert await stale.tail() == 2

    run(story())


@pytest.mark.parametrize("ordering", ["leader", "sequencer"])
@pytest.mark.parametrize("sealed", ["before", "meanwhile"])
def test_while_a_segment_is_replaced_the_repository_is_asked_as_long_as_the_caller_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordering: str, sealed: str
) -> None:
    """Members are sealed when they are asked, or just after it; for a while the repository cannot tell what follows."""
    plain = Service.tail
    refusals: list[int] = []

    def refuse(self: Service, request: Request) -> Awaitable[None] | None:
        if refusals:
            refusals.pop()
            raise varlog.Unavailable("ask again later")
        return plain(self, request)

    async def story() -> None:
        async with (
            log_of(tmp_path, ordering=ordering) as (cluster, log),
            varlog.connect(f"varlog://{cluster.repository_address}") as other,
        ):
            await log.append(b"a")
            stale = other.log("orders")
            assert await stale.tail() == 1
            if sealed == "before":
                await log.reconfigure(roll=True)
            else:
                monkeypatch.setattr(tail, "complete_last_segment", end)
            assert (await log.append(b"b")).glsn == 2
            refusals.extend(range(3))
            assert await stale.tail(timeout=TIMEOUT_S) == 2
            assert not refusals

    async def end(*_: object) -> None:
        if refusals:
            raise Over

    monkeypatch.setattr(Service, "tail", refuse)
    monkeypatch.setattr(Routes, "_watch_once", watches_nothing)
    monkeypatch.setattr(tail, "MEMBERS_FIRST_SECONDS", TIMEOUT_S)
    run(story())


def test_a_log_that_was_made_anew_is_not_filled_up_to_where_the_old_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it has the old one's name now is heard between the members' answer and what is done with it."""
    plain = tail._Question.first_answer

    async def story() -> None:
        async with log_of(tmp_path, ordering="sequencer") as (cluster, log):
            for _ in range(5):
                await log.append(b"old")
            assert await log.tail() == 5
            async with varlog.connect(f"varlog://{cluster.repository_address}") as other:
                new = await other.create_log("new", replicas=3, ordering="sequencer")
                await new.append(b"new")
                anew = new._context.routes.info
                assert anew is not None

                async def first_answer(self: tail._Question) -> Glsn | pb.TailReply:
                    answer = await plain(self)
                    log._context.routes.adopt(anew)
                    return answer

                routes = log._context.routes
                old = routes.info
                assert old is not None
                assert await is_last_segment(log._context, LogId(old.id), Epoch(1))
                with monkeypatch.context() as patch:
                    patch.setattr(tail._Question, "first_answer", first_answer)
                    assert await log.tail() == 1
                assert not await is_last_segment(log._context, LogId(old.id), Epoch(1))
                assert (await new.append(b"newer")).glsn == 2

    run(story())


@pytest.mark.parametrize("ordering", ["leader", "sequencer"])
def test_who_removed_a_log_is_told_no_tail_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    """Though its members have not heard of it yet, and are open."""

    async def drop(_: Verbs, __: Request) -> None:
        await asyncio.get_running_loop().create_future()

    async def story() -> None:
        async with (
            log_of(tmp_path, ordering=ordering) as (cluster, log),
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
        ):
            await log.append(b"a")
            mine = client.log("orders")
            assert await mine.tail() == 1
            await client.remove_log("orders")
            with pytest.raises(varlog.NotFound):
                await mine.tail()

    monkeypatch.setattr(Routes, "_watch_once", watches_nothing)
    monkeypatch.setattr(Verbs, "drop", drop)
    run(story())


def test_who_missed_that_a_log_was_sealed_believes_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sequencer had granted by then may lie beyond the end: the answer is that the log is sealed."""

    async def story() -> None:
        async with (
            log_of(tmp_path, ordering="sequencer") as (cluster, log),
            varlog.connect(f"varlog://{cluster.repository_address}") as other,
        ):
            await log.append(b"a")
            context = other.log("orders")._context
            this = LogId((await context.routes.resolve(TIMEOUT_S)).id), Epoch(1)
            assert await is_last_segment(context, *this)
            await log.seal()
            assert not await is_last_segment(context, *this)
            known = context.routes.info
            assert known is not None
            assert not known.sealed, "it has not heard of it"

    monkeypatch.setattr(Routes, "_watch_once", watches_nothing)
    run(story())


def test_a_leader_that_was_cut_off_tells_no_tail_alone(tmp_path: Path) -> None:
    """It is open, and knows nothing of what the others have acknowledged in the segment that follows."""

    async def story() -> None:
        async with log_of(tmp_path, ordering="leader") as (cluster, log):
            await log.append(b"a")
            info = await log.info()
            stream = info.chain[-1].streams[0]
            await cluster.stop_repository()
            assert await log.tail() == 1
            for follower in stream.members[1:]:
                node = await cluster.to_node(follower)
                seal = pb.SealRequest(replica=pb.ReplicaId(log=info.id, segment=1, stream=stream.id))
                await node.call(Method.SEAL, seal, timeout=TIMEOUT_S)
            with pytest.raises((varlog.Timeout, varlog.Unavailable)):
                await log.tail(timeout=0.5)
            await cluster.start_repository()
            assert (await log.append(b"b", timeout=TIMEOUT_S)).glsn == 2, "another segment has followed"
            assert await log.tail(timeout=TIMEOUT_S) == 2

    run(story())


def test_one_member_alone_tells_no_tail(tmp_path: Path) -> None:
    """The other two may have acknowledged more, or sealed the segment."""

    async def story() -> None:
        async with (
            servers(tmp_path, lost_ms=NEVER_MS) as cluster,
            varlog.connect(f"varlog://{cluster.repository_address}") as client,
            client.journal("wal") as journal,
            journal.lead(ttl=30.0) as leader,
        ):
            await leader.append(b"a")
            log = client.log("wal")
            members = (await log.info()).chain[-1].streams[0].members
            for node in members[1:]:
                await cluster.stop_node(node)
            with pytest.raises((varlog.Timeout, varlog.Unavailable)):
                await log.tail(timeout=0.5)
            await cluster.start_node(members[1])
            assert await log.tail() == 1

    run(story())


def test_whose_grant_was_lost_on_its_way_gets_the_position_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the one who has it: that is no Conflict."""
    plain = Verbs.grant
    lost: list[Message] = []

    def grant(self: Verbs, request: Request) -> None:
        if not lost and request.message.HasField("expect"):
            request.reply = lost.append  # type: ignore[method-assign, assignment]
        plain(self, request)

    async def story() -> None:
        async with log_of(tmp_path, ordering="sequencer") as (_, log):
            await log.append(b"a")
            assert (await log.append(b"b", expect=2, timeout=TIMEOUT_S)).glsn == 2
            assert lost
            with pytest.raises(varlog.Conflict):
                await log.append(b"c", expect=2)
            assert (await log.append(b"d", expect=3)).glsn == 3
            assert await entries(log) == [b"a", b"b", b"d"]

    monkeypatch.setattr(Verbs, "grant", grant)
    run(story())


async def ask_tail(log: varlog.Log, timeout: float) -> None:
    assert await log.tail(timeout=timeout) == 2


async def read_last(log: varlog.Log, timeout: float) -> None:
    with pytest.raises(varlog.Junk):
        await log.read(2, timeout=timeout)


async def trim(log: varlog.Log, timeout: float) -> None:
    await log.trim(1, timeout=timeout)


@pytest.mark.parametrize("ask", [ask_tail, read_last, trim])
def test_who_has_little_time_gets_past_a_hole_when_he_asks_again(
    tmp_path: Path, ask: Callable[[varlog.Log, float], Awaitable[None]]
) -> None:
    """Each time he sees it for less long than what has to pass before it is filled."""
    patience = FILL_SECONDS / 2

    async def story() -> None:
        async with log_of(tmp_path, ordering="sequencer") as (cluster, log):
            await log.append(b"a")
            info = await log.info()
            stream = info.chain[-1].streams[0]
            peer = await cluster.to_node(stream.members[0])
            request = pb.GrantRequest(log=info.id, segment=1, stream=stream.id, count=1, base=1)
            await peer.call(Method.GRANT, request, timeout=TIMEOUT_S)
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    try:
                        await ask(log, patience)
                    except (varlog.Timeout, varlog.Unavailable, varlog.OutcomeUnknown):
                        continue
                    break

    run(story())


@pytest.mark.parametrize("gives_up", ["in time", "cancelled"])
def test_where_it_cannot_be_told_whether_a_position_is_taken_it_is_asked_no_longer_than_somebody_waits(
    tmp_path: Path, questions: Questions, gives_up: str
) -> None:
    async def story() -> None:
        async with log_of(tmp_path, ordering="sequencer") as (cluster, log):
            await log.append(b"a")
            members = (await log.info()).chain[-1].streams[0].members
            questions.deaf = cluster.nodes[members[1]]._replicas
            await cluster.stop_repository()
            questions.asked = 0
            appending = asyncio.create_task(log.append(b"b", expect=1, timeout=1.0 if gives_up == "in time" else None))
            while not questions.asked and not appending.done():
                await asyncio.sleep(0.001)
            if gives_up == "cancelled":
                appending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await appending
            else:
                with pytest.raises((varlog.OutcomeUnknown, varlog.Timeout)):
                    await appending
            async with asyncio.timeout(TIMEOUT_S):
                while not all(writer.idle for writer in log._appender._writers.values()):
                    await asyncio.sleep(0.01)

    run(story())


def test_a_conditional_append_that_was_asked_for_again_is_kept_no_longer_than_somebody_waits(
    tmp_path: Path, questions: Questions
) -> None:
    async def story() -> None:
        async with log_of(tmp_path, ordering="sequencer") as (cluster, log):
            await log.append(b"a")
            members = (await log.info()).chain[-1].streams[0].members
            questions.deaf = cluster.nodes[members[1]]._replicas
            await cluster.stop_repository()
            with pytest.raises(varlog.OutcomeUnknown) as unknown:
                await log.append(b"b", expect=1, timeout=2.0)
            with pytest.raises(varlog.OutcomeUnknown):
                await log.retry(unknown.value.token, timeout=0.1)
            async with asyncio.timeout(TIMEOUT_S):
                while not all(writer.idle for writer in log._appender._writers.values()):
                    await asyncio.sleep(0.01)

    run(story())


def test_an_old_sequencer_is_not_believed_that_a_position_is_taken(tmp_path: Path) -> None:
    """It knows nothing of the segment that follows, in which the position expected may be the next."""

    async def story() -> None:
        async with log_of(tmp_path, ordering="sequencer") as (cluster, log):
            for number in range(1, 4):
                await log.append(b"%d" % number)
            info = await log.info()
            stream = info.chain[-1].streams[0]
            await cluster.stop_repository()
            with pytest.raises(varlog.Conflict) as refused:
                await log.append(b"x", expect=3)
            assert refused.value.tail == 3, "all members are open"
            other = await cluster.to_node(stream.members[1])
            seal = pb.SealRequest(replica=pb.ReplicaId(log=info.id, segment=1, stream=stream.id))
            await other.call(Method.SEAL, seal, timeout=TIMEOUT_S)
            with pytest.raises((varlog.Timeout, varlog.OutcomeUnknown)):
                await log.append(b"x", expect=3, timeout=1.0)
            appending = asyncio.create_task(log.append(b"y", expect=3, timeout=TIMEOUT_S))
            await cluster.start_repository()
            with pytest.raises(varlog.Conflict) as refused:
                await appending
            assert refused.value.tail == 3
            assert (await log.append(b"z", expect=4)).glsn == 4
            assert await entries(log) == [b"1", b"2", b"3", b"z"]

    run(story())
