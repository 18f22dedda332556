"""What every metadata store must do; run against each implementation."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest
from tests.metadata.etcd_stories import PATIENCE_S, configured, run
from tests.sim.world import Small
from tools.etcd import Ensemble

from varlog.base.errors import InvalidArgument, NotLeader, Unavailable
from varlog.metadata.election import follow_leader, leader_of
from varlog.metadata.etcd import EtcdStore
from varlog.metadata.sqlite import SqliteStore
from varlog.ports.election import ElectiveStore, Leader
from varlog.ports.metadata import Change, Transaction
from varlog.sim.host import Process
from varlog.sim.metadata import SimulatedMetadata

Body = Callable[[Callable[[], Awaitable[ElectiveStore]]], Coroutine[Any, Any, None]]
"""A test: gets a function that opens the store, and may call it again after closing what it got."""


class Implementation(Protocol):
    def run(self, body: Body) -> None: ...


class Simulated:
    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order

    def run(self, body: Body) -> None:
        small = Small()
        host = small.host("repository", metadata=True)
        assert host.metadata is not None
        host.metadata.in_order = self._in_order

        async def inside(process: Process) -> None:
            async def open_store() -> ElectiveStore:
                assert host.metadata is not None
                return SimulatedMetadata(host.metadata, small.loop, process)

            await body(open_store)

        async def main() -> None:
            process = host.start(inside)
            assert process.main is not None
            await process.main

        small.run(main())


class Sqlite:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, body: Body) -> None:
        async def open_store() -> ElectiveStore:
            return await SqliteStore.open(self._folder)

        asyncio.run(body(open_store))


class Etcd:
    """On a real etcd, which is never left out: where there is none, it is fetched (`tools.etcd`)."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._config = configured(ensemble, lease_s=PATIENCE_S)

    def run(self, body: Body) -> None:
        async def open_store() -> ElectiveStore:
            return await EtcdStore.open(self._config)

        run(body(open_store))


@pytest.fixture(params=["simulated", "simulated, out of order", "sqlite", "etcd"])
def implementation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Implementation]:
    if request.param == "sqlite":
        yield Sqlite(tmp_path)
    elif request.param == "etcd":
        yield Etcd(request.getfixturevalue("etcd"))
    else:
        yield Simulated(in_order=request.param == "simulated")


Open = Callable[[], Awaitable[ElectiveStore]]


