"""The repository's memory: a small, strictly serializable key-value store.

The two implementations are SQLite (embedded) and etcd; the simulator has one in memory.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from varlog.base.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Versioned:
    value: bytes
    version: int
    """Grows with every change of the key; 0 means: does not exist."""


def _check_key(key: str) -> None:
    if not key:
        raise InvalidArgument("a key is empty")
    try:
        key.encode()
    except UnicodeEncodeError as broken:
        raise InvalidArgument(f"the key {key!r} is no valid text") from broken


@dataclass(slots=True)
class Transaction:
    """All or nothing: applied only if everything expected holds."""

    expect: dict[str, int] = field(default_factory=dict)
    """The version each of these keys must have."""
    put: dict[str, bytes] = field(default_factory=dict)
    delete: list[str] = field(default_factory=list)
    delete_ranges: list[tuple[str, str]] = field(default_factory=list)
    """Keys in [first, second) go."""

    def check(self) -> None:
        """Raise `InvalidArgument` for what no store takes: odd keys, and a key that is both put and deleted."""
        for key in (*self.expect, *self.put, *self.delete):
            if not key or not key.isascii():
                _check_key(key)
        if self.delete or self.delete_ranges:
            self._check_deleted()

    def _check_deleted(self) -> None:
        for key in self.put:
            if key in self.delete or any(first <= key < second for first, second in self.delete_ranges):
                raise InvalidArgument(f"one transaction both puts and deletes {key!r}")

    def copy(self) -> "Transaction":
        """One that does not change when this one does."""
        return Transaction(dict(self.expect), dict(self.put), list(self.delete), list(self.delete_ranges))


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    value: bytes | None
    """None: deleted."""


class MetadataStore(Protocol):
    async def get(self, key: str) -> Versioned | None: ...

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        """All keys with the prefix, in key order."""
        ...

    async def commit(self, transaction: Transaction) -> bool:
        """True: applied and durable. False: an expectation failed and nothing was changed.

        Commits that overlap may be applied in any order; `varlog.metadata.chain` keeps one. An error whose
        outcome is known changed nothing. After any other (`OutcomeUnknown`, `DiskFailed`) only what is read
        anew tells, and only once nobody can apply the transaction late: see `ElectiveStore.fenced`.
        """
        ...

    def watch(self, prefix: str) -> AsyncIterator[Change]:
        """Every change to a key with the prefix from now on, in order.

        A store that is shared may begin a little earlier than now, and after a long break may tell only the
        last of several changes of a key; it never leaves out how things stand in the end.
        """
        ...

    async def close(self) -> None: ...
