"""A real cluster for tests: one repository, some nodes and some clients, each its own process on loopback.

Servers are the installed `varlog repository start` and `varlog node start`. A node takes a free port in
every life, so it comes back at another address; the repository keeps its own, from below the range out of
which the system gives ports to outgoing connections.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.processes import PATIENCE_S, VARLOG, Process, eventually, run_varlog
from tools.etcd import free_ports

import varlog
from varlog.cli.serve import SERVES

FILE_BYTES = 1 << 20
"""Small, so that a short test goes through many files."""

LOOK_S = 2.0
"""So long a repository that may not be there yet is waited for before it is looked again."""

EXPECTED = re.compile(r"varlog: (no repository at [^ ]*, trying on: |connected to the repository at )")
"""What a node may say on standard error when the repository is away."""


class Server(Process):
    """A repository or a node."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str]) -> None:
        super().__init__(name, folder, [VARLOG, *arguments])

    @property
    def address(self) -> str:
        """Where the present life serves; empty until it does."""
        words = self.output.read_text().split() if self.output.exists() else []
        return words[2] if words[1:2] == [SERVES] and len(words) == 3 else ""

    def wait_serving(self) -> str:
        """Wait until it serves; where."""

        def look() -> str:
            assert self.alive, f"{self} ended with status {self.status}: {self.last_words()}"
            return self.address

        return eventually(look, f"{self} serves")


