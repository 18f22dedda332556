"""What is SQLite's own: locks, foreign files, full and failing disks, rounds. The rest is in the conformance suite."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Coroutine
from math import inf
from pathlib import Path
from typing import Any

import pytest

from varlog.base.errors import (
    Corrupt,
    InvalidArgument,
    NoSpace,
    Overloaded,
    TooLarge,
    Unavailable,
    Unsupported,
    VarlogError,
)
from varlog.metadata import database as database_module
from varlog.metadata import sqlite as sqlite_module
from varlog.metadata import watch as watch_module
from varlog.metadata.database import Database, prefix_end
from varlog.metadata.notes import Notes
from varlog.metadata.opening import APPLICATION_ID, LOG_BYTES
from varlog.metadata.rows import translate
from varlog.metadata.sqlite import SqliteStore
from varlog.ports.disk import DiskFailed
from varlog.ports.metadata import Transaction


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def put(key: str, value: bytes = b"x") -> Transaction:
    return Transaction(put={key: value})


# ---------------------------------------------------------------- what it may be pointed at


def test_two_stores_on_one_folder(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        with pytest.raises(Unavailable, match=f"{tmp_path} is in use by process {os.getpid()}"):
            await SqliteStore.open(tmp_path)
        await store.close()
        await (await SqliteStore.open(tmp_path)).close()

    run(story())


@pytest.mark.parametrize("content", [b"not a database, but long enough to have had a header of one" * 100, b"x"])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(content)

    async def story() -> None:
        with pytest.raises(Corrupt, match=r"metadata\.db"):
            await SqliteStore.open(tmp_path)

    run(story())
    assert path.read_bytes() == content


def test_a_file_lost_beside_its_log(tmp_path: Path) -> None:
    database = Database(tmp_path)
    log = (tmp_path / "metadata.db-wal").read_bytes()
    database.close()
    (tmp_path / "metadata.db-wal").write_bytes(log)
    (tmp_path / "metadata.db").unlink()
    with pytest.raises(Corrupt, match="missing or empty"):
        Database(tmp_path)
    assert (tmp_path / "metadata.db-wal").read_bytes() == log


def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.commit()
    other.close()
    before = path.read_bytes()

    async def story() -> None:
        with pytest.raises(Corrupt, match="another program"):
            await SqliteStore.open(tmp_path)

    run(story())
    assert path.read_bytes() == before


def test_a_store_of_a_later_release(tmp_path: Path) -> None:
    Database(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "metadata.db")
    assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(Unsupported, match="version 9"):
        Database(tmp_path)


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    async def story() -> None:
        for folder in (tmp_path / "file", tmp_path / "file" / "deeper", tmp_path / "not" / "there"):
            with pytest.raises(InvalidArgument, match=str(folder)):
                await SqliteStore.open(folder)
        for folder in (Path("/proc/varlog"), Path("/proc")):
            with pytest.raises(Unavailable, match=str(folder)):
                await SqliteStore.open(folder)

    run(story())


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "identity").write_bytes(b"of a node")
    with pytest.raises(InvalidArgument, match="neither empty nor the folder of a repository: it holds 'identity'"):
        Database(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["identity", "lock"]


# ---------------------------------------------------------------- disks that fill up and fail


def fill(database: Database) -> None:
    """From now on the file may not grow."""
    pages = database._connection.execute("PRAGMA page_count").fetchone()[0]
    free = database._connection.execute("PRAGMA freelist_count").fetchone()[0]
    assert pages > free
    database._connection.execute(f"PRAGMA max_page_count = {pages}")


def make_space(database: Database) -> None:
    database._connection.execute("PRAGMA max_page_count = 1000000000")


async def on_thread(store: SqliteStore, work: Any) -> None:
    """Run something on the database's own thread."""
    await store._read(work)


