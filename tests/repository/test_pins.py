"""Logs that are pinned to capabilities refuse a change that would take one away (W14)."""

from pathlib import Path
from typing import Any

import pytest
from tests.servers import run, servers

import varlog
from varlog.base.errors import InvalidArgument
from varlog.core.capabilities import CAPABILITIES, KNOWN, capabilities
from varlog.repository.pins import refuse_loss


def test_a_pinned_log_keeps_what_it_is_pinned_to() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            log = await cluster.create_log("orders", streams=2, pin=["many_streams"])
            await log.append(b"a")
            with pytest.raises(varlog.Unsupported, match="pinned to many_streams") as refused:
                await log.reconfigure(ordering="leader")
            assert refused.value.capability == "many_streams"
            assert (await log.info()).chain[-1].epoch == 1, "nothing was changed"
            assert (await log.reconfigure(streams=1)).pinned == ("many_streams",)
            changed = await log.reconfigure(ordering="leader", unpin=["many_streams"], pin=["atomic_batch"])
            assert (changed.ordering, changed.pinned) == ("leader", ("atomic_batch",))
            await log.append(b"b")
            assert await log.tail() == 2

    run(story())


def test_what_a_log_cannot_do_it_cannot_be_pinned_to() -> None:
    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            with pytest.raises(varlog.Unsupported):
                await cluster.create_log("orders", pin=["conditional_append"])
            with pytest.raises(InvalidArgument, match="atomic_batch"):
                await cluster.create_log("orders", pin=["flying"])
            with pytest.raises(InvalidArgument):
                await cluster.create_log("orders", pin="atomic_batch")
            log = await cluster.create_log("orders")
            with pytest.raises(varlog.Unsupported):
                await log.reconfigure(pin=["conditional_append"])
            assert (await log.info()).pinned == ()
            async with cluster.journal("wal") as journal:
                with pytest.raises(varlog.Unsupported):
                    await journal.reconfigure(pin=["many_writers"])

    run(story())


def test_the_table() -> None:
    for ordering, found in CAPABILITIES.items():
        assert found <= set(KNOWN)
        refuse_loss(capabilities(ordering), ordering, 1, journal=False)
    assert "atomic_batch" in capabilities("sequencer")
    assert "atomic_batch" not in capabilities("sequencer", streams=2)
    assert capabilities("leader", journal=True) == {"atomic_batch"}


def test_of_a_change_that_is_refused_neither_pin_nor_limit_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path, nodes=3, lost_ms=60_000) as made,
            varlog.connect(f"varlog://{made.repository_address}") as cluster,
        ):
            log = await cluster.create_log("orders", replicas=3, ack=3)
            wanted: dict[str, Any] = {"ordering": "sequencer", "pin": ["conditional_append"], "retain_bytes": 1 << 30}
            await made.stop_node(3)
            with pytest.raises(varlog.Unavailable):
                await log.reconfigure(**wanted)
            info = await log.info()
            assert (info.pinned, info.retain_bytes, info.ordering) == ((), 0, "cut")
            await made.start_node(3)
            changed = await log.reconfigure(**wanted)
            assert (changed.pinned, changed.retain_bytes) == (("conditional_append",), 1 << 30)
            assert changed.ordering == "sequencer"

    run(story())
