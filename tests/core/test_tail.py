"""When a segment's members have said enough of its tail."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from varlog.base.ids import Glsn, Slot
from varlog.core.ordering import leader
from varlog.core.ordering.tail import JournalTail, NumberedTail, Word, open_enough

BASE = Glsn(101)


def word(stored: int, committed: int = 0) -> Word:
    return Word(Slot(stored), Slot(committed))


def journal(members: int = 3, ack: int = 2) -> JournalTail:
    return JournalTail(BASE, members, ack, open_enough(members, ack))


def test_two_that_have_the_same_are_enough() -> None:
    tail = journal()
    tail.heard(0, word(10))
    assert tail.end is None, "one alone may be sealed around"
    tail.heard(2, word(10))
    assert tail.end == BASE + 10


def test_who_is_silent_may_have_what_one_has() -> None:
    tail = journal()
    tail.heard(0, word(10))
    tail.heard(1, word(7))
    assert tail.end is None, "members 0 and 2 may have acknowledged ten"
    tail.heard(1, word(9))
    assert tail.end is None
    tail.heard(1, word(12))
    assert tail.end == BASE + 10, "what has come since then is not waited for"


def test_where_all_answer_nobody_is_asked_twice() -> None:
    tail = journal()
    for member, stored in enumerate((10, 7, 3)):
        tail.heard(member, word(stored))
    assert tail.end == BASE + 7


def test_what_one_was_told_to_be_committed_is() -> None:
    tail = journal()
    tail.heard(0, word(10, committed=10))
    tail.heard(1, word(7))
    assert tail.end == BASE + 10


def test_too_few_that_are_open_are_the_end_of_it() -> None:
    tail = journal()
    tail.out(1)
    tail.out(1)
    assert not tail.is_over, "the other two may be open"
    assert [tail.may_say_more(member) for member in range(3)] == [True, False, True]
    tail.out(0)
    assert tail.is_over


def test_as_many_are_open_as_leave_no_quorum_to_seal() -> None:
    for members in range(1, 8):
        for ack in range(1, members + 1):
            assert members - ack < leader.seal_quorum(members, ack), "where the first one tells the tail"
            assert members - open_enough(members, ack) < leader.seal_quorum(members, ack)
            assert open_enough(members, ack) >= leader.seal_quorum(members, ack), "or the tail could not be told"


@given(st.data())
def test_a_tail_covers_what_was_acknowledged_and_no_more_than_is_committed(data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 5))
    ack = data.draw(st.integers(1, members))
    before = data.draw(st.lists(st.integers(0, 6), min_size=members, max_size=members))
    grown = data.draw(st.lists(st.integers(0, 6), min_size=members, max_size=members))
    after = [old + more for old, more in zip(before, grown, strict=True)]
    acknowledged = sorted(before, reverse=True)[ack - 1]
    committed = sorted(after, reverse=True)[ack - 1]
    for count in range(1, members + 1):
        for some in combinations(range(members), count):
            tail = journal(members, ack)
            for member in some:
                first = data.draw(st.integers(before[member], after[member]))
                tail.heard(member, word(first))
                tail.heard(member, word(after[member]))
            if tail.end is not None:
                assert acknowledged <= tail.end - BASE <= committed
            elif count == members:
                raise AssertionError("all have answered")


def test_who_numbers_entries_says_how_far_he_is_and_others_that_they_are_open() -> None:
    tail = NumberedTail(members=3, ack=2)
    tail.heard(1, word(9))
    tail.heard(2, word(9))
    assert tail.end is None, "two have nine, but who numbers them may not know"
    tail.heard(0, Word(Slot(9), Slot(7), Glsn(BASE + 7)))
    assert tail.end == BASE + 7


def test_who_numbers_entries_alone_may_have_been_followed() -> None:
    tail = NumberedTail(members=3, ack=2)
    tail.heard(0, Word(Slot(9), Slot(7), Glsn(BASE + 7)))
    assert tail.end is None
    tail.out(1)
    assert not tail.is_over
    tail.out(2)
    assert tail.is_over


def test_who_numbers_entries_needs_no_more_open_than_acknowledge() -> None:
    tail = NumberedTail(members=5, ack=2)
    for member in (2, 3, 4):
        tail.out(member)
    assert not tail.is_over, "three that are sealed have not sealed the segment"
    tail.heard(0, Word(Slot(9), Slot(7), Glsn(BASE + 7)))
    assert tail.end is None
    tail.heard(1, word(9))
    assert tail.end == BASE + 7


def test_without_who_numbers_entries_nothing_is_known() -> None:
    tail = NumberedTail(members=3, ack=2)
    tail.out(0)
    assert tail.is_over