def test_a_full_disk_refuses_writes_and_serves_reads(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        assert await store.commit(put("a", b"kept"))
        await on_thread(store, fill)
        watch = store.watch("")
        huge = put("b", b"v" * (8 << 20))
        outcomes = await asyncio.gather(
            store.commit(put("c")), store.commit(huge), store.get("a"), return_exceptions=True
        )
        assert isinstance(outcomes[1], NoSpace)
        found = outcomes[2]
        assert not isinstance(found, BaseException)
        assert (await store.get("b")) is None
        assert (await store.get("a")) == found
        await on_thread(store, make_space)
        assert await store.commit(put("d", b"goes on"))
        change = await anext(watch)
        while change.key != "d":
            assert change.key == "c"  # it may have been in a round of its own
            change = await anext(watch)
        await store.close()

    run(story())


def test_a_refused_round_does_not_use_up_versions(tmp_path: Path) -> None:
    database = Database(tmp_path)
    fill(database)
    before = database.revision
    with pytest.raises(NoSpace):
        database.apply(put("b", b"v" * (8 << 20)))
    database.roll_back()
    assert database.revision == before
    database.close()


@pytest.mark.parametrize(("what", "method", "on_the_spot"), [(Notes, "add", 1024), (Database, "commit", -1)])
def test_a_commit_that_fails_otherwise_stops_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: type, method: str, on_the_spot: int
) -> None:
    def fail(*_: object) -> None:
        raise DiskFailed("sync failed")

    monkeypatch.setattr(sqlite_module, "ON_THE_SPOT_BYTES", on_the_spot)
    monkeypatch.setattr("varlog.runtime.quick.SLOW_SECONDS", inf)  # whatever the disk of this machine is

    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        assert await store.commit(put("a"))
        watch = store.watch("")
        while not store._resting:  # only then something is done on the spot
            await asyncio.sleep(0.001)
        with monkeypatch.context() as patch:
            patch.setattr(what, method, fail)
            with pytest.raises(DiskFailed, match="sync failed"):
                await store.commit(put("b"))
        for _ in range(2):
            with pytest.raises(DiskFailed, match="has stopped: sync failed"):
                await store.commit(put("c"))
            with pytest.raises(DiskFailed, match="has stopped: sync failed"):
                await store.get("a")
        await store.close()
        assert [change async for change in watch] == []

    run(story())


def test_a_checkpoint_that_fails_stops_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Database) -> None:
        raise DiskFailed("sync failed")

    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        monkeypatch.setattr(Database, "checkpoint_if_due", fail)
        monkeypatch.setattr(database_module, "LOG_PAGES", 1)
        monkeypatch.setattr(sqlite_module, "ON_THE_SPOT_BYTES", -1)
        assert await store.commit(put("a"))  # this one is durable in the log
        await asyncio.gather(store.commit(put("b")), return_exceptions=True)  # may share the round that ends with it
        with pytest.raises(DiskFailed, match="has stopped"):
            await store.commit(put("c"))
        await store.close()

    run(story())


