"""One cluster of processes and one small Spark for all tests of this room; both take seconds to start."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.archive.s3 import CREDENTIALS
from tests.cluster.cluster import RealCluster, real_cluster

import varlog
from varlog.spark import local_session
from varlog.spark.options import Options

NUMBERS = count(1)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with real_cluster(tmp_path_factory.mktemp("servers"), file_bytes=4 << 20) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def client(servers: RealCluster) -> Iterator[varlog.sync.Cluster]:
    with servers.connected() as cluster:
        yield cluster


@pytest.fixture
def log(client: varlog.sync.Cluster) -> varlog.sync.Log:
    """A log of its own for each test."""
    return client.create_log(f"log{next(NUMBERS)}", replicas=2, streams=2)


@pytest.fixture
def options(servers: RealCluster, log: varlog.sync.Log) -> Options:
    return Options(cluster=servers.url, log=log.name)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder: Path = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.local.dir": str(folder / "local"),
    }
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():  # of the S3 server; workers inherit them when they are started
            environment.setenv(name, value)
        session = local_session("tests", settings=settings)
        yield session
        session.stop()
