"""What tests of several rooms share."""

from collections.abc import Iterator

import pytest
from tests.archive.s3 import S3, s3_server
from tools.etcd import Ensemble, running


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