def test_an_error_of_the_system_is_translated(tmp_path: Path) -> None:
    """A real one: the process may not write files beyond a size, so a write fails half way."""
    script = textwrap.dedent(
        """
        import asyncio, resource, signal, sys
        from varlog.base.errors import VarlogError
        from varlog.metadata.sqlite import SqliteStore
        from varlog.ports.metadata import Transaction

        async def main():
            store = await SqliteStore.open(sys.argv[1])
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, resource.RLIM_INFINITY))
            for n in range(3):
                try:
                    await store.commit(Transaction(put={"a": b"v" * (6 << 20)}))
                except VarlogError as error:
                    print(type(error).__name__)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            await store.close()

        asyncio.run(main())
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert set(done.stdout.split()) <= {"DiskFailed", "NoSpace"}
    assert len(done.stdout.split()) == 3


# ---------------------------------------------------------------- crashes


def test_every_acknowledged_commit_survives_kill(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import asyncio, sys
        from varlog.metadata.sqlite import SqliteStore
        from varlog.ports.metadata import Transaction

        async def main():
            store = await SqliteStore.open(sys.argv[1])
            n = 0
            while True:
                await store.commit(Transaction(put={f"k{n:06}": b"v" * 100}, delete=[f"k{n - 50:06}"]))
                print(n, flush=True)
                n += 1

        asyncio.run(main())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = -1
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged >= 150:
            process.send_signal(signal.SIGKILL)
            break
    rest = [int(line) for line in process.stdout.read().split("\n")[:-1]]
    process.wait()
    process.stdout.close()
    acknowledged = max([acknowledged, *rest])

    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        found = [int(key[1:]) for key, _ in await store.scan("k")]
        assert found[-1] in (acknowledged, acknowledged + 1)
        assert found == list(range(found[-1] - 49, found[-1] + 1))
        await store.close()

    run(story())


# ---------------------------------------------------------------- rounds, limits, ends


def test_commits_that_wait_together_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[int] = []
    original = Database.commit

    def counting(self: Database) -> None:
        commits.append(1)
        original(self)

    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        monkeypatch.setattr(Database, "commit", counting)
        held = threading.Event()
        blocked = asyncio.ensure_future(on_thread(store, lambda _: held.wait(60)))
        await asyncio.sleep(0)
        chain = [
            store.commit(Transaction(expect={"n": 0 if n == 0 else n}, put={"n": b"%d" % n}))
            for n in range(100)  # each expects what the one before makes: judged in order, inside one sync
        ]
        gathered = asyncio.gather(*chain)
        await asyncio.sleep(0)
        held.set()
        await blocked
        assert all(await gathered)
        assert len(commits) <= 3
        await store.close()

    run(story())


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        with pytest.raises(TooLarge):
            await store.commit(put("a", bytes(sqlite_module.TRANSACTION_BYTES + 1)))
        monkeypatch.setattr(sqlite_module, "WAITING_JOBS", 5)
        outcomes = await asyncio.gather(*(store.get("a") for _ in range(8)), return_exceptions=True)
        assert outcomes[:5] == [None] * 5
        assert [type(outcome) for outcome in outcomes[5:]] == [Overloaded] * 3
        assert await store.get("a") is None
        await store.close()

    run(story())


def test_a_watcher_that_falls_behind_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "WATCH_CHANGES", 3)

    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        slow, quick = store.watch("a"), store.watch("a")
        for n in range(5):
            assert await store.commit(put(f"a{n}"))
            assert (await anext(quick)).key == f"a{n}"
        with pytest.raises(Overloaded, match="behind"):
            await anext(slow)
        await store.close()

    run(story())


def test_dropped_and_closed_watches_cost_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        for _ in range(10):
            store.watch("a")
        assert len(store._watchers._watches) == 0
        watch = store.watch("a")
        await watch.aclose()
        assert await store.commit(put("a"))
        assert [change async for change in watch] == []
        await store.close()

    run(story())


def test_close_finishes_what_was_asked_for_and_refuses_the_rest(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        watch = store.watch("")
        commit = asyncio.ensure_future(store.commit(put("a")))
        await asyncio.sleep(0)
        await asyncio.gather(store.close(), store.close())
        assert await commit
        assert [change.key async for change in watch] == ["a"]
        for call in (store.get("a"), store.scan(""), store.commit(put("b"))):
            with pytest.raises(Unavailable, match="closed"):
                await call
        assert [change async for change in store.watch("")] == []

    run(story())


def test_a_cancelled_commit_may_happen_and_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "ON_THE_SPOT_BYTES", -1)

    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        commit = asyncio.ensure_future(store.commit(put("a")))
        await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert await store.get("a") is not None
        await store.close()

    run(story())


def test_the_log_is_laid_out_and_used_over_and_over(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        log = tmp_path / "metadata.db-wal"
        size = log.stat().st_size
        assert size == LOG_BYTES
        for n in range(600):
            await store.commit(Transaction(put={f"cut/{n:04}": b"v" * 200, "base": b"x"}))
        assert log.stat().st_size == size
        await store.close()

    run(story())


def test_scans_at_the_edges_of_unicode(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)
        names = ["a/", "a/1", "a/\U0010ffff", "a0", "\ud7ff", "\ue000", "\U0010ffff1"]
        assert await store.commit(Transaction(put=dict.fromkeys(reversed(names), b"")))
        found = {prefix: [key for key, _ in await store.scan(prefix)] for prefix in ("", "a/", "\ud7ff", "\U0010ffff")}
        assert found == {"": names, "a/": names[:3], "\ud7ff": ["\ud7ff"], "\U0010ffff": ["\U0010ffff1"]}
        await store.close()

    run(story())


def test_versions_grow_across_deletions_and_restarts(tmp_path: Path) -> None:
    async def story() -> None:
        versions = []
        for _ in range(3):
            store = await SqliteStore.open(tmp_path)
            assert await store.commit(put("a"))
            found = await store.get("a")
            assert found is not None
            versions.append(found.version)
            assert await store.commit(Transaction(delete_ranges=[("", "z")]))
            await store.close()
        assert versions == sorted(set(versions))

    run(story())


def test_a_change_not_in_a_read_comes_through_the_watch_begun_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        store = await SqliteStore.open(tmp_path)

        async def write() -> None:
            for n in range(50):
                assert await store.commit(put("a", b"%d" % n))

        writing = asyncio.ensure_future(write())
        await store.get("a")
        watch = store.watch("a")
        found = await store.get("a")
        last = b"-1" if found is None else found.value
        await writing
        while last != b"49":
            change = await anext(watch)
            assert change.value is not None
            last = change.value
        await store.close()

    run(story())


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("", None), ("a", "b"), ("a/", "a0"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("\ud7ff", "\ue000")],
)
def test_prefix_end(prefix: str, end: str | None) -> None:
    assert prefix_end(prefix) == end


def test_errors_are_ours() -> None:
    for error in (sqlite3.OperationalError("disk I/O error"), sqlite3.DatabaseError("?")):
        assert isinstance(translate(error, Path("x")), VarlogError)