def test_what_is_put_is_there_with_a_version(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        assert await store.get("a") is None
        assert await store.commit(Transaction(put={"a": b"1", "b": b""}))
        found = await store.get("a")
        empty = await store.get("b")
        assert found is not None
        assert empty is not None
        assert found.value == b"1"
        assert found.version > 0
        assert empty.value == b""
        await store.close()

    implementation.run(body)


def test_versions_grow_with_every_change_also_over_a_deletion(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        versions = []
        for _ in range(3):
            assert await store.commit(Transaction(put={"a": b"same"}))
            found = await store.get("a")
            assert found is not None
            versions.append(found.version)
        assert await store.commit(Transaction(delete=["a"]))
        assert await store.get("a") is None
        assert await store.commit(Transaction(put={"a": b"again"}))
        found = await store.get("a")
        assert found is not None
        versions.append(found.version)
        assert versions == sorted(set(versions))
        await store.close()

    implementation.run(body)


def test_a_failed_expectation_changes_nothing(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        assert await store.commit(Transaction(put={"a": b"1", "c": b"3"}))
        found = await store.get("a")
        assert found is not None
        wrong = Transaction(
            expect={"a": found.version + 1}, put={"a": b"2", "b": b"2"}, delete=["c"], delete_ranges=[("c", "z")]
        )
        assert not await store.commit(wrong)
        assert [key for key, _ in await store.scan("")] == ["a", "c"]
        assert await store.commit(Transaction(expect={"a": found.version, "b": 0}, put={"a": b"2"}))
        assert not await store.commit(Transaction(expect={"a": 0}, put={"a": b"3"}))
        found = await store.get("a")
        assert found is not None
        assert found.value == b"2"
        await store.close()

    implementation.run(body)


def test_scan_gives_keys_with_the_prefix_in_order(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        keys = ["log/10", "log/2", "log/1", "lo", "log", "loh/1", "log/ü", "log/~", "log0"]
        assert await store.commit(Transaction(put={key: key.encode() for key in keys}))
        found = await store.scan("log/")
        assert [key for key, _ in found] == sorted(key for key in keys if key.startswith("log/"))
        assert [versioned.value for _, versioned in found] == [key.encode() for key, _ in found]
        assert await store.scan("nothing") == []
        assert len(await store.scan("")) == len(keys)
        await store.close()

    implementation.run(body)


def test_a_range_is_deleted_half_open(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        assert await store.commit(Transaction(put={f"cut/{number:04}": b"x" for number in range(10)}))
        assert await store.commit(Transaction(delete_ranges=[("cut/0000", "cut/0007")], put={"base": b"7"}))
        assert [key for key, _ in await store.scan("cut/")] == ["cut/0007", "cut/0008", "cut/0009"]
        await store.close()

    implementation.run(body)


@pytest.mark.parametrize(
    "odd",
    [
        Transaction(put={"": b"x"}),
        Transaction(put={"\ud800": b"x"}),
        Transaction(put={"a/2": b"new"}, delete=["a/2"]),
        Transaction(put={"a/2": b"new"}, delete_ranges=[("a/", "a0")]),
    ],
)
def test_a_transaction_that_makes_no_sense_is_refused(implementation: Implementation, odd: Transaction) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        with pytest.raises(InvalidArgument):
            await store.commit(odd)
        assert await store.scan("") == []
        await store.close()

    implementation.run(body)


def test_of_two_commits_that_expect_the_same_one_wins(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        for round_number in range(20):
            key = f"key/{round_number}"
            outcomes = await asyncio.gather(
                *(store.commit(Transaction(expect={key: 0}, put={key: bytes([number])})) for number in range(4))
            )
            assert sum(outcomes) == 1
            found = await store.get(key)
            assert found is not None
            assert found.value == bytes([outcomes.index(True)])
        await store.close()

    implementation.run(body)


def test_increments_at_once_are_all_counted(implementation: Implementation) -> None:
    """Strictly serializable: read, then compare and swap, from several tasks."""

    async def body(open_store: Open) -> None:
        store = await open_store()

        async def increment() -> None:
            while True:
                found = await store.get("n")
                value = int(found.value) if found is not None else 0
                version = found.version if found is not None else 0
                if await store.commit(Transaction(expect={"n": version}, put={"n": str(value + 1).encode()})):
                    return

        await asyncio.gather(*(increment() for _ in range(10)))
        found = await store.get("n")
        assert found is not None
        assert found.value == b"10"
        await store.close()

    implementation.run(body)


def test_what_was_committed_is_there_after_opening_again(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        assert await store.commit(Transaction(put={"a": b"1"}))
        before = await store.get("a")
        await store.close()
        store = await open_store()
        assert await store.get("a") == before
        assert await store.commit(Transaction(put={"a": b"2"}))
        after = await store.get("a")
        assert before is not None
        assert after is not None
        assert after.version > before.version
        await store.close()

    implementation.run(body)


def test_watch_tells_every_change_under_its_prefix_in_order(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        assert await store.commit(Transaction(put={"w/before": b"0"}))
        changes = store.watch("w/")
        random = Random(1)
        expected: list[Change] = []
        for number in range(20):
            key = random.choice(("w/a", "w/b", "other"))
            assert await store.commit(Transaction(put={key: str(number).encode()}))
            if key != "other":
                expected.append(Change(key, str(number).encode()))
        assert await store.commit(Transaction(delete=["w/a", "w/never"]))
        expected.append(Change("w/a", None))
        assert [await anext(changes) for _ in expected] == expected
        await store.close()

    implementation.run(body)


def test_a_closed_store_refuses_and_its_watches_end(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        changes = store.watch("")
        assert await store.commit(Transaction(put={"a": b"1"}))
        await store.close()
        with pytest.raises(Unavailable):
            await store.get("a")
        with pytest.raises(Unavailable):
            await store.commit(Transaction(put={"a": b"2"}))
        assert [change async for change in changes] == [Change("a", b"1")]

    implementation.run(body)


def test_a_failed_commit_is_not_watched(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        changes = store.watch("")
        assert not await store.commit(Transaction(expect={"a": 9}, put={"a": b"1"}))
        assert await store.commit(Transaction(put={"b": b"2"}))
        assert await anext(changes) == Change("b", b"2")
        await store.close()

    implementation.run(body)


def test_a_large_transaction_is_still_one(implementation: Implementation) -> None:
    """More operations than etcd takes in one go."""

    async def body(open_store: Open) -> None:
        store = await open_store()
        names = [f"k/{number:04}" for number in range(1000)]
        assert await store.commit(Transaction(put={name: name.encode() for name in names}))
        found = await store.scan("k/")
        assert [(name, versioned.value) for name, versioned in found] == [(name, name.encode()) for name in names]
        assert len({versioned.version for _, versioned in found}) == 1
        changes = store.watch("k/")
        assert await store.commit(Transaction(delete=names[:600], put={f"l/{name}": b"" for name in names[:600]}))
        assert [await anext(changes) for _ in range(600)] == [Change(name, None) for name in names[:600]]
        assert not await store.commit(Transaction(expect={"k/0000": 7}, delete=names))
        assert len(await store.scan("k/")) == 400
        await store.close()

    implementation.run(body)


# ---------------------------------------------------------------- who leads


def test_one_leads_at_a_time_and_terms_grow(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        assert await leader_of(store, "cuts") is None
        first = await store.elect("cuts", "one")
        assert first.held
        assert await leader_of(store, "cuts") == Leader("one", first.term)
        waiting = asyncio.ensure_future(store.elect("cuts", "two"))
        other = await store.elect("another", "one")
        assert not waiting.done()
        await first.resign()
        await first.wait_lost()
        assert not first.held
        second = await waiting
        assert (second.held, second.term > first.term, other.held) == (True, True, True)
        assert await leader_of(store, "cuts") == Leader("two", second.term)
        await first.resign()
        assert second.held
        await second.resign()
        assert await leader_of(store, "cuts") is None
        await store.close()

    implementation.run(body)


def test_only_who_leads_can_commit(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        first = await store.elect("cuts", "one")
        as_first = store.fenced(first)
        assert await as_first.commit(Transaction(put={"a": b"1"}))
        assert not await as_first.commit(Transaction(expect={"a": 0}, put={"a": b"2"}))
        await first.resign()
        with pytest.raises(NotLeader):
            await as_first.commit(Transaction(put={"a": b"3"}))
        second = await store.elect("cuts", "two")
        with pytest.raises(NotLeader):
            await as_first.commit(Transaction(put={"a": b"4"}))
        found = await as_first.get("a")
        assert found is not None
        assert found.value == b"1"
        assert await store.fenced(second).commit(Transaction(put={"a": b"5"}))
        await as_first.close()
        with pytest.raises(Unavailable):
            await as_first.get("a")
        await store.close()

    implementation.run(body)


def test_a_leader_that_does_not_know_it_was_deposed_changes_nothing(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        leadership = await store.elect("cuts", "one")
        assert await store.commit(Transaction(delete=["election/cuts"]))
        assert leadership.held
        with pytest.raises(NotLeader):
            await store.fenced(leadership).commit(Transaction(put={"a": b"1"}))
        assert not leadership.held
        assert await store.get("a") is None
        await store.close()

    implementation.run(body)


def test_leaders_can_be_followed(implementation: Implementation) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        followed = follow_leader(store, "cuts")
        assert await anext(followed) is None
        first = await store.elect("cuts", "one")
        assert await anext(followed) == Leader("one", first.term)
        await first.resign()
        assert await anext(followed) is None
        await store.close()
        assert [leader async for leader in followed] == []

    implementation.run(body)
