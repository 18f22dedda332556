"""A job on a real Spark cluster of a master and two workers, an executor and a storage node of which are killed."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyspark
from tests.cluster.cluster import free_port, real_cluster
from tests.cluster.processes import Process, eventually

import varlog
from varlog.spark.java import find_java

SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
COUNT = 20_000


class SparkProcess(Process):
    """A master or a worker; what a worker starts is killed with it."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        kind = "master.Master" if name == "master" else "worker.Worker"
        web = ["--webui-port", "0"]
        super().__init__(
            name, folder, [SPARK_CLASS, f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *web, *arguments]
        )

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        super().start(
            {
                "JAVA_HOME": str(find_java()),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                **(environment or {}),
            }
        )

    def children(self) -> list[int]:
        """Executors, if this is a worker."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(path.read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it has just ended
            if parent == self.pid:
                found.append(int(path.parent.name))
        return found

    def kill(self) -> None:
        if self.alive:
            for child in self.children():
                os.kill(child, signal.SIGKILL)
        super().kill()


@contextmanager
def spark_cluster(folder: Path) -> Iterator[tuple[str, list[SparkProcess]]]:
    """The address of the master, and two workers with a core each."""
    port = free_port(Random())
    url = f"spark://127.0.0.1:{port}"
    master = SparkProcess(folder, "master", "--port", str(port))
    size = ("--cores", "1", "--memory", "700m")
    workers = [
        SparkProcess(folder, f"worker{number}", *size, "-d", str(folder / f"work{number}"), url) for number in (1, 2)
    ]
    try:
        for process in (master, *workers):
            process.start()
        registered = "Successfully registered with master"
        for worker in workers:
            eventually(lambda each=worker: registered in each.last_words(), f"{worker} is registered", 120)  # type: ignore[misc]
        yield url, workers
    finally:
        for process in (*workers, master):
            process.kill()


def copied(log: varlog.sync.Log) -> list[int]:
    return sorted(int(payload) for batch in log.subscribe(wait=False).batches() for payload in batch.payloads())


def test_a_query_and_a_job_survive_killed_executors_and_killed_storage_nodes(tmp_path: Path) -> None:
    """Of each an executor and a storage node, in the middle of it."""
    with (
        real_cluster(tmp_path, 4) as servers,
        varlog.sync.connect(servers.url, timeout=30) as client,
        spark_cluster(tmp_path) as (master, workers),
    ):
        names = ("source", "streamed", "target")
        source, streamed, target = (client.create_log(name, replicas=2, streams=2) for name in names)
        for start in range(0, COUNT, 1000):
            source.append_batch([b"%d" % number for number in range(start, start + 1000)])
        job = Process("job", tmp_path, [sys.executable, "-m", "tests.spark.job_program"])
        job.command += [master, servers.url, *names, str(tmp_path / "checkpoint")]
        job.start()
        try:
            for log, worker, node in ((streamed, workers[0], 0), (target, workers[1], 1)):
                job.brings(log.tail, "it is at work", 180)
                os.kill(worker.children()[0], signal.SIGKILL)
                servers.nodes[node].kill()
                reached = log.tail()
                assert reached < COUNT
                job.brings(lambda log=log, reached=reached: log.tail() > reached, "it goes on", 180)  # type: ignore[misc]
                servers.nodes[node].start()  # the next one may have the only other copy of something
            assert job.ended(240) == 0, job.last_words()
        finally:
            job.kill()
        told = json.loads(job.output.read_text().splitlines()[-1])
        assert told["sums"] == [COUNT, sum(range(COUNT))]
        assert all(".zip" in home for home in told["homes"]), "the executors ran the package that was shipped"
        assert copied(streamed) == copied(target) == list(range(COUNT))
