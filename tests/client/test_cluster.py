"""Connecting, and what the repository is asked."""

import asyncio
from typing import Any

import pytest
from tests.client.scripted import PATIENCE_S, run, scripted
from tests.client.test_appends import until

from varlog import connect
from varlog.base.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    Timeout,
    TooLarge,
    Unavailable,
)
from varlog.client.address import parse_url
from varlog.transport.peer import Request
from varlog.wire.methods import Method
from varlog.wire.proto import varlog_pb2 as pb


def test_urls() -> None:
    assert parse_url("varlog://127.0.0.1:7700") == ["127.0.0.1:7700"]
    assert parse_url("varlog://a:1, b-c.d:65535,[::1]:3,a:1/") == ["a:1", "b-c.d:65535", "[::1]:3"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:7700",
        "http://127.0.0.1:7700",
        "varlog://",
        "varlog://host",
        "varlog://:7700",
        "varlog://host:",
        "varlog://host:0",
        "varlog://host:65536",
        "varlog://host:x",
        "varlog://a:1,,b:2",
        "varlog://a:1/path",
        "varlog://user@a:1",
        None,
        7,
    ],
)
def test_wrong_urls_say_what_is_wrong(url: Any) -> None:
    with pytest.raises(InvalidArgument):
        connect(url)


def test_too_many_addresses() -> None:
    with pytest.raises(InvalidArgument, match="up to 64"):
        connect("varlog://" + ",".join(f"h{n}:1" for n in range(65)))


def test_nobody_there_is_said_at_once() -> None:
    async def story() -> None:
        with pytest.raises(Unavailable, match=r"no repository answers at 127\.0\.0\.1:1: .*; 127\.0\.0\.1:2"):
            await connect("varlog://127.0.0.1:1,127.0.0.1:2").__aenter__()

    run(story())


def test_a_dead_address_is_passed_over_and_one_that_dies_is_left() -> None:
    async def story() -> None:
        async with (
            scripted() as (one, _),
            scripted() as (two, _),
            connect(f"varlog://127.0.0.1:1,{one.address},{two.address}") as client,
        ):
            log = client.log("log")
            assert await log.tail() == 0
            assert one.calls
            assert one.repository is not None
            await one.repository.close()
            assert await log.tail() == 0
            assert Method.TAIL in two.calls

    run(story())


def test_a_repository_that_restarts_is_waited_for() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"x")
            assert cluster.repository is not None
            await cluster.repository.close()
            await log.append(b"y")  # appends need no repository
            asking = asyncio.ensure_future(log.tail())
            await asyncio.sleep(0.1)
            await cluster.start_repository(cluster.address)
            assert await asking == 2
            with pytest.raises(NotFound):
                await client.log("other").tail()

    run(story())


def test_a_silent_repository_is_a_timeout_and_for_changes_an_unknown_outcome() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.info()

            def silent(method: Method, _: Request) -> bool:
                return method is not Method.WATCH_LOG

            cluster.on_call = silent
            with pytest.raises(Timeout):
                await log.tail(timeout=0.3)
            with pytest.raises(OutcomeUnknown):
                await log.seal(timeout=0.3)
            with pytest.raises(OutcomeUnknown):
                await client.create_log("log", timeout=0.3)
            assert cluster.repository is not None
            await cluster.repository.close()
            with pytest.raises(Unavailable):
                await log.tail(timeout=0.3)

    run(story())


def test_a_log_is_looked_up_once_and_kept_fresh() -> None:
    async def story() -> None:
        async with scripted(nodes=2) as (cluster, client):
            log = client.log("log")
            assert cluster.calls == []
            with pytest.raises(Unavailable, match="looked up"):
                _ = log.capabilities
            await asyncio.gather(*(log.append(b"x") for _ in range(10)))
            assert cluster.calls.count(Method.GET_LOG) == 1
            assert log.capabilities == {"atomic_batch", "many_streams", "many_writers"}
            # the stream moves: a change that the watch brings
            cluster.stream(1).members[:] = [2]
            await cluster.nodes[0].stop()
            cluster.change()
            routes = log._context.routes
            await until(lambda: routes.streams[0].members == (2,))
            await log.append(b"y")
            assert len(cluster.nodes[1].appends) == 1
            assert client.log("log")._context is log._context

    run(story())


def test_a_closed_connection_says_so_to_all_who_still_ask() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            used, unused, under_way = (client.log(name) for name in ("log", "unused", "unanswered"))
            await used.append(b"x")
            cluster.on_call = lambda method, _: method == Method.GET_LOG
            waiting = asyncio.ensure_future(under_way.tail())
            await until(lambda: cluster.calls.count(Method.GET_LOG) == 2)
            await client.close()
            for asked in (waiting, unused.tail(), used.tail(), unused.producer().open(), unused.append(b"y")):
                with pytest.raises(Unavailable, match="closed"):
                    await asyncio.wait_for(asked, PATIENCE_S)

    run(story())


