"""The `cut` ordering, told as small stories and held against a naive model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlog.base.ids import Epoch, LogId, NodeId, Slot, StreamId
from varlog.base.invariant import InvariantBroken
from varlog.core.ordering.cut import Cut, LogOrder, ReportGate

LOG, SEGMENT = LogId(1), Epoch(1)


def make(*streams: tuple[int, ...]) -> LogOrder:
    order = LogOrder(LOG, SEGMENT)
    for number, members in enumerate(streams, 1):
        order.add_stream(StreamId(number), [NodeId(member) for member in members])
    return order


def report(order: LogOrder, node: int, stream: int, tail: int, bound: int = 0) -> bool:
    return order.report(NodeId(node), StreamId(stream), Slot(tail), Slot(bound))


def make_cut(order: LogOrder) -> Cut:
    cut = order.next_cut()
    assert cut is not None
    order.apply(cut)
    return cut


def ranges(cut: Cut) -> list[tuple[int, int, int, int]]:
    return [(each.stream, each.binding.slot, each.binding.glsn, each.binding.count) for each in cut.commits]


def test_a_cut_takes_the_smallest_tail_of_each_stream_in_stream_order() -> None:
    order = make((1, 2, 3), (1, 2, 3))
    for node, tail in ((1, 3), (2, 3), (3, 3)):
        report(order, node, 1, tail)
    for node, tail in ((1, 4), (2, 3), (3, 2)):
        report(order, node, 2, tail)
    assert ranges(make_cut(order)) == [(1, 0, 1, 3), (2, 0, 4, 2)]
    assert order.high_watermark == 5


def test_a_missing_report_is_not_zero_and_not_infinity() -> None:
    order = make((1, 2))
    assert not report(order, 1, 1, 5)
    assert order.next_cut() is None
    assert report(order, 2, 1, 4)
    assert ranges(make_cut(order)) == [(1, 0, 1, 4)]


def test_the_next_cut_continues_above_the_high_watermark() -> None:
    order = make((1,), (2,))
    report(order, 1, 1, 2)
    make_cut(order)
    report(order, 1, 1, 3)
    report(order, 2, 2, 1)
    assert ranges(make_cut(order)) == [(1, 2, 3, 1), (2, 0, 4, 1)]


def test_only_non_empty_cuts_are_made() -> None:
    order = make((1,))
    report(order, 1, 1, 2)
    make_cut(order)
    assert not report(order, 1, 1, 2)
    assert order.next_cut() is None


def test_a_tail_that_moves_back_stops_its_stream_alone() -> None:
    order = make((1, 2), (1, 2))
    for stream in (1, 2):
        for node in (1, 2):
            report(order, node, stream, 3)
    make_cut(order)
    report(order, 2, 1, 1)
    report(order, 1, 1, 9)
    report(order, 2, 1, 9)
    assert order.next_cut() is None
    stopped = order.stream(StreamId(1))
    assert stopped is not None
    assert "node 2 has lost synced entries: it had 3 and reports 1" in stopped.stopped
    report(order, 1, 2, 4)
    report(order, 2, 2, 4)
    assert ranges(make_cut(order)) == [(2, 3, 7, 1)]


def test_a_member_below_the_last_cut_has_amnesia_even_to_a_new_repository() -> None:
    order = LogOrder(LOG, SEGMENT, high_watermark=10)
    order.add_stream(StreamId(1), [NodeId(1)], committed=Slot(10))
    report(order, 1, 1, 9)
    stream = order.stream(StreamId(1))
    assert stream is not None
    assert stream.stopped


def test_a_closed_order_makes_no_cut() -> None:
    order = make((1,))
    report(order, 1, 1, 2)
    order.close()
    assert order.next_cut() is None
    assert not report(order, 1, 1, 3)


def test_members_of_a_closed_log_may_cut_off_what_lies_beyond_its_end_and_no_more() -> None:
    order = make((1, 2))
    report(order, 1, 1, 3)
    report(order, 2, 1, 2)
    make_cut(order)
    order.close()
    stream = order.stream(StreamId(1))
    assert stream is not None
    report(order, 1, 1, 2)
    assert not stream.stopped
    report(order, 1, 1, 1)
    assert "node 1 has lost synced entries: it had 2 and reports 1" in stream.stopped


def test_a_cut_computed_twice_is_the_same_cut() -> None:
    order = make((1, 2), (2, 3))
    for node, stream, tail in ((1, 1, 4), (2, 1, 5), (2, 2, 7), (3, 2, 6)):
        report(order, node, stream, tail)
    assert order.next_cut() == order.next_cut()


def test_missed_commits_come_from_the_history_in_order() -> None:
    order = make((1, 2))
    cuts = []
    for tail in (2, 5, 9):
        report(order, 1, 1, tail)
        report(order, 2, 1, tail)
        cuts.append(make_cut(order))
    assert order.missed(StreamId(1), Slot(0)) == [cut.commits[0] for cut in cuts]
    assert order.missed(StreamId(1), Slot(2)) == [cut.commits[0] for cut in cuts[1:]]
    assert order.missed(StreamId(1), Slot(9)) == []


def test_a_cut_is_forgotten_once_every_member_has_it_on_disk() -> None:
    order = make((1, 2), (3,))
    for node, stream in ((1, 1), (2, 1), (3, 2)):
        report(order, node, stream, 2)
    first = make_cut(order)
    report(order, 1, 1, 2, bound=2)
    report(order, 3, 2, 2, bound=2)
    assert order.bound_cuts(10) == []
    report(order, 2, 1, 2, bound=2)
    assert order.bound_cuts(10) == [first]
    order.forget(1)
    assert order.bound_cuts(10) == []
    assert order.missed(StreamId(1), Slot(0)) == []


def test_a_stuck_stream_does_not_keep_the_cuts_of_others() -> None:
    order = make((1,), (2,))
    report(order, 1, 1, 1)
    report(order, 2, 2, 1)
    both = make_cut(order)
    report(order, 2, 2, 2, bound=1)
    alone = make_cut(order)
    report(order, 2, 2, 2, bound=2)
    assert order.bound_cuts(10) == [alone]
    assert [commit for commit in both.commits if commit.stream == 1] == order.missed(StreamId(1), Slot(0))


def test_late_reports_are_told_from_new_ones() -> None:
    gate = ReportGate()
    assert gate.admits(1, 1)
    assert gate.admits(1, 3)
    assert not gate.admits(1, 2)
    assert not gate.admits(1, 3)
    assert gate.admits(2, 1)
    assert not gate.admits(1, 99)


@st.composite
def reports(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """(node, stream, growth) steps over two streams of two members each."""
    return draw(st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.integers(0, 3)), max_size=60))


@given(reports(), st.lists(st.booleans(), max_size=60))
def test_cuts_are_dense_and_never_ahead_of_a_member(steps: list[tuple[int, int, int]], cut_now: list[bool]) -> None:
    order = make((1, 2), (1, 2))
    tails = {(node, stream): 0 for node in (1, 2) for stream in (1, 2)}
    expected_glsn, slots = 1, {1: 0, 2: 0}
    for index, (node, stream, growth) in enumerate(steps):
        tails[node, stream] += growth
        report(order, node, stream, tails[node, stream])
        if index < len(cut_now) and cut_now[index]:
            cut = order.next_cut()
            for each in cut.commits if cut else ():
                assert each.binding.glsn == expected_glsn
                assert each.binding.slot == slots[each.stream]
                expected_glsn += each.binding.count
                slots[each.stream] += each.binding.count
                assert slots[each.stream] == min(tails[1, each.stream], tails[2, each.stream])
            if cut:
                order.apply(cut)


@given(reports(), st.integers(0, 60))
def test_a_restored_order_goes_on_as_the_old_one_would(steps: list[tuple[int, int, int]], until: int) -> None:
    order = make((1, 2), (1, 2))
    kept: list[Cut] = []
    tails = {(node, stream): 0 for node in (1, 2) for stream in (1, 2)}
    for node, stream, growth in steps[:until]:
        tails[node, stream] += growth
        report(order, node, stream, tails[node, stream])
        cut = order.next_cut()
        if cut is not None:
            order.apply(cut)
            kept.append(cut)
    restored = make((1, 2), (1, 2))
    for cut in kept:
        restored.restore(cut)
    for (node, stream), tail in tails.items():
        report(order, node, stream, tail + 1)
        report(restored, node, stream, tail + 1)
    assert restored.next_cut() == order.next_cut()
    assert restored.missed(StreamId(1), Slot(0)) == order.missed(StreamId(1), Slot(0))


def test_a_copy_that_is_given_up_holds_nothing_back() -> None:
    order = make((1, 2, 3))
    for node in (1, 2, 3):
        report(order, node, 1, 4)
    cut = make_cut(order)
    order.finalize(StreamId(1))
    for node in (1, 2):
        report(order, node, 1, 4, bound=4)
    assert order.bound_cuts(10) == []
    order.drop_member(StreamId(1), NodeId(3))
    assert order.bound_cuts(10) == [cut]
    assert not report(order, 3, 1, 4, bound=4), "it is no member any more"


def test_members_of_an_open_stream_stay() -> None:
    order = make((1, 2))
    with pytest.raises(InvariantBroken):
        order.drop_member(StreamId(1), NodeId(2))
    order.drop_member(StreamId(1), NodeId(3))
    order.drop_member(StreamId(9), NodeId(1))


def test_a_member_that_takes_the_place_of_a_lost_one_lets_cuts_be_forgotten() -> None:
    order = make((1, 2))
    report(order, 1, 1, 3)
    report(order, 2, 1, 3)
    make_cut(order)
    report(order, 1, 1, 3, bound=3)
    order.finalize(StreamId(1))
    assert (order.kept_cuts, order.bound_cuts(9)) == (1, [])
    order.replace(StreamId(1), NodeId(2), NodeId(5))
    assert order.kept_cuts == 1, "the new one has not said so yet"
    report(order, 2, 1, 0)  # the lost one is nobody any more
    known = order.stream(StreamId(1))
    assert known is not None
    assert (known.members, known.stopped) == ((1, 5), "")
    report(order, 5, 1, 3, bound=3)
    assert (order.kept_cuts, len(order.bound_cuts(9))) == (0, 1)


def test_a_stream_that_has_ended_is_forgotten_when_every_member_has_its_cuts() -> None:
    order = make((1, 2), (3, 4))
    for node, stream in ((1, 1), (2, 1), (3, 2), (4, 2)):
        report(order, node, stream, 5)
    make_cut(order)
    report(order, 1, 1, 5, bound=5)
    assert order.finalize(StreamId(1)) == 5
    order.end(StreamId(1))
    assert [commit.binding.count for commit in order.missed(StreamId(1), Slot(0))] == [5], "a member lacks it"
    report(order, 2, 1, 5, bound=5)
    assert order.stream(StreamId(1)) is None
    assert not report(order, 2, 1, 5, bound=5), "it may say so again"
    assert order.stream(StreamId(2)) is not None


def test_a_segment_begins_where_the_last_one_ended() -> None:
    order = make((1,), (2,))
    report(order, 1, 1, 3)
    report(order, 2, 2, 2)
    make_cut(order)
    with pytest.raises(InvariantBroken):
        order.begin_segment(Epoch(2), 5)  # its streams are open
    for stream in (1, 2):
        order.finalize(StreamId(stream))
        order.end(StreamId(stream))
    order.begin_segment(Epoch(2), 5)
    order.add_stream(StreamId(3), [NodeId(1)])
    report(order, 1, 3, 4)
    cut = make_cut(order)
    assert cut.segment == 2
    assert ranges(cut) == [(3, 0, 6, 4)]
    assert [commit.binding.glsn for commit in order.missed(StreamId(1), Slot(0))] == [1], "nobody has it on disk yet"


def test_who_can_be_given_what_he_missed() -> None:
    order = make((1, 2))
    for tail in (3, 5):
        for node in (1, 2):
            report(order, node, 1, tail)
        make_cut(order)
    stream = StreamId(1)
    assert all(order.can_catch_up(stream, Slot(slot)) for slot in (0, 3, 5))
    for node in (1, 2):
        report(order, node, 1, 5, bound=3)  # the first cut is on both disks, and forgotten
    assert order.can_catch_up(stream, Slot(3))
    assert not order.can_catch_up(stream, Slot(0)), "one who lost it on his disk"
    assert order.can_catch_up(StreamId(9), Slot(0)), "a stream of another segment is not judged"


def test_an_ended_stream_gets_a_member_in_the_place_of_one_or_besides() -> None:
    order = make((1, 2))
    order.finalize(StreamId(1))
    order.replace(StreamId(1), NodeId(2), NodeId(3))
    order.replace(StreamId(1), NodeId(0), NodeId(4))
    stream = order.stream(StreamId(1))
    assert stream is not None
    assert stream.members == (1, 3, 4)
