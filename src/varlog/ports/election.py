"""Who leads: one of several repositories that share a metadata store, and how the others are kept from writing.

A leader is a key of the store, `election/NAME`. Its value is the leader's identity, its version the *term*: it is
made when somebody takes the lead, never changed, and goes when the leader resigns or has not been heard of for as
long as its lease. So everything else follows from what a store does anyway: whoever watches the key follows the
leader, and a transaction that expects the key in its version is fenced, for it cannot be applied once the term is over.

A lease is for liveness: it lets another take over. Only the fence is for safety.
"""

from dataclasses import dataclass
from typing import Protocol

from varlog.base.errors import InvalidArgument
from varlog.ports.metadata import MetadataStore

ELECTIONS = "election/"
"""Prefix of the keys that say who leads. Only elections write below it."""


def leader_key(name: str) -> str:
    """Where the store says who leads in the election `name`."""
    if not name:
        raise InvalidArgument("an election needs a name")
    return ELECTIONS + name


@dataclass(frozen=True, slots=True)
class Leader:
    identity: str
    """As given by the candidate: for example the address it serves at."""
    term: int
    """Grows from one leader to the next."""


class Leadership(Protocol):
    """One term of one leader, from its side."""

    name: str
    identity: str
    term: int

    @property
    def sole(self) -> bool:
        """The store is this process's own: nobody else can lead."""
        ...

    @property
    def held(self) -> bool:
        """Nobody else can lead yet. False a while before the store could give the lead to another."""
        ...

    async def wait_lost(self) -> None:
        """Returns as soon as `held` is no longer true, for whatever reason. It never is again."""
        ...

    def lose(self) -> None:
        """Somebody saw that the term is over."""
        ...

    async def resign(self) -> None:
        """Let another lead, at once if the store can be reached. Again: nothing happens."""
        ...


class ElectiveStore(MetadataStore, Protocol):
    """A store that knows who of those who share it leads."""

    async def elect(self, name: str, identity: str) -> Leadership:
        """Wait until nobody leads, then lead. Goes on trying while the store is away; cancel it to give up."""
        ...

    def fenced(self, leadership: Leadership) -> MetadataStore:
        """This store for a leader: commits raise `NotLeader`, and change nothing, once its term is over.

        To close the view leaves the store open.
        """
        ...
