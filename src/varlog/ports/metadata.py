"""The repository's memory: a small, strictly serializable key-value store.

The two implementations are SQLite (embedded) and etcd; the simulator has one in memory.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Versioned:
    value: bytes
    version: int
    """Grows with every change of the key; 0 means: does not exist."""


@dataclass(slots=True)
class Transaction:
    """All or nothing: applied only if every key in `expect` has the version given there."""

    expect: dict[str, int] = field(default_factory=dict)
    put: dict[str, bytes] = field(default_factory=dict)
    delete: list[str] = field(default_factory=list)
    delete_ranges: list[tuple[str, str]] = field(default_factory=list)
    """Keys in [first, second) go."""


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
        """True: applied and durable. False: an expectation failed and nothing was changed."""
        ...

    def watch(self, prefix: str) -> AsyncIterator[Change]:
        """Every change to a key with the prefix from now on, in order."""
        ...

    async def close(self) -> None: ...
