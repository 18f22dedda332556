"""How several processes share the tests, and what tests of several rooms share."""

from collections.abc import Iterator

import pytest
from tests.archive.s3 import S3, s3_server
from tools.etcd import Ensemble, running
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

LONG = ("spark", "cluster", "cli", "metadata")
"""Rooms that take longest: begun first, lest one process wait for the others at the end. Then all others."""

SINGLE = "tests/sim/test_teeth.py"
"""Tests that take long and share nothing: each may be any process's. Last of all, to fill up whoever is free."""


HEAVY = "tests/spark/"
"""Each process that plays one of these runs a Java machine or more, all on the same processors: half of the processes
do, as long as there is something else for the others. Spark gives up what has no answer for ten seconds."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """A process plays the tests of a file in a row, so that what they share is made once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file == SINGLE else file

    def _assign_work_unit(self, node: object) -> None:
        """Of what waits, the first that suits the process."""
        if self.nodes.index(node) % 2:
            light = next((scope for scope in self.workqueue if not scope.startswith(HEAVY)), None)
            if light is not None:
                self.workqueue.move_to_end(light, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    room = item.path.parent.name
    if item.nodeid.startswith(SINGLE):
        return len(LONG) + 1
    return LONG.index(room) if room in LONG else len(LONG)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """One real etcd member for all tests that leave it running; each uses a prefix of its own."""
    with running(tmp_path_factory.mktemp("shared")) as ensemble:
        yield ensemble


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """One real S3 server for all tests; each log has a prefix of its own."""
    with s3_server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server
