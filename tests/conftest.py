"""What tests of several rooms share."""

from collections.abc import Iterator

import pytest
from tests.archive.s3 import S3, s3_server
from tools.etcd import Ensemble, running

TOGETHER = ("spark",)
"""Rooms whose tests share servers that take long to start: one process plays them all."""

ALONE = ("test_teeth.py",)
"""Files whose tests take long and share nothing: each may be any process's."""

LONG = ("spark", "cluster", "cli", "metadata")
"""Rooms that take longest: begun first, lest one process wait for the others at the end. Then all others, then `ALONE`,
which fill up whoever is free."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes share the tests by file, by room, or one by one: marked before pytest-xdist looks at it."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_rank)


def _group(item: pytest.Item) -> str:
    room, file = item.path.parent.name, item.path.name
    if room in TOGETHER:
        return room
    return item.nodeid if file in ALONE else str(item.path)


def _rank(item: pytest.Item) -> int:
    room, file = item.path.parent.name, item.path.name
    if file in ALONE:
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
