"""What tests of several rooms share."""

from collections.abc import Iterator

import pytest
from tests.archive.s3 import S3, s3_server
from tools.etcd import Ensemble, running

TOGETHER = ("spark",)
"""Rooms whose tests share servers that take long to start: one process plays them all."""

LONG = ("spark", "test_teeth.py", "cluster", "cli", "metadata")
"""What takes longest, rooms and files: begun first, lest one process wait for the other at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes share the tests by file, or by room: marked before pytest-xdist looks at the marks."""
    for item in items:
        room = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group(room if room in TOGETHER else str(item.path)))
    items.sort(key=lambda item: min(_rank(item.path.parent.name), _rank(item.path.name)))


def _rank(name: str) -> int:
    return LONG.index(name) if name in LONG else len(LONG)


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
