"""What a node does now and then, and what it says when that does not work."""

import asyncio
from pathlib import Path

import pytest
from tests.servers import run, servers

from varlog.base.errors import NoSpace
from varlog.node import NodeConfig, StorageNode, server
from varlog.ports.disk import DiskFailed
from varlog.runtime.disk import RealDisk
from varlog.transport.world import real_world


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


def test_a_volume_that_does_not_say_what_space_it_has_keeps_nobody_from_housekeeping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HOUSEKEEPING_EVERY_S", 0.01)
    told: list[str] = []

    async def dead() -> tuple[int, int]:
        raise DiskFailed("input/output error")

    async def story() -> None:
        disk = RealDisk(tmp_path)
        node = StorageNode(real_world(), [disk], NodeConfig(repositories=("127.0.0.1:1",)), told.append)
        await node.start()
        assert node._volume_list()[0].free_bytes
        with monkeypatch.context() as patched:
            patched.setattr(disk, "space", dead)
            while node._volume_list()[0].free_bytes:
                await asyncio.sleep(0.01)
            assert node._volume_list()[0].total_bytes
        while not node._volume_list()[0].free_bytes:
            await asyncio.sleep(0.01)
        await node.close()
        assert [line for line in told if "space" in line] == [
            f"the volume {tmp_path} does not say what space it has: input/output error"
        ]

    run(story())
