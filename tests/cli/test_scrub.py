"""`varlog node scrub` waits for what it has begun, and for nothing else."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from varlog.base.errors import VarlogError
from varlog.cli import scrub
from varlog.client import NodeDescription
from varlog.client.describe import describe_node
from varlog.runtime.loop import run
from varlog.wire.proto import varlog_pb2 as pb


def node(passes: int, *, boot: int = 3, connected: bool = True) -> NodeDescription:
    return describe_node(
        pb.NodeInfo(id=1, boot=boot, connected=connected, scrub=pb.ScrubStatus(passes=passes, done_bytes=7))
    )


class Looked:
    """A cluster of one node, as it is at one look after the other."""

    def __init__(self, *looks: NodeDescription) -> None:
        self._looks: Iterator[NodeDescription] = iter(looks)

    async def nodes(self) -> list[NodeDescription]:
        return [next(self._looks)]

    async def scrub_node(self, _: int) -> NodeDescription:
        return next(self._looks)

    async def status(self) -> Any:
        return SimpleNamespace(logs=[])


@pytest.mark.parametrize(
    ("last", "whole"),
    [
        (node(6), True),
        (node(6, connected=False), True),
        (node(5, connected=False), False),
        (node(0, boot=4), False),
        (node(6, boot=4), False),
    ],
)
def test_a_node_that_is_started_again_has_not_read_everything(
    last: NodeDescription, whole: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its passes are counted anew, so it was waited for until it had made as many as before."""
    monkeypatch.setattr(scrub, "LOOK_EVERY_S", 0.0)
    cluster = Looked(node(5), node(5), node(5), node(5), last)

    def with_cluster(_: Any, work: Any) -> Any:
        return run(work(cluster))

    monkeypatch.setattr(scrub, "with_cluster", with_cluster)
    arguments: Any = SimpleNamespace(node=None, no_wait=False, output="json")
    if whole:
        assert scrub.scrub_nodes(arguments) == 0
    else:
        with pytest.raises(VarlogError, match="node 1 was stopped before everything was read"):
            scrub.scrub_nodes(arguments)
    assert '"read_bytes": 7' in capsys.readouterr().out
