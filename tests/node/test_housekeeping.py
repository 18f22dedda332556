"""What a node does now and then, and what it says when that does not work."""

import asyncio
from pathlib import Path

import pytest
from tests.servers import run, servers

from varlog.base.errors import NoSpace
from varlog.node import server


def test_trouble_with_housekeeping_is_over_when_it_works_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HOUSEKEEPING_EVERY_S", 0.02)

    async def full() -> None:
        raise NoSpace("no room")

    async def story() -> None:
        async with servers(tmp_path, nodes=1) as cluster:
            await cluster.create_log(replicas=1)
            replica = cluster.nodes[1].replicas.all()[0]
            with monkeypatch.context() as patched:
                patched.setattr(replica, "tidy", full)
                while replica.trouble != "housekeeping: no room":
                    await asyncio.sleep(0.01)
            while replica.trouble:
                await asyncio.sleep(0.01)
            replica.trouble = "something else"
            await asyncio.sleep(0.1)
            assert replica.trouble == "something else"

    run(story())