def test_a_node_that_moved_is_found() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"x")
            await cluster.nodes[0].stop()
            await cluster.nodes[0].start()  # at another port, and nobody tells
            assert (await log.append(b"y")).first == 2

    run(story())


def test_a_log_made_anew_under_the_same_name_is_another() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.append(b"x")
            assert await log.tail() == 1
            cluster.info.id = 8  # removed, made anew, and the watch has not told yet
            assert await log.tail() == 1
            assert (await log.info()).id == 8
            await log.append(b"y")
            assert [route.log for route in log._appender._writers] == [8]

    run(story())


def test_creating_again_after_a_broken_connection_finds_ones_own() -> None:
    async def story() -> None:
        async with scripted(nodes=3, streams=2, replicas=3) as (cluster, client):
            asked = 0

            def break_once(method: Method, request: Request) -> bool:
                nonlocal asked
                if method is Method.CREATE_LOG:
                    asked += 1
                    if asked == 1:
                        request.peer.close()
                    else:
                        request.fail(AlreadyExists("there is one"))
                    return True
                return False

            cluster.on_call = break_once
            log = await client.create_log("log", replicas=3, streams=2)
            assert (asked, log.name) == (2, "log")
            asked = 0
            with pytest.raises(AlreadyExists):
                await client.create_log("log", replicas=3, streams=1)
            asked = 1
            with pytest.raises(AlreadyExists):
                await client.create_log("log", replicas=3, streams=2)

    run(story())


def test_removing_again_after_a_broken_connection() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            asked = 0

            def break_once(method: Method, request: Request) -> bool:
                nonlocal asked
                asked += method is Method.REMOVE_LOG
                if asked == 1:
                    request.peer.close()
                elif method is Method.REMOVE_LOG:
                    request.fail(NotFound("no such log"))
                return asked > 0

            cluster.on_call = break_once
            await client.remove_log("log")
            with pytest.raises(NotFound):
                await client.remove_log("log")

    run(story())


def test_a_repository_that_declines_is_believed_when_it_is_the_only_one() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):

            def decline(method: Method, request: Request) -> bool:
                if method is Method.CREATE_LOG:
                    request.fail(Unavailable("too few nodes"))
                return method is Method.CREATE_LOG

            cluster.on_call = decline
            with pytest.raises(Unavailable, match="too few nodes"):
                await client.create_log("log")
            assert cluster.calls.count(Method.CREATE_LOG) == 1

    run(story())


def test_names_and_numbers_are_judged_here() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            unhappy: list[dict[str, Any]] = [
                {"name": "no spaces"},
                {"name": ""},
                {"name": "ok", "replicas": 0},
                {"name": "ok", "streams": -1},
                {"name": "ok", "streams": True},
                {"name": "ok", "replicas": "3"},
            ]
            for arguments in unhappy:
                with pytest.raises(InvalidArgument):
                    await client.create_log(**arguments)
            with pytest.raises(TooLarge):
                client.log("x" * 129)
            with pytest.raises(InvalidArgument, match="timeout"):
                await client.log("log").tail(timeout=0)
            assert cluster.calls == []
            for timeout in (-1, "3", None):
                with pytest.raises(InvalidArgument, match="timeout"):
                    connect("varlog://a:1", timeout=timeout)  # type: ignore[arg-type]
            for number in ("3", True, float("nan")):
                with pytest.raises(InvalidArgument, match="timeout"):
                    await client.logs(timeout=number)  # type: ignore[arg-type]
                with pytest.raises(InvalidArgument, match="timeout"):
                    await client.log("log").append(b"x", timeout=number)  # type: ignore[arg-type]
                with pytest.raises(InvalidArgument, match="patience"):
                    client.log("log").subscribe(patience=number)  # type: ignore[arg-type]
            with pytest.raises(Unavailable, match="async with"):
                connect("varlog://a:1").log("log")

    run(story())


def test_descriptions() -> None:
    async def story() -> None:
        async with scripted(nodes=2, streams=2) as (_, client):
            await client.log("log").append_batch([b"a", b"b"], stream=2)
            info = await client.log("log").info()
            assert (info.name, info.ordering, info.streams, info.sealed) == ("log", "cut", 2, False)
            assert [stream.members for stream in info.chain[0].streams] == [(1,), (2,)]
            status = await client.status()
            assert status.cluster_id == "scripted"
            assert [stream.committed for stream in status.logs[0].streams] == [0, 2]
            await client.log("log").seal()
            sealed = await client.log("log").info()
            assert (sealed.sealed, sealed.chain[0].state, sealed.chain[0].end) == (True, "sealed", 3)

    run(story())


def test_watch_is_taken_up_again() -> None:
    async def story() -> None:
        async with scripted() as (cluster, client):
            log = client.log("log")
            await log.info()
            routes = log._context.routes
            for version in (5, 9):
                assert cluster.repository is not None
                for peer in list(cluster.repository.peers):
                    peer.close()
                cluster.info.version = version
                await until(lambda version=version: routes.info is not None and routes.info.version == version)  # type: ignore[misc]
            assert isinstance(routes.info, pb.LogInfo)

    run(story())
