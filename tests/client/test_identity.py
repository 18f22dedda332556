"""Addresses are given out again: whoever has got one is not taken for who had it before."""

from pathlib import Path

import pytest
from tests.servers import Servers, run, servers

import varlog


async def _stopped_node(made: Servers, number: int) -> str:
    """The address of a node that is not there any more."""
    address = made.nodes[number].address
    await made.stop_node(number)
    return address


@pytest.mark.parametrize("ordering", ["cut", "leader", "sequencer"])
def test_a_node_of_another_cluster_gets_nothing(tmp_path: Path, ordering: str) -> None:
    """Both clusters have a log with the same name and the same numbers."""

    async def story() -> None:
        async with (
            servers(tmp_path / "one", nodes=1) as one,
            servers(tmp_path / "two", nodes=1) as two,
            varlog.connect(f"varlog://{one.repository_address}") as mine,
            varlog.connect(f"varlog://{two.repository_address}") as theirs,
        ):
            log = await mine.create_log("orders", ordering=ordering, replicas=1)
            await theirs.create_log("orders", ordering=ordering, replicas=1)
            await log.append(b"first")
            address = await _stopped_node(one, 1)
            await two.stop_node(1)
            await two.start_node(1, listen=address)
            with pytest.raises((varlog.Unavailable, varlog.OutcomeUnknown, varlog.Timeout)):
                await log.append(b"second", timeout=1.0)
            assert await theirs.log("orders").tail() == 0
            await one.start_node(1)
            await log.append(b"third")
            entries = [entry.payload async for entry in log.subscribe(1, wait=False)]
            assert (entries[0], entries[-1]) == (b"first", b"third")
            assert await theirs.log("orders").tail() == 0

    run(story())


def test_a_repository_of_another_cluster_is_not_asked(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path / "one", nodes=1) as one,
            servers(tmp_path / "two", nodes=1) as two,
            varlog.connect(f"varlog://{one.repository_address}") as mine,
        ):
            log = await mine.create_log("orders", replicas=1)
            await log.append(b"first")
            async with varlog.connect(f"varlog://{two.repository_address}") as theirs:
                other = await theirs.create_log("orders", replicas=1)
                await other.append_batch([b"a", b"b"])
            await one.stop_repository()
            await two.stop_repository()
            two.repository_address = one.repository_address
            await two.start_repository()
            with pytest.raises(varlog.Unavailable, match="is a repository of cluster"):
                await log.trim(1, timeout=1.0)

    run(story())


def test_an_address_of_a_node_is_no_url(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=1) as made:
            with pytest.raises(varlog.Unavailable, match="is node 1, not a repository"):
                async with varlog.connect(f"varlog://{made.nodes[1].address}"):
                    pass

    run(story())
