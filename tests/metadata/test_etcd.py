"""What is etcd's own: settings, limits, pages, answers that got lost. On one real etcd.

What every store must do is in the conformance suite; dying members and watches are in files of their own.
"""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.metadata.etcd_stories import PATIENCE_S, configured, hurried, opened, put, run, until
from tools.etcd import Ensemble

from varlog.base.errors import (
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
    VarlogError,
    WrongCluster,
)
from varlog.metadata.etcd import EtcdConfig, EtcdStore, connection, leases, reads, store
from varlog.metadata.etcd.connection import COMPACT, TXN, Connection
from varlog.ports.metadata import Change, Transaction
from varlog.wire.proto import etcd_pb2 as pb

TLS = Path(__file__).parents[1] / "transport" / "tls"

# ---------------------------------------------------------------- what it is told


@pytest.mark.parametrize(
    "settings",
    [
        {"endpoints": ()},
        {"endpoints": ("localhost",)},
        {"endpoints": ("http://localhost:2379",)},
        {"endpoints": ("localhost:2379", " localhost:2380")},
        {"endpoints": ("localhost:0",)},
        {"endpoints": ("localhost:65536",)},
        {"endpoints": ("localhost:\u0662",)},
        {"endpoints": ("::1:2379",)},
        {"endpoints": ("[]:2379",)},
        {"prefix": ""},
        {"prefix": "a\n"},
        {"prefix": "ä" * 33},
        {"certificate": "c", "key": "k"},
        {"ca": "a", "key": "k"},
        {"attempt_s": 0.0},
        {"connect_s": 9.0},
        {"lease_s": 0.1},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        EtcdConfig(**{"endpoints": ("127.0.0.1:2379",), **settings})


def test_endpoints() -> None:
    EtcdConfig(("localhost:2379", "10.0.0.1:1", "[::1]:65535", "etcd-0.etcd:2379"))


def test_a_file_that_is_not_there() -> None:
    async def story() -> None:
        with pytest.raises(InvalidArgument, match="nowhere"):
            await EtcdStore.open(EtcdConfig(("127.0.0.1:1",), ca="/nowhere/ca.pem"))

    run(story())


@pytest.mark.parametrize(
    ("ca", "certificate", "key", "named"),
    [
        ("empty", "", "", "empty"),
        ("client.key", "", "", "client.key"),
        ("authority.pem", "client.pem", "server.key", "server.key"),
        ("authority.pem", "empty", "client.key", "empty"),
    ],
)
def test_files_that_are_something_else(ca: str, certificate: str, key: str, named: str, tmp_path: Path) -> None:
    for path in (*TLS.iterdir(), tmp_path / "empty"):
        (tmp_path / path.name).write_bytes(path.read_bytes() if path.exists() else b"")
    ca, certificate, key = (name and str(tmp_path / name) for name in (ca, certificate, key))

    async def story() -> None:
        with pytest.raises(InvalidArgument, match=named):
            await EtcdStore.open(EtcdConfig(("127.0.0.1:1",), ca=ca, certificate=certificate, key=key))

    run(story())


def test_nobody_is_there() -> None:
    async def story() -> None:
        with pytest.raises(Unavailable, match=r"no connection .* refused"):
            await EtcdStore.open(EtcdConfig(("127.0.0.1:1",), timeout_s=1.0, connect_s=0.5, attempt_s=0.5))

    run(story())


@pytest.mark.parametrize("text", ["3.5.1", "3.5.0", "3.3.27"])
def test_an_etcd_not_to_be_trusted(text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        store._check_version(text)


@pytest.mark.parametrize("text", ["3.4.23", "3.5.3", "3.6.0-rc.1", "3.10.0"])
def test_an_etcd_to_be_trusted(text: str) -> None:
    store._check_version(text)


def test_endpoints_that_are_dead_or_deaf_are_passed_over(etcd: Ensemble) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections, and never answers
            port = deaf.getsockname()[1]
            endpoints = ("127.0.0.1:1", f"127.0.0.1:{port}", *etcd.endpoints)
            config = EtcdConfig(endpoints, prefix="passed-over/", connect_s=0.5, timeout_s=PATIENCE_S)
            async with opened(config) as shared:
                assert await shared.commit(put("a"))

    run(story())


# ---------------------------------------------------------------- limits


def test_what_etcd_would_not_take_is_refused(etcd: Ensemble) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            with pytest.raises(TooLarge):
                await shared.commit(put("a", bytes(2 << 20)))
            with pytest.raises(TooLarge):
                await shared.commit(Transaction(expect={f"k{number}": 0 for number in range(128)}))
            with pytest.raises(TooLarge):
                await shared.commit(Transaction(delete=[f"k{number}" for number in range(5000)]))
            assert await shared.scan("") == []
            assert await shared.commit(put("a", bytes((3 << 19) - 8192)))
            assert await shared.commit(Transaction(expect={f"k{number}": 0 for number in range(127)}, delete=["a"]))
            many = {f"k{number}": b"" for number in range(3900)}
            assert await shared.commit(Transaction(expect={f"x{number}": 0 for number in range(60)}, put=many))
            assert len(await shared.scan("k")) == 3900
            assert await shared.commit(Transaction(delete_ranges=[("k", "l"), ("z", "a")]))
            assert await shared.scan("") == []

    run(story())


def test_a_key_that_is_no_text(etcd: Ensemble) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            with pytest.raises(InvalidArgument):
                await shared.get("\ud800")
            with pytest.raises(InvalidArgument):
                await shared.commit(Transaction(delete_ranges=[("a", "\ud800")]))

    run(story())


def test_an_etcd_that_lost_its_past_is_not_believed(etcd: Ensemble) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            assert await shared.commit(put("a"))
            present, shared._connection.revision = shared._connection.revision, 1 << 40
            with pytest.raises(WrongCluster, match="went back"):
                await shared.get("a")
            shared._connection.revision = present

    run(story())


# ---------------------------------------------------------------- scans


def test_a_scan_of_many_pages_is_of_one_moment(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PAGE_KEYS", 10)

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            going = True

            async def write() -> None:
                number = 0
                while going:
                    number += 1
                    await shared.commit(Transaction(put={f"k/{key:03}": str(number).encode() for key in range(120)}))

            writing = asyncio.ensure_future(write())
            await until(lambda: shared._connection.revision > 5)
            for _ in range(10):
                found = await shared.scan("k/")
                assert [key for key, _ in found] == [f"k/{key:03}" for key in range(len(found))]
                assert len({versioned.value for _, versioned in found}) <= 1
            going = False
            await writing
            assert len(await shared.scan("k/")) == 120

    run(story())


def test_pages_too_large_to_be_taken_are_asked_for_in_smaller_ones(
    etcd: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tuple((name, 1 << 20 if name.endswith("receive_message_length") else it) for name, it in connection.OPTIONS)
    monkeypatch.setattr(connection, "OPTIONS", small)

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            for number in range(8):
                assert await shared.commit(put(f"k/{number}", bytes([number]) * 400_000))
            assert [len(versioned.value) for _, versioned in await shared.scan("k/")] == [400_000] * 8

    run(story())


def test_pages_are_as_long_as_their_keys_are_small(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """etcd would make one answer of all that is asked for before it sends any of it, and be too late with it."""
    monkeypatch.setattr(reads, "FIRST_KEYS", 2)
    monkeypatch.setattr(reads, "PAGE_BYTES", 1 << 20)

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            assert await shared.commit(Transaction(put={f"a/{number:03}": b"" for number in range(300)}))
            for number in range(12):
                assert await shared.commit(put(f"b/{number:02}", bytes(300_000)))
            ask = shared._connection.ask
            pages: list[int] = []

            async def asking(method: Any, request: Any) -> Any:
                answer = await ask(method, request)
                pages.append(len(answer.kvs))
                return answer

            with monkeypatch.context() as patched:
                patched.setattr(shared._connection, "ask", asking)
                assert len(await shared.scan("a/")) == 300
                assert pages == [2, 4, 8, 16, 32, 64, 128, 46]
                pages.clear()
                assert len(await shared.scan("b/")) == 12
                assert pages == [2, 3, 3, 3, 1]

    run(story())


def test_a_scan_begins_anew_when_its_revision_is_compacted(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PAGE_KEYS", 4)

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            assert await shared.commit(Transaction(put={f"k/{number}": b"old" for number in range(8)}))
            ask = shared._connection.ask
            asked = 0

            async def asking(method: Any, request: Any) -> Any:
                nonlocal asked
                asked += 1
                if asked == 2:
                    assert await shared.commit(Transaction(put={f"k/{number}": b"new" for number in range(8)}))
                    await ask(COMPACT, pb.CompactionRequest(revision=shared._connection.revision))
                return await ask(method, request)

            monkeypatch.setattr(shared._connection, "ask", asking)
            assert {versioned.value for _, versioned in await shared.scan("k/")} == {b"new"}
            assert asked == 4

    run(story())


# ---------------------------------------------------------------- answers that got lost


class Lossy:
    """Stands before a connection and loses what it is told to lose."""

    def __init__(self, shared: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._once = shared._connection.once
        self.plan: list[str] = []
        self.delay = 0.0
        """How long it takes until something is found lost."""
        self.kept: list[pb.TxnRequest] = []
        monkeypatch.setattr(shared._connection, "once", self.once)

    async def once(self, method: Any, request: Any) -> Any:
        fate = self.plan.pop(0) if self.plan and method is TXN else "well"
        if fate == "well":
            return await self._once(method, request)
        if fate == "answer lost":
            await self._once(method, request)
        if fate == "late":
            self.kept.append(request)
        await asyncio.sleep(3600 if fate == "hangs" else self.delay)
        raise ConnectionLost(fate)

    async def arrive_late(self) -> list[bool]:
        """What was kept on its way reaches etcd; whether it was applied."""
        return [(await self._once(TXN, request)).succeeded for request in self.kept]


@pytest.mark.parametrize("plan", [["answer lost"], ["request lost"], ["late"], ["request lost", "answer lost", "late"]])
def test_a_commit_learns_its_outcome(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch, plan: list[str]) -> None:
    """Applied once, however often something got lost, of the transaction and of the questions about it."""

    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            changes = shared.watch("n/")
            lossy = Lossy(shared, monkeypatch)
            lossy.plan = list(plan)
            assert await shared.commit(Transaction(expect={"n/1": 0}, put={"n/1": b"1"}))
            assert not await shared.commit(Transaction(expect={"n/1": 0}, put={"n/1": b"2"}))
            assert await shared.commit(put("n/2"))
            assert not any(await lossy.arrive_late())
            assert await shared.commit(put("n/3"))
            told = [await anext(changes) for _ in range(3)]
            assert told == [Change("n/1", b"1"), Change("n/2", b"x"), Change("n/3", b"x")]

    run(story())


def test_what_is_told_to_be_refused_is_not_applied_later(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            lossy = Lossy(shared, monkeypatch)
            lossy.plan = ["late"]
            lossy.delay = 0.3
            with hurried(shared, monkeypatch, timeout_s=0.2), pytest.raises(Unavailable) as refused:
                await shared.commit(put("a"))
            assert refused.value.outcome_known
            assert await lossy.arrive_late() == [False]
            assert await shared.get("a") is None

    run(story())


def test_what_may_have_been_applied_is_not_known_while_etcd_is_away(
    etcd: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            lossy = Lossy(shared, monkeypatch)
            lossy.plan = ["answer lost", *["request lost"] * 1000]
            with hurried(shared, monkeypatch, timeout_s=0.5):
                with pytest.raises(OutcomeUnknown):
                    await shared.commit(put("a", b"1"))
                with pytest.raises(Unavailable) as refused:  # this one was never sent
                    await shared.commit(put("a", b"2"))
            assert refused.value.outcome_known
            lossy.plan = []
            found = await shared.get("a")
            assert found is not None
            assert found.value == b"1"
            assert await shared.commit(put("a", b"3"))

    run(story())


def test_a_commit_that_is_cancelled_does_not_disturb_the_next(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            lossy = Lossy(shared, monkeypatch)
            lossy.plan = ["hangs"]
            hanging = asyncio.ensure_future(shared.commit(put("a", b"1")))
            await until(lambda: not lossy.plan)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            for number in range(5):
                assert await shared.commit(put("a", str(number).encode()))

    run(story())


def test_a_session_that_etcd_forgot(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with opened(configured(etcd)) as shared:
            assert await shared.commit(put("a", b"1"))
            session = await shared._markers.open()
            await leases.revoke(shared._connection, session.lease)
            assert await shared.commit(put("a", b"2"))
            assert not await shared.commit(Transaction(expect={"a": 0}, put={"a": b"3"}))
            again = await shared._markers.open()
            assert again is not session
            # Forgotten between a transaction and the question about it: then nobody knows.
            lossy = Lossy(shared, monkeypatch)
            lossy.plan = ["answer lost"]
            settle = shared._markers.settle

            async def too_late(slot: Any) -> int:
                await leases.revoke(shared._connection, again.lease)
                return await settle(slot)

            with monkeypatch.context() as patched:
                patched.setattr(shared._markers, "settle", too_late)
                with pytest.raises(OutcomeUnknown):
                    await shared.commit(put("a", b"4"))
            assert await shared.commit(put("a", b"5"))

    run(story())


# ---------------------------------------------------------------- what people are told


def test_people_are_told_that_etcd_is_away_and_that_it_is_back(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        told: list[str] = []
        async with opened(configured(etcd, timeout_s=0.2, attempt_s=0.2, connect_s=0.2), told.append) as shared:
            lossy = Lossy(shared, monkeypatch)
            lossy.plan = ["request lost"] * 1000
            for _ in range(3):
                with pytest.raises(VarlogError):
                    await shared.commit(put("a"))
            assert len(told) == 1
            assert "request lost" in told[0]
            with pytest.raises(InvalidArgument):
                await shared.get("\ud800")
            with pytest.raises(TooLarge):
                await shared.commit(put("a", bytes(2 << 20)))
            assert len(told) == 1
            lossy.plan = []
            assert await shared.get("a") is None
            assert told[1:] == ["etcd can be used again"]

    run(story())


def test_a_session_is_kept_whatever_a_renewal_meets(etcd: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that is another etcd for a while, or a right that is missing, is no reason to lose it for good."""
    monkeypatch.setattr(store, "SESSION_RENEWAL_S", 0.01)

    async def story() -> None:
        told: list[str] = []
        async with opened(configured(etcd), told.append) as shared:
            renewals = 0

            async def renew() -> None:
                nonlocal renewals
                renewals += 1
                raise WrongCluster("another etcd") if renewals < 5 else Unauthorized("not now")

            monkeypatch.setattr(shared._markers, "renew", renew)
            await until(lambda: renewals >= 10)
            assert told == ["another etcd", "not now"]

    run(story())


def test_a_store_leaves_nothing_behind_but_its_data(etcd: Ensemble) -> None:
    async def story() -> None:
        config = configured(etcd)
        async with opened(config) as shared:
            await asyncio.gather(*(shared.commit(put(f"k/{number % 3}")) for number in range(500)))
        plain = Connection(config)
        prefix = config.prefix.encode()
        found, _ = await reads.read_range(plain, prefix, prefix + b"\xff")
        assert [each.key.removeprefix(prefix) for each in found] == [b"d/k/0", b"d/k/1", b"d/k/2"]
        await plain.close()

    run(story())
