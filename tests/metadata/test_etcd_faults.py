"""Real etcds whose members are killed, stopped and started again, and leaders that are stopped in their tracks."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.metadata.etcd_stories import PATIENCE_S, PATIENT, hurried, opened, put, run, until
from tools.etcd import Ensemble, Member, Tls, running

from varlog.base.errors import NoSpace, NotLeader, Unavailable, WrongCluster
from varlog.metadata import election
from varlog.metadata.election import HeldLeadership, leader_of
from varlog.metadata.etcd import EtcdConfig, EtcdStore, connection, space
from varlog.ports.metadata import Change, Transaction

PROGRAM = Path(__file__).parent / "leader_program.py"
TLS = Path(__file__).parents[1] / "transport" / "tls"


async def blocking(work: Any, *arguments: Any) -> None:
    await asyncio.to_thread(work, *arguments)


# ---------------------------------------------------------------- one member


def test_etcd_is_restarted_under_commits_and_watches(tmp_path: Path) -> None:
    with running(tmp_path) as etcd:
        run(_restarted(etcd))


async def _restarted(etcd: Ensemble) -> None:
    member = etcd.members[0]
    async with opened(EtcdConfig(etcd.endpoints, timeout_s=PATIENCE_S)) as store:
        changes = store.watch("k/")
        assert await store.commit(put("k/0"))
        for life, end in enumerate((member.kill, member.stop)):
            await blocking(end)
            waiting = [asyncio.ensure_future(store.commit(put(f"k/{life}/{number}"))) for number in range(5)]
            await asyncio.sleep(0.2)
            member.start()
            assert await asyncio.gather(*waiting) == [True] * 5
            assert await store.get("k/0") is not None
        told = [await anext(changes) for _ in range(11)]
        assert told[0] == Change("k/0", b"x")
        assert sorted(change.key for change in told[1:]) == [f"k/{life}/{n}" for life in (0, 1) for n in range(5)]


def test_a_full_etcd_refuses_and_says_the_truth_about_each(tmp_path: Path) -> None:
    """Many at once: etcd applies some of them that it answers with an error, because they were let in before."""

    async def story(endpoints: tuple[str, ...]) -> None:
        told: list[str] = []
        async with opened(EtcdConfig(endpoints, lease_s=PATIENCE_S, **PATIENT), told.append) as store:
            leadership = await store.elect("cuts", "one")
            applied: list[str] = []
            refused: list[str] = []

            async def write(key: str) -> None:
                try:
                    assert await store.fenced(leadership).commit(put(key, bytes(100_000)))
                    applied.append(key)
                except NoSpace:
                    refused.append(key)

            for number in range(20):
                await asyncio.gather(*(write(f"k/{number:02}/{part:02}") for part in range(30)))
            assert applied
            assert refused
            assert [key for key, _ in await store.scan("k/")] == sorted(applied)
            assert leadership.held
            assert [text.partition(":")[0] for text in told] == ["etcd is full"]

    with running(tmp_path, options=["--quota-backend-bytes=16000000"]) as etcd:
        run(story(etcd.endpoints))


def test_an_etcd_is_not_filled_by_what_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few revisions, each of which is large: more is written than it has room for, and hardly anything is kept."""
    monkeypatch.setattr(space, "KEPT_BYTES", 2 << 20)
    monkeypatch.setattr(space, "COMPACT_BYTES", 1 << 20)

    async def story(endpoints: tuple[str, ...]) -> None:
        async with opened(EtcdConfig(endpoints)) as store:
            for number in range(400):
                assert await store.commit(Transaction(put={f"k/{number}": bytes(100_000)}, delete=[f"k/{number - 1}"]))
            assert [key for key, _ in await store.scan("k/")] == ["k/399"]

    with running(tmp_path, options=["--quota-backend-bytes=24000000"]) as etcd:
        run(story(etcd.endpoints))


# ---------------------------------------------------------------- three members


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with running(tmp_path_factory.mktemp("three"), 3) as etcd:
        yield etcd


def in_use(store: EtcdStore, etcd: Ensemble) -> Member:
    """The member that the store talks to now."""
    address = store._connection._endpoints[store._connection._current].address
    return next(member for member in etcd.members if member.endpoint == address)


class Counting:
    """Tasks that count one key up by compare-and-swap, and know how often they succeeded."""

    def __init__(self, store: EtcdStore, tasks: int = 8) -> None:
        self._store = store
        self._going = True
        self.counted = 0
        self._tasks = [asyncio.ensure_future(self._count()) for _ in range(tasks)]

    async def _count(self) -> None:
        while self._going:
            found = await self._store.get("n")
            value, version = (int(found.value), found.version) if found is not None else (0, 0)
            if await self._store.commit(Transaction(expect={"n": version}, put={"n": str(value + 1).encode()})):
                self.counted += 1

    async def further(self, count: int) -> None:
        """Wait until so many more were counted."""
        target = self.counted + count
        while self.counted < target:
            await asyncio.sleep(0.01)
            for task in self._tasks:
                if task.done():
                    await task

    async def check(self) -> None:
        """Nothing is counted twice, and nothing lost."""
        self._going = False
        await asyncio.gather(*self._tasks)
        found = await self._store.get("n")
        assert found is not None
        assert int(found.value) == self.counted


