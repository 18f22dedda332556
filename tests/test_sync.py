"""The surface without await."""

import asyncio
import gc
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from tests.forked import in_a_fork

import varlog
from varlog import sync
from varlog.base.errors import ConnectionLost, InvalidArgument
from varlog.client.appender import Appender
from varlog.client.context import LogContext
from varlog.runtime.loop import loop_factory
from varlog.sync.thread import LoopThread

PATIENCE_S = 60.0
"""Longer than anything takes, however busy the machine is."""


@contextmanager
def cluster_url() -> Iterator[str]:
    """A real cluster on a loop of its own, in a thread."""
    loop = loop_factory()()
    ready: Future[str] = Future()
    over = asyncio.Event()

    async def serve() -> None:
        async with varlog.local_cluster(nodes=2) as cluster:
            ready.set_result(repr(cluster).removeprefix("<Cluster ").removesuffix(">"))
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield ready.result(PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def test_the_same_without_await() -> None:
    with cluster_url() as url, varlog.sync.connect(url) as cluster:
        log = cluster.create_log("orders", replicas=2, streams=2)
        assert cluster.log("orders").append(b"one").glsn == 1
        assert log.append_batch([b"a", b"b"], key=b"k") == varlog.Ack(2, 3, log.read(2).stream)  # type: ignore[arg-type]
        with log.producer(id="p") as producer:
            futures = [producer.send(b"%d" % number) for number in range(20)]
            batch = producer.send_batch([b"x", b"y"])
            producer.flush()
            assert [future.result(PATIENCE_S).glsn for future in futures] == list(range(4, 24))
            assert batch.result(PATIENCE_S).last == 25
        entries = list(log.subscribe(stop=26))
        assert [entry.glsn for entry in entries] == list(range(1, 26))
        assert [entry.payload for entry in entries[:3]] == [b"one", b"a", b"b"]
        assert sum(map(len, log.subscribe(wait=False).batches())) == 25
        assert log.tail() == 25
        assert log.find(0) == 1
        log.trim(3)
        with pytest.raises(varlog.Trimmed):
            log.read(3)
        assert log.capabilities
        assert log.info().trimmed == 3
        assert [info.name for info in cluster.logs()] == ["orders"]
        assert len(cluster.nodes()) == 2
        assert cluster.status().logs[0].tail == 25
        assert not cluster.drain_node(1, undo=True).draining
        assert {stream.log for stream in cluster.check_node(1).streams} == {"orders"}
        with pytest.raises(varlog.Conflict, match="node 1 cannot be removed"):
            cluster.remove_node(1)
        assert log.seal() == 26
        with pytest.raises(varlog.Sealed):
            log.append(b"z")
        cluster.remove_log("orders")
        with pytest.raises(varlog.NotFound):
            log.tail()


def test_a_subscription_follows_and_can_be_left() -> None:
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=1)
        log.append_batch([b"a", b"b", b"c"])
        subscription = log.subscribe()
        assert next(subscription).payload == b"a"
        assert next(subscription).payload == b"b"
        writer = threading.Timer(0.1, lambda: log.append(b"d"))
        writer.start()
        assert [next(subscription).payload, next(subscription).payload] == [b"c", b"d"]
        writer.join()
        subscription.close()
        for entry in log.subscribe():
            if entry.payload == b"b":
                break
        with log.subscribe(2) as bounded:
            assert next(iter(bounded)).payload == b"b"


def test_a_subscription_is_iterated_once() -> None:
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=1)
        log.append_batch([b"a", b"b", b"c", b"d"])
        subscription = log.subscribe(stop=5)
        assert next(subscription).payload == b"a"
        for entry in subscription:
            assert entry.payload == b"b"
            break
        assert [entry.payload for entry in subscription] == [b"c", b"d"]


