"""A job on a real Spark cluster of a master and two workers, an executor and a storage node of which are killed."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from tests.cluster.cluster import real_cluster
from tests.cluster.processes import Process, eventually
from tests.spark.job_program import COUNT
from tools.etcd import free_ports

import varlog
from varlog.spark.java import find_java

SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


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
    (port,) = free_ports(1)
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


def fill(log: varlog.sync.Log, first: int) -> None:
    """Half of the entries: a copy of the other half is made when that is there."""
    for start in range(first, first + COUNT // 2, 1000):
        log.append_batch([b"%d" % number for number in range(start, start + 1000)])


def copied(log: varlog.sync.Log) -> list[int]:
    return sorted(int(payload) for batch in log.subscribe(wait=False).batches() for payload in batch.payloads())


def test_a_query_and_a_job_survive_killed_executors_and_killed_storage_nodes(tmp_path: Path) -> None:
    """Of each an executor and a storage node, in the middle of it."""
    with (
        real_cluster(tmp_path, 4) as servers,
        servers.connected() as client,
        spark_cluster(tmp_path) as (master, workers),
    ):
        names = ("source", "streamed", "target")
        source, streamed, target = (client.create_log(name, replicas=2, streams=2) for name in names)
        fill(source, 0)
        job = Process("job", tmp_path, [sys.executable, "-m", "tests.spark.job_program"])
        job.command += [master, servers.url, *names, str(tmp_path)]
        job.start()
        try:
            acts: list[tuple[varlog.sync.Log, SparkProcess, int, Callable[[], None]]] = [
                (streamed, workers[0], 0, lambda: fill(source, COUNT // 2)),
                (target, workers[1], 1, (tmp_path / target.name).touch),
            ]
            for log, worker, node, go_on in acts:
                job.brings(log.tail, "it is at work", 180)
                os.kill(eventually(worker.children, f"{worker} has an executor")[0], signal.SIGKILL)
                servers.nodes[node].kill()
                reached = log.tail()
                assert reached < COUNT
                go_on()
                job.brings(lambda log=log, reached=reached: log.tail() > reached, "it goes on", 180)  # type: ignore[misc]
                servers.nodes[node].start()  # the next one may have the only other copy of something
                servers.wait_ready()
            assert job.ended(240) == 0, job.last_words()
        finally:
            job.kill()
        told = json.loads(job.output.read_text().splitlines()[-1])
        assert told["sums"] == [COUNT, sum(range(COUNT))]
        assert all(".zip" in home for home in told["homes"]), "the executors ran the package that was shipped"
        assert copied(streamed) == copied(target) == list(range(COUNT))