class RealCluster:
    """Everything that runs, and how to start and end it."""

    def __init__(self, folder: Path, nodes: int, seed: int = 0, *, file_bytes: int = FILE_BYTES) -> None:
        self.folder = folder
        self.seed = seed
        self.processes: list[Process] = []
        (self.port,) = free_ports(1)
        listen = f"127.0.0.1:{self.port}"
        self.url = f"varlog://{listen}"
        arguments = ["repository", "start", "--data", str(folder / "repository"), "--listen", listen]
        self.repository = Server("repository", folder, arguments)
        self.nodes: list[Server] = [self._node(number, listen, file_bytes) for number in range(1, nodes + 1)]
        self.clients: list[ClientProcess] = []
        self.client_command = [sys.executable, "-m", "tests.cluster.client_program"]

    def _node(self, number: int, repository: str, file_bytes: int) -> Server:
        arguments = ["node", "start", "--repository", repository, "--data", str(self.data(number))]
        arguments += ["--id", str(number), "--file-bytes", str(file_bytes)]
        return Server(f"node{number}", self.folder, arguments)

    def plant(self, bug: str) -> None:
        """Every process started from now on has this bug of `varlog.sim.bugs`."""
        planted = [sys.executable, "-m", "tests.cluster.planted", bug]
        for server in self.servers:
            server.command = [*planted, "varlog", *server.command[1:]]
        self.client_command = [*planted, "client"]

    @property
    def servers(self) -> list[Server]:
        return [self.repository, *self.nodes]

    def data(self, number: int) -> Path:
        """The data folder of a node."""
        return self.folder / f"data{number}"

    # ------------------------------------------------------------ starting and ending

    def start(self) -> None:
        """All servers, and wait until the cluster works."""
        for server in self.servers:
            server.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Every node is connected and every replica has reported."""
        for server in self.servers:
            server.wait_serving()
        eventually(lambda: not self.missing(), "the cluster is ready")

    def missing(self) -> list[str]:
        """What keeps the cluster from working."""
        try:
            with varlog.sync.connect(self.url, timeout=LOOK_S) as cluster:
                status = cluster.status()
        except varlog.VarlogError as error:
            return [error.message]
        connected = [node.id for node in status.nodes if node.connected]
        found = [f"node {number}" for number in range(1, len(self.nodes) + 1) if number not in connected]
        streams = [(log.log.name, stream) for log in status.logs for stream in log.streams]
        return found + [
            f"stream {stream.stream} of {name}"
            for name, stream in streams
            if not all(replica.reported for replica in stream.replicas)
        ]

    def add_client(
        self, role: str, log: str, name: str = "", *, pace: float = 0.05, timeout: float | None = None
    ) -> "ClientProcess":
        """A client process, not yet started."""
        client = ClientProcess(self, name or f"{role}{len(self.clients) + 1}", role, log, pace, timeout)
        self.clients.append(client)
        return client

    def close(self) -> None:
        """End everything that was started. Asking nicely is for tests that care."""
        for process in (*self.clients, *self.servers, *self.processes):
            process.kill()

    # ------------------------------------------------------------ looking

    @contextmanager
    def connected(self) -> "Iterator[varlog.sync.Cluster]":
        """A client of our own, as patient as we are: whoever should answer may be slow, or about to be back."""

        def reach() -> "varlog.sync.Cluster | None":
            try:
                return varlog.sync.connect(self.url, timeout=PATIENCE_S).__enter__()
            except varlog.Unavailable:
                return None

        cluster = eventually(reach, "the repository answers")
        try:
            yield cluster
        finally:
            cluster.close()

    def ask(self, question: "Callable[[varlog.sync.Cluster], Any]") -> Any:
        """Ask by a client of our own."""
        with self.connected() as cluster:
            return question(cluster)

    def status(self) -> varlog.ClusterStatus:
        status = self.ask(lambda cluster: cluster.status())
        assert isinstance(status, varlog.ClusterStatus)
        return status

    def status_page(self) -> dict[str, Any]:
        """What `varlog status -o json` prints."""
        done = run_varlog("status", "-o", "json", url=self.url)
        assert done.stdout, done.stderr.decode()
        page = json.loads(done.stdout)
        assert isinstance(page, dict)
        return page

    def complaints(self) -> list[str]:
        """What no process should have said or done: nobody ends by itself, and nobody has anything to complain of."""
        found = []
        for process in (*self.servers, *self.clients):
            for name, text in process.all_errors().items():
                found += [f"{name} says: {line}" for line in text.splitlines() if not EXPECTED.match(line)]
            if process.status not in (None, 0, -9):
                found.append(f"{process} ended with status {process.status}")
        return found


class ClientProcess(Process):
    """A `client_program`."""

    def __init__(
        self, cluster: RealCluster, name: str, role: str, log: str, pace: float, timeout: float | None
    ) -> None:
        super().__init__(name, cluster.folder, [])
        self.role = role
        self._fixed = [*cluster.client_command, "--cluster", cluster.url, "--log", log, "--name", name, "--role", role]
        self._fixed += ["--folder", str(cluster.folder), "--seed", str(cluster.seed), "--pace", str(pace)]
        if timeout is not None:
            self._fixed += ["--timeout", str(timeout)]

    @property
    def subscribes(self) -> bool:
        return self.role.startswith("subscribe")

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        if self.subscribes:
            self._position.touch()  # from now on nothing is trimmed that it has not had
        self.command = [*self._fixed, "--life", str(self.life + 1)]
        super().start(environment)

    def recordings(self) -> list[Path]:
        """One for each life that was long enough to begin one, in order."""
        paths = [self.folder / f"{self.name}.{life}.jsonl" for life in range(1, self.life + 1)]
        return [path for path in paths if path.exists()]

    @property
    def at_work(self) -> bool:
        """Far enough to end properly when asked to."""
        return (self.folder / f"{self.name}.{self.life}.jsonl").exists()

    @property
    def position(self) -> int:
        """How far a subscriber is."""
        return int(self._position.read_bytes() or b"0") if self._position.exists() else 0

    @property
    def _position(self) -> Path:
        return self.folder / f"{self.name}.position"


@contextmanager
def real_cluster(folder: Path, nodes: int = 3, seed: int = 0, *, file_bytes: int = FILE_BYTES) -> Iterator[RealCluster]:
    """A cluster that works; ended with the block, whatever happens in it."""
    cluster = RealCluster(folder, nodes, seed, file_bytes=file_bytes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def sleep_until(moment: float) -> None:
    """On the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))
