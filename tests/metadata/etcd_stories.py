"""For tests on a real etcd."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tools.etcd import Ensemble

from varlog.metadata.etcd import EtcdConfig, EtcdStore
from varlog.ports.metadata import Transaction


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def put(key: str, value: bytes = b"x") -> Transaction:
    return Transaction(put={key: value})


def configured(etcd: Ensemble, **settings: Any) -> EtcdConfig:
    return EtcdConfig(etcd.endpoints, prefix=f"test-{secrets.token_hex(4)}/", **settings)


@asynccontextmanager
async def opened(config: EtcdConfig, tell: Callable[[str], None] | None = None) -> AsyncIterator[EtcdStore]:
    opened_store = await EtcdStore.open(config, tell=tell)
    try:
        yield opened_store
    finally:
        await opened_store.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
