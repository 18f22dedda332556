"""Whose turn it is to change a log: `changes`, and what is counted of changes that are under way: `coming`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from tests.servers import run

from varlog.base.ids import LogId, NodeId, StreamId
from varlog.ports import MetadataStore, Random
from varlog.repository.catalog import Catalog
from varlog.repository.changes import Changes, Turn
from varlog.repository.coming import NEW_LOG
from varlog.wire.proto import varlog_pb2 as pb

A, B, C = LogId(1), LogId(2), LogId(3)
STEPS = 5
"""Of the event loop, after which everybody who can go on has done so."""


async def settle() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)


class Stage:
    """Some who change logs, each until told to end."""

    def __init__(self, at_once: int = 10) -> None:
        self.changes = Changes(at_once)
        self.going: list[str] = []
        """Who has his turn, in the order in which they got it."""
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    def ask(self, name: str, log: LogId | None) -> None:
        self._ends[name] = asyncio.Event()
        turn = self.changes.alone() if log is None else self.changes.of(log)
        self.tasks[name] = asyncio.ensure_future(self._work(name, turn))

    async def _work(self, name: str, turn: Turn) -> None:
        async with turn:
            self.going.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.going.remove(name)

    async def ends(self, name: str) -> None:
        self._ends[name].set()
        await settle()

    async def gives_up(self, name: str) -> None:
        self.tasks[name].cancel()
        await settle()
        assert self.tasks[name].cancelled()


def play(story: Callable[[Stage], Coroutine[Any, Any, None]], at_once: int = 10) -> None:
    async def played() -> None:
        stage = Stage(at_once)
        await story(stage)
        for task in stage.tasks.values():
            task.cancel()
        await asyncio.gather(*stage.tasks.values(), return_exceptions=True)
        assert not stage.changes._going
        assert not stage.changes._waiting

    run(played())


def test_one_log_is_changed_by_one_at_a_time_in_the_order_of_asking() -> None:
    async def story(stage: Stage) -> None:
        for name in ("first", "second", "third"):
            stage.ask(name, A)
        await settle()
        for name in ("first", "second", "third"):
            assert stage.going == [name]
            await stage.ends(name)
        assert stage.going == []

    play(story)


def test_different_logs_are_changed_at_once_and_pass_those_who_wait_for_one_that_is_busy() -> None:
    async def story(stage: Stage) -> None:
        for name, log in (("a", A), ("a too", A), ("b", B), ("c", C)):
            stage.ask(name, log)
        await settle()
        assert stage.going == ["a", "b", "c"]
        await stage.ends("a")
        assert stage.going == ["b", "c", "a too"]

    play(story)


def test_no_more_than_the_limit_are_changed_at_once() -> None:
    async def story(stage: Stage) -> None:
        for name, log in (("a", A), ("b", B), ("c", C)):
            stage.ask(name, log)
        await settle()
        assert stage.going == ["a", "b"]
        await stage.ends("b")
        assert stage.going == ["a", "c"]

    play(story, at_once=2)


def test_a_turn_that_is_free_is_had_at_once() -> None:
    """Between asking and having it nobody else does anything."""

    async def story(stage: Stage) -> None:
        seen: list[str] = []
        asyncio.get_running_loop().call_soon(seen.append, "somebody else")
        async with stage.changes.of(A):
            assert not seen

    play(story)


def test_alone_waits_for_all_and_holds_off_those_who_come_later() -> None:
    async def story(stage: Stage) -> None:
        stage.ask("a", A)
        stage.ask("b", B)
        await settle()
        stage.ask("alone", None)
        stage.ask("c", C)
        stage.ask("a too", A)
        await settle()
        await stage.ends("a")
        assert stage.going == ["b"], "neither is overtaken"
        await stage.ends("b")
        assert stage.going == ["alone"]
        await stage.ends("alone")
        assert stage.going == ["c", "a too"]

    play(story)


def test_neither_starves_while_the_other_is_asked_for_again_and_again() -> None:
    async def story(stage: Stage) -> None:
        stage.ask("a", A)
        await settle()
        for number in range(3):  # each is asked for before the last has ended
            stage.ask(f"alone {number}", None)
            stage.ask(f"b {number}", B)
        await stage.ends("a")
        order = []
        while stage.going:
            (name,) = stage.going
            order.append(name)
            await stage.ends(name)
        assert order == ["alone 0", "b 0", "alone 1", "b 1", "alone 2", "b 2"]

    play(story)


def test_alone_fits_under_a_limit_of_one() -> None:
    async def story(stage: Stage) -> None:
        stage.ask("alone", None)
        stage.ask("a", A)
        await settle()
        assert stage.going == ["alone"]
        await stage.ends("alone")
        assert stage.going == ["a"]

    play(story, at_once=1)


@pytest.mark.parametrize("log", [A, None])
def test_who_gives_up_while_he_waits_leaves_nothing_behind(log: LogId | None) -> None:
    async def story(stage: Stage) -> None:
        stage.ask("first", A)
        stage.ask("gives up", log)
        stage.ask("next", A)
        stage.ask("b", B)
        await settle()
        await stage.gives_up("gives up")
        assert stage.going == ["first", "b"]
        await stage.ends("first")
        assert stage.going == ["b", "next"]

    play(story)


@pytest.mark.parametrize("log", [A, None])
def test_who_gives_up_in_the_moment_in_which_his_turn_comes_gives_it_to_the_next(log: LogId | None) -> None:
    async def story(stage: Stage) -> None:
        turn = stage.changes.of(A)
        await turn.__aenter__()
        stage.ask("gives up", log)
        stage.ask("next", A)
        await settle()
        await turn.__aexit__(None, None, None)
        assert list(stage.changes._going) == [log], "it is his, and he does not know yet"
        await stage.gives_up("gives up")
        assert stage.going == ["next"]

    play(story)


@pytest.mark.parametrize("log", [A, None])
def test_nobody_gets_the_turn_of_one_who_was_cancelled_and_does_not_know_yet(log: LogId | None) -> None:
    async def story(stage: Stage) -> None:
        turn = stage.changes.of(A)
        await turn.__aenter__()
        stage.ask("gives up", log)
        stage.ask("next", A)
        await settle()
        stage.tasks["gives up"].cancel()
        await turn.__aexit__(None, None, None)  # in the same step
        await settle()
        assert stage.going == ["next"]
        assert stage.tasks["gives up"].cancelled()

    play(story)


@pytest.mark.parametrize("log", [A, None])
def test_who_gives_up_in_his_turn_ends_it(log: LogId | None) -> None:
    async def story(stage: Stage) -> None:
        stage.ask("gives up", log)
        stage.ask("next", A)
        await settle()
        await stage.gives_up("gives up")
        assert stage.going == ["next"]

    play(story)


def test_a_change_that_fails_ends_its_turn() -> None:
    async def story(stage: Stage) -> None:
        for turn in (stage.changes.of(A), stage.changes.alone()):
            with pytest.raises(ValueError, match="wrong"):
                async with turn:
                    raise ValueError("wrong")
        stage.ask("next", A)
        await settle()
        assert stage.going == ["next"]

    play(story)


# ---------------------------------------------------------------- what is counted meanwhile


def counts(catalog: Catalog, without: LogId | None = None) -> tuple[list[int], list[int], list[int]]:
    """Of nodes 1 to 4: open streams, replicas, primaries."""
    nodes = [NodeId(node) for node in (1, 2, 3, 4)]
    found = catalog.open_of(nodes, without), catalog.load_of(nodes), catalog.primaries_of(nodes, without)
    open_, replicas, primaries = ([each[node] for node in nodes] for each in found)
    return open_, replicas, primaries


def with_log(*streams: tuple[int, ...], journal: bool = False) -> Catalog:
    catalog = Catalog(cast(MetadataStore, None), cast(Random, None))
    members = [pb.StreamInfo(id=number, members=each) for number, each in enumerate(streams, 1)]
    catalog.logs[A] = pb.LogInfo(id=A, chain=[pb.SegmentInfo(epoch=1, streams=members)], journal=journal)
    return catalog


def test_what_was_placed_is_load_before_any_record_says_so_and_what_ends_with_it_is_none() -> None:
    catalog = with_log((1, 2), (2, 3))
    before = counts(catalog)
    assert before == ([1, 2, 1, 0], [1, 2, 1, 0], [1, 1, 0, 0])
    with catalog.coming.counted(A, [(NodeId(3), NodeId(4))], [StreamId(1)]):
        # the replicas of what has ended stay where they are
        assert counts(catalog) == ([0, 1, 2, 1], [1, 2, 2, 1], [0, 1, 1, 0])
        assert counts(catalog, without=A)[0] == [0, 0, 0, 0]
        with catalog.coming.counted(NEW_LOG, [(NodeId(4), NodeId(1))]):
            assert counts(catalog) == ([1, 1, 2, 2], [2, 2, 2, 2], [0, 1, 1, 1])
            assert counts(catalog, without=A) == ([1, 0, 0, 1], [2, 2, 2, 2], [0, 0, 0, 1])
    assert counts(catalog) == before


def test_a_journal_that_is_coming_has_members_and_no_primary() -> None:
    catalog = with_log((1, 2), journal=True)
    with catalog.coming.counted(A, [(NodeId(3), NodeId(4))], [StreamId(1)], journal=True):
        assert counts(catalog) == ([0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0])


def test_who_is_about_to_grant_positions_counts_and_who_is_about_to_cease_does_not() -> None:
    catalog = with_log((1, 2), (2, 3))
    catalog.logs[A].chain[0].ordering = "sequencer"
    nodes = [NodeId(node) for node in (1, 2, 3, 4)]

    def grants(without: LogId | None = None) -> list[int]:
        return list(catalog.grants_of(nodes, without).values())

    assert (grants(), grants(A)) == ([1, 0, 0, 0], [0, 0, 0, 0])
    placed = [(NodeId(4), NodeId(1)), (NodeId(3), NodeId(2))]
    with catalog.coming.counted(A, placed, [StreamId(1), StreamId(2)], granting=True):
        assert (grants(), grants(A)) == ([0, 0, 0, 1], [0, 0, 0, 0])
        with catalog.coming.counted(NEW_LOG, [(NodeId(3), NodeId(1))]):
            assert grants() == [0, 0, 0, 1], "that one has no sequencer"
    with catalog.coming.counted(A, [(NodeId(4),)], [StreamId(1), StreamId(2)]):
        assert grants() == [0, 0, 0, 0], "it is switched to another ordering"


def test_a_change_that_failed_counts_no_more() -> None:
    catalog = with_log((1, 2))
    before = counts(catalog)
    with pytest.raises(ValueError, match="wrong"), catalog.coming.counted(A, [(NodeId(3),)], [StreamId(1)]):
        raise ValueError("wrong")
    assert counts(catalog) == before
