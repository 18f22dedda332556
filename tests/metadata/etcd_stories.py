"""For tests on a real etcd."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from typing import Any

import pytest
from tools.etcd import Ensemble

from varlog.metadata.etcd import EtcdConfig, EtcdStore
from varlog.ports.metadata import Transaction

PATIENCE_S = 60.0
"""Longer than anything takes, however busy the machine is."""

PATIENT: dict[str, Any] = {"timeout_s": PATIENCE_S, "attempt_s": PATIENCE_S, "connect_s": PATIENCE_S}
"""For a store on an etcd that does not fail: it may be slow."""


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 3 * PATIENCE_S))


def put(key: str, value: bytes = b"x") -> Transaction:
    return Transaction(put={key: value})


def configured(etcd: Ensemble, **settings: Any) -> EtcdConfig:
    return EtcdConfig(etcd.endpoints, prefix=f"test-{secrets.token_hex(4)}/", **(PATIENT | settings))


@asynccontextmanager
async def opened(config: EtcdConfig, tell: Callable[[str], None] | None = None) -> AsyncIterator[EtcdStore]:
    opened_store = await EtcdStore.open(config, tell=tell)
    try:
        yield opened_store
    finally:
        await opened_store.close()


@contextmanager
def hurried(shared: EtcdStore, monkeypatch: pytest.MonkeyPatch, **settings: float) -> Iterator[None]:
    """A store that is open already gives up sooner, be it sooner than one of its attempts."""
    hasty = copy(shared._config)
    for name, seconds in settings.items():
        object.__setattr__(hasty, name, seconds)
    with monkeypatch.context() as patch:
        patch.setattr(shared, "_config", hasty)
        patch.setattr(shared._connection, "_config", hasty)
        yield


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
