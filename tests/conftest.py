"""What tests of several rooms share."""

from collections.abc import Iterator

import pytest
from tools.etcd import Ensemble, running


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """One real etcd member for all tests that leave it running; each uses a prefix of its own."""
    with running(tmp_path_factory.mktemp("shared")) as ensemble:
        yield ensemble