def test_members_are_killed_and_stopped_one_by_one(three: Ensemble) -> None:
    async def story() -> None:
        config = EtcdConfig(three.endpoints, prefix="one-by-one/", timeout_s=PATIENCE_S)
        async with opened(config) as store:
            changes = store.watch("n")
            counting = Counting(store)
            await counting.further(20)
            for fault in ("kill", "stop", "kill"):
                member = in_use(store, three)
                if fault == "kill":
                    await blocking(member.kill)
                    await counting.further(20)
                    member.start()
                    await blocking(three.wait_ready)
                else:
                    member.send(signal.SIGSTOP)
                    await counting.further(20)
                    member.send(signal.SIGCONT)
                await counting.further(20)
            await counting.check()
            values = [int((await anext(changes)).value or b"") for _ in range(counting.counted)]
            assert values == list(range(1, counting.counted + 1))

    run(story())


def test_a_leader_outlives_the_member_it_talks_to(three: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease is so long that members may elect among themselves meanwhile; it is renewed early."""
    monkeypatch.setattr(election, "RENEWALS", PATIENCE_S)

    async def story() -> None:
        config = EtcdConfig(three.endpoints, prefix="outlives/", lease_s=PATIENCE_S, timeout_s=PATIENCE_S)
        async with opened(config) as store:
            leadership = await store.elect("cuts", "one")
            member = in_use(store, three)
            await blocking(member.kill)
            held_until = leadership._until
            for number in range(20):
                assert await store.fenced(leadership).commit(put(f"k/{number}"))
            await until(lambda: leadership._until > held_until)
            assert leadership.held
            member.start()
            await blocking(three.wait_ready)
            await leadership.resign()

    run(story())


def test_without_a_majority_nothing_is_promised(three: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        config = EtcdConfig(three.endpoints, prefix="majority/", timeout_s=PATIENCE_S, lease_s=3.0)
        async with opened(config) as store:
            assert await store.commit(put("a"))
            leadership = await store.elect("cuts", "one")
            for member in three.members[1:]:
                await blocking(member.kill)
            with hurried(store, monkeypatch, timeout_s=1.0, attempt_s=1.0):
                with pytest.raises(Exception) as refused:  # noqa: PT012 - it may take some until the member has noticed
                    while True:
                        await store.commit(put("b"))
                assert isinstance(refused.value, Unavailable) or not refused.value.outcome_known  # type: ignore[attr-defined]
                with pytest.raises(Unavailable):
                    await store.get("a")
                await asyncio.wait_for(leadership.wait_lost(), PATIENCE_S)
            assert not leadership.held
            for member in three.members[1:]:
                member.start()
            await blocking(three.wait_ready)
            assert await store.get("a") is not None
            assert await store.commit(put("c"))

    run(story())


def test_endpoints_of_two_etcds_are_noticed(three: Ensemble, tmp_path: Path) -> None:
    with running(tmp_path) as other:

        async def story() -> None:
            config = EtcdConfig((*other.endpoints, *three.endpoints), prefix="two/", timeout_s=PATIENCE_S)
            with pytest.raises(WrongCluster):
                await EtcdStore.open(config)
            for member in three.members:
                member.send(signal.SIGSTOP)
            async with opened(config) as store:
                for member in three.members:
                    member.send(signal.SIGCONT)
                assert await store.commit(put("a"))
                await blocking(other.close)
                with pytest.raises(WrongCluster):
                    await store.get("a")

        run(story())


# ---------------------------------------------------------------- leaders


@contextmanager
def candidate(etcd: Ensemble, prefix: str, identity: str) -> Iterator["subprocess.Popen[str]"]:
    """`leader_program` as a process."""
    command = [sys.executable, str(PROGRAM), ",".join(etcd.endpoints), prefix, identity]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Reigns:
    """What candidates say, each term with its leader. On a slow machine there may be more of them than were meant."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}

    def next_of(self, process: "subprocess.Popen[str]", identity: str, after: int = 0) -> int:
        """Wait until it leads in a term beyond `after`, and knows that it did not between; that term."""
        while True:
            said = self.say(process, identity)
            assert said, f"{identity} ended"
            if said != "lost" and int(said) > after:
                return int(said)

    def rest_of(self, process: "subprocess.Popen[str]", identity: str) -> None:
        """End it, for what it said last."""
        process.kill()
        while self.say(process, identity):
            pass

    def say(self, process: "subprocess.Popen[str]", identity: str) -> str:
        """The next thing it says: a term, or that it lost its lead; nothing when it has ended."""
        assert process.stdout is not None
        said = process.stdout.readline().strip().removeprefix("leads ")
        if said.isdecimal():
            self.leaders[int(said)] = identity
        return said


def test_a_leader_stopped_for_longer_than_its_lease_writes_nothing_afterwards(etcd: Ensemble) -> None:
    reigns = Reigns()
    with candidate(etcd, "stopped/", "one") as one:
        first = reigns.next_of(one, "one")
        with candidate(etcd, "stopped/", "two") as two:
            one.send_signal(signal.SIGSTOP)
            second = reigns.next_of(two, "two", after=first)
            one.send_signal(signal.SIGCONT)
            assert reigns.say(one, "one") == "lost"
            reigns.rest_of(two, "two")
            reigns.next_of(one, "one", after=second)
            reigns.rest_of(one, "one")
    run(_check_lines(etcd, "stopped/", [f"{who} {term}" for term, who in sorted(reigns.leaders.items())]))


async def _check_lines(etcd: Ensemble, prefix: str, leaders: list[str]) -> None:
    """Each leader wrote, and none after the next had."""
    async with opened(EtcdConfig(etcd.endpoints, prefix=prefix, **PATIENT)) as store:
        lines = [versioned.value.decode() for _, versioned in await store.scan("line/")]
    assert list(dict.fromkeys(lines)) == leaders
    assert lines == sorted(lines, key=leaders.index)


class Dreamer:
    """Renews leases without asking anybody."""

    async def renew(self, lease: int) -> float:
        return 3600.0


def test_two_never_lead_at_once(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that resign, or stop renewing unseen and go on writing: judged by what is there in the end."""

    async def story() -> None:
        config = EtcdConfig(etcd.endpoints, prefix="at-once/", lease_s=2.0, **PATIENT)
        forgetting = [True, False, False, True, False, False]
        leading: list[HeldLeadership] = []
        wrote: list[int] = []

        async def lead(store: EtcdStore, identity: str) -> bool:
            """Whether it came to write anything before it was deposed."""
            leadership = await store.elect("cuts", identity)
            assert not any(each.held for each in leading)
            forgetful = forgetting[len(wrote)]
            if forgetful:  # it renews nothing, and goes on believing in itself: only the fence is left
                monkeypatch.setattr(leadership, "_leases", Dreamer())
            else:
                leading.append(leadership)
            fenced = store.fenced(leadership)
            for number in count() if forgetful else range(10):
                try:
                    assert await fenced.commit(put(f"by/{leadership.term:012}/{number:06}"))
                except NotLeader:
                    return number > 0
                if number == 0:
                    wrote.append(leadership.term)
                await asyncio.sleep(0.02)
            await leadership.resign()
            return True

        async def candidate_task(identity: str) -> None:
            async with opened(config) as store:
                for _ in range(2):
                    while not await lead(store, identity):
                        pass

        await asyncio.gather(*(candidate_task(f"c{number}") for number in range(3)))
        async with opened(config) as store:
            assert await leader_of(store, "cuts") is None
            found = await store.scan("by/")
        terms = [key.split("/")[1] for key, _ in sorted(found, key=lambda pair: pair[1].version)]
        assert sorted(set(terms)) == [f"{term:012}" for term in wrote]
        assert len(wrote) == 6
        assert terms == sorted(terms)

    run(story())


# ---------------------------------------------------------------- TLS


async def _replaced(config: EtcdConfig) -> None:
    """The authorities are those of another etcd, are gone, and are then the right ones: nothing is started anew."""
    authorities = Path(config.ca)
    authorities.write_bytes(Path(config.certificate).read_bytes())
    opening = asyncio.ensure_future(EtcdStore.open(replace(config, timeout_s=20.0)))
    await asyncio.sleep(0.3)
    authorities.unlink()
    await asyncio.sleep(0.5)
    authorities.write_bytes((TLS / "authority.pem").read_bytes())
    store = await opening
    assert await store.commit(put("replaced"))
    await store.close()


def test_mutual_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CHANNEL_S", 0.2)
    tls = Tls(TLS / "authority.pem", TLS / "server.pem", TLS / "server.key")
    ca, certificate, key = (str(TLS / name) for name in ("authority.pem", "client.pem", "client.key"))
    quick = {"timeout_s": 1.0, "attempt_s": 1.0, "connect_s": 1.0}

    async def story(endpoints: tuple[str, ...]) -> None:
        async with opened(EtcdConfig(endpoints, ca=ca, certificate=certificate, key=key, **PATIENT)) as store:
            changes = store.watch("a")
            assert await store.commit(put("a"))
            assert await anext(changes) == Change("a", b"x")
        for wrong in ({}, {"ca": ca}):
            with pytest.raises(Unavailable):
                await EtcdStore.open(EtcdConfig(endpoints, **quick, **wrong))  # type: ignore[arg-type]
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await EtcdStore.open(EtcdConfig(endpoints, ca=certificate, certificate=certificate, key=key, timeout_s=2.0))
        await _replaced(EtcdConfig(endpoints, ca=str(tmp_path / "ca"), certificate=certificate, key=key))

    with running(tmp_path, tls=tls) as etcd:
        run(story(etcd.endpoints))
