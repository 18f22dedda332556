r"""How far a log is, by the word of the members of its last segment: as fresh as the first question to them.

    member 1   =========|====     open       W = 2: what two have is committed. The third is silent, and may have
    member 2   =========|==       open       what member 1 has; that may have been acknowledged. So they are asked
    member 3   ?                             again until as much is committed.

Fresh is such an answer by two things. It covers all that may have been acknowledged when the first question left:
what a member has only grows, and who is silent counts as having everything. And nobody had followed by then: a seal
is for ever, so a member that is open was open before, and with W of them the others could not have sealed the segment.
One that is sealed proves nothing, and is not asked again.

That is a journal, whose leader cannot be asked; how far it may be, no fewer can tell than a seal needs (`open_enough`).
Where the first member numbers the entries, its word counts, and the others only show that they are open, each of them
once, and with it they are W: what is on enough of them, and not yet known to be to him, is not told to one and kept
from the next. Under `sequencer` his word is what he has granted; it is in the log once the last members of all chains
have it, which is for who asks to see to. There all members of a chain acknowledge, and one of each chain seals a
segment, so that all members of one chain must be open.
"""

from typing import NamedTuple, Protocol

from varlog.base.ids import Glsn, Slot
from varlog.core.ordering.leader import seal_quorum, tail_between


class Tail(Protocol):
    """A question for the tail, as its answers come in."""

    members: int
    """Of the segment's first stream: something is to be heard of each."""

    def heard(self, member: int, word: "Word") -> None:
        """Of one that is open, as often as it is asked."""
        ...

    def out(self, member: int) -> None:
        """One is not open."""
        ...

    def may_say_more(self, member: int) -> bool:
        """Whether one that has answered is asked again."""
        ...

    @property
    def is_over(self) -> bool:
        """Too few may be open: another segment follows, or has."""
        ...

    @property
    def end(self) -> Glsn | None:
        """One past the last position; None: not known yet."""
        ...


class Word(NamedTuple):
    """Of an open member: slots below `stored` are on its disk, and it was told that those below `committed` are."""

    stored: Slot
    committed: Slot
    numbered: Glsn = Glsn(0)
    """One past the last position that it has committed, or granted, if it numbers the entries."""


class JournalTail:
    """Of a segment that a client leads."""

    def __init__(self, base: Glsn, members: int, ack: int, enough: int) -> None:
        """`base` is its first position; `enough`: how many members must be open."""
        self.members = members
        self._base = base
        self._ack = ack
        self._enough = enough
        self._stored: dict[int, Slot] = {}
        self._committed = Slot(0)
        self._wanted: Slot | None = None
        """Up to here something may have been acknowledged before anybody was asked."""
        self._out: dict[int, None] = {}

    def heard(self, member: int, word: Word) -> None:
        self._stored[member] = max(self._stored.get(member, Slot(0)), word.stored)
        self._committed = max(self._committed, word.committed)
        if len(self._stored) >= self._enough:
            least, most = tail_between(list(self._stored.values()), self.members, self._ack)
            self._committed = max(self._committed, least)
            self._wanted = most if self._wanted is None else min(self._wanted, most)

    def out(self, member: int) -> None:
        self._out[member] = None

    def may_say_more(self, member: int) -> bool:
        return member not in self._out

    @property
    def is_over(self) -> bool:
        return self.members - len(self._out) < self._enough

    @property
    def end(self) -> Glsn | None:
        known = self._wanted is not None and self._committed >= self._wanted
        return Glsn(self._base + self._committed) if known else None


class NumberedTail:
    """Of a segment whose entries its first member numbers."""

    def __init__(self, members: int, ack: int) -> None:
        """As many as acknowledge must be open, the first among them."""
        self.members = members
        self._ack = ack
        self._heard: dict[int, Glsn] = {}
        self._out: dict[int, None] = {}

    def heard(self, member: int, word: Word) -> None:
        self._heard[member] = word.numbered

    def out(self, member: int) -> None:
        self._out[member] = None

    def may_say_more(self, member: int) -> bool:
        return False

    @property
    def is_over(self) -> bool:
        return 0 in self._out or self.members - len(self._out) < self._ack

    @property
    def end(self) -> Glsn | None:
        return self._heard.get(0) if len(self._heard) >= self._ack else None


def open_enough(members: int, ack: int) -> int:
    """How many open members show that a journal's segment has no other behind it, and are enough to tell its tail.

    With so many open, those that are left are too few to have sealed it.
    """
    return max(ack, seal_quorum(members, ack))