def test_threads_share_a_subscription() -> None:
    """Each entry goes to one of them."""
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=1)
        with log.producer() as producer:
            for count in (1, 1, 2, 700, 3) * 40:
                producer.send_batch([b"x"] * count)
        tail = log.tail()
        subscription = log.subscribe(stop=tail + 11)
        batches = log.subscribe(stop=tail + 11).batches()

        def loop() -> list[int]:
            return [entry.glsn for entry in subscription]

        def step() -> list[int]:
            found: list[int] = []
            while (entry := next(subscription, None)) is not None:
                found.append(entry.glsn)
            return found

        def by_the_batch() -> list[int]:
            return [glsn for batch in batches for glsn in range(batch.first, batch.last + 1)]

        with ThreadPoolExecutor(8) as pool:
            taking = [pool.submit(each) for each in (loop, step, loop, step)]
            scanning = [pool.submit(by_the_batch) for _ in range(3)]
            for _ in range(10):
                log.append(b"x")  # while they wait
            for futures in (taking, scanning):
                found = [future.result(PATIENCE_S) for future in futures]
                assert all(each == sorted(each) for each in found)
                assert sorted(glsn for each in found for glsn in each) == list(range(1, tail + 11))


def test_an_interrupt_ends_no_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the tail, and in the very moment in which something comes."""
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=1)
        log.append_batch([b"a", b"b"])
        subscription = log.subscribe()
        batches = subscription.batches()
        assert [next(subscription).payload for _ in range(2)] == [b"a", b"b"]
        assert next(batches).first == 1
        run = LoopThread.run
        waits = threading.Event()

        def run_and_say(self: LoopThread, work: Any) -> Any:
            waits.set()
            return run(self, work)

        def interrupt(thread: int) -> None:
            waits.wait(60)
            time.sleep(0.1)
            signal.pthread_kill(thread, signal.SIGINT)

        for waiting in (subscription, subscription, batches):
            interrupting = threading.Thread(target=interrupt, args=(threading.get_ident(),))
            with monkeypatch.context() as patch:
                patch.setattr(LoopThread, "run", run_and_say)
                interrupting.start()
                with pytest.raises(KeyboardInterrupt):
                    next(waiting)
            interrupting.join()
            waits.clear()
        log.append(b"c")

        def run_in_vain(self: LoopThread, work: Any) -> Any:
            run(self, work)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(LoopThread, "run", run_in_vain)
            for waiting in (subscription, batches):
                with pytest.raises(KeyboardInterrupt):
                    next(waiting)
        log.append(b"d")
        assert [next(subscription).payload for _ in range(2)] == [b"c", b"d"]
        assert [next(batches).first for _ in range(2)] == [3, 4]


def test_a_subscription_that_has_ended_stays_so() -> None:
    with cluster_url() as url:
        with sync.connect(url) as cluster:
            log = cluster.create_log("log", replicas=1)
            log.append(b"a")
            subscription = log.subscribe(wait=False)
            assert len(list(subscription)) == 1
            log.append(b"b")
            assert next(subscription, None) is None
        assert list(subscription) == []


def test_a_subscription_is_given_up_anywhere() -> None:
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=1)
        log.append(b"x")
        at_work = log._log._context.scope
        before = len(at_work)
        subscription = log.subscribe()
        assert next(subscription).payload == b"x"
        assert len(at_work) > before
        gone = weakref.ref(subscription)
        del subscription
        assert gone() is None, "it waits for the garbage collector"
        deadline = time.monotonic() + PATIENCE_S
        while len(at_work) > before:
            assert time.monotonic() < deadline, "it is read on"
            log.tail()
        cycle: list[object] = [log.subscribe()]
        assert next(iter(cycle[0])).payload == b"x"  # type: ignore[call-overload]
        cycle.append(cycle)
        del cycle
        collected = threading.Event()

        def collect() -> None:
            gc.collect()
            collected.set()

        cluster._running.call(collect)
        assert collected.wait(PATIENCE_S)
        assert log.tail() == 1


def test_a_call_on_the_thread_of_the_connection_is_refused() -> None:
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=1)
        told: Future[str] = Future()

        def call(_: "Future[varlog.Ack]") -> None:
            with pytest.raises(InvalidArgument):
                cluster.close()
            with pytest.raises(InvalidArgument) as refused:
                log.append(b"y")
            told.set_result(str(refused.value))

        # nothing is done before the end of the block
        with log.producer(linger=PATIENCE_S, timeout=PATIENCE_S) as producer:
            producer.send(b"x").add_done_callback(call)
        assert "another thread" in told.result(PATIENCE_S)
        assert log.tail() == 1


def test_many_threads_share_one_connection() -> None:
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=2)
        acked: list[int] = []
        threads = [
            threading.Thread(target=lambda: acked.extend(log.append(b"x").glsn for _ in range(25))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(acked) == list(range(1, 201))


def test_handles_of_one_log_share_what_was_made_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made_on: list[str] = []

    class Watched(Appender):
        def __init__(self, context: LogContext) -> None:
            made_on.append(threading.current_thread().name)
            super().__init__(context)

    monkeypatch.setattr("varlog.client.cluster.Appender", Watched)
    with cluster_url() as url, sync.connect(url) as cluster:
        logs = [cluster.log("log"), cluster.journal("log"), cluster.log("log")]
        assert made_on == ["varlog"]
        assert len({id(log._log._context) for log in logs}) == 1


def test_before_and_after_the_block() -> None:
    cluster = sync.connect("varlog://127.0.0.1:1")
    with pytest.raises(varlog.Unavailable, match="no repository"):
        cluster.__enter__()
    with pytest.raises(varlog.Unavailable, match="not connected"):
        cluster.logs()
    with cluster_url() as url:
        with sync.connect(url) as cluster:
            log = cluster.create_log("log", replicas=1)
            log.append(b"x")
            subscription = log.subscribe()
            assert next(subscription).payload == b"x"
            producer = log.producer().open()
        with pytest.raises(varlog.Unavailable):
            log.append(b"y")
        with pytest.raises(varlog.Unavailable):
            producer.send(b"y")
        with pytest.raises(varlog.Unavailable):
            next(subscription)
        with pytest.raises(varlog.Unavailable):
            cluster.log("log")
        subscription.close()
        cluster.close()


def test_closing_ends_what_other_threads_wait_for() -> None:
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=1)
        ends: list[Future[None]] = [Future() for _ in range(4)]

        def ask(end: "Future[None]") -> None:
            try:
                while True:
                    log.tail()
            except BaseException as error:
                end.set_exception(error)

        for end in ends:
            threading.Thread(target=ask, args=(end,), daemon=True).start()
        log.append(b"x")
        cluster.close()
        for end in ends:
            with pytest.raises(varlog.Unavailable, match="closed"):
                end.result(PATIENCE_S)


def test_a_call_under_way_when_the_loop_is_stopped_is_of_unknown_outcome() -> None:
    thread = LoopThread()
    begun = threading.Event()

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    end: Future[None] = Future()

    def call() -> None:
        try:
            thread.run(wait_for_ever())
        except BaseException as error:
            end.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    assert begun.wait(PATIENCE_S)
    thread.stop()
    assert isinstance(end.exception(PATIENCE_S), ConnectionLost)
    with pytest.raises(varlog.Unavailable, match="closed"):
        thread.run(wait_for_ever())
    thread.stop()


def test_a_forked_process_leaves_the_connection_to_the_other() -> None:
    with cluster_url() as url, sync.connect(url) as cluster:
        log = cluster.create_log("log", replicas=1)
        log.append(b"x")
        subscription = log.subscribe()
        assert next(subscription).payload == b"x"

        def in_the_child() -> None:
            with pytest.raises(varlog.Unavailable, match="connect anew"):
                log.tail()
            subscription.close()
            cluster.close()
            with sync.connect(url) as own:
                own.log("log").append(b"y")

        assert in_a_fork(in_the_child) == ""
        assert next(subscription).payload == b"y"


def test_a_journal_without_await() -> None:
    with cluster_url() as url, varlog.sync.connect(url) as cluster, cluster.journal("wal", replicas=2) as journal:
        with journal.lead(ttl=PATIENCE_S, name="me") as leader:
            assert leader.append(b"one").glsn == 1
            assert leader.append_batch([b"two", b"three"]).last == 3
            assert leader.epoch == journal.info().chain[-1].epoch
        assert [entry.payload for entry in journal.subscribe(1, wait=False)] == [b"one", b"two", b"three"]
        with pytest.raises(varlog.Unavailable):
            leader.append(b"late")
