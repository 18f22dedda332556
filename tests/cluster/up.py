"""A cluster that `varlog up --restart` runs: its processes are found in `processes.json` and killed by their pids."""

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cluster import RealCluster, Server
from tests.cluster.processes import VARLOG, Process, eventually, unexpected

TOLD = re.compile(
    r"varlog: (node|repository) \d+ (was ended by SIGKILL; starting it again"
    r"|did not start: (it said nothing; see .*|no repository at .*, trying on: .*|connected to the repository at .*))"
)
"""What `varlog up` says of a process that was killed, while it served or while it started, with its last words."""


class Member(Server):
    """A process that `varlog up` started, and starts again."""

    def __init__(self, folder: Path, role: str, number: int) -> None:
        super().__init__(f"{role}{number}", folder, [])
        self._role = role
        self._number = number

    @property
    def _listed(self) -> dict[str, str]:
        path = self.folder / "processes.json"
        listed = json.loads(path.read_text()) if path.exists() else []
        return next((each for each in listed if (each["role"], each["id"]) == (self._role, self._number)), {})

    @property
    def pid(self) -> int:
        return int(self._listed.get("pid", 0))

    @property
    def address(self) -> str:
        return self._listed.get("address", "") if self.alive else ""

    @property
    def alive(self) -> bool:
        try:
            state = Path(f"/proc/{self.pid or 'nobody'}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state != "Z"

    @property
    def status(self) -> int | None:
        return None  # that is for its parent to know

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Its parent does that."""

    def kill(self) -> None:
        if self.alive:
            pid = self.pid
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: self.pid != pid or not self.alive, f"{self} is gone")

    def wait_serving(self) -> str:
        return eventually(lambda: self.address, f"{self} serves")

    def all_errors(self) -> dict[str, str]:
        path = self.folder / f"{self._role}-{self._number}.log"
        text = unexpected(path.read_text()) if path.exists() else ""
        return {path.name: text} if text else {}


class UpCluster(RealCluster):
    """The same, but nobody is started one by one."""

    def __init__(self, folder: Path, nodes: int, seed: int) -> None:
        self._own = folder / "up"
        super().__init__(folder, nodes, seed)
        command = [VARLOG, "up", "--data", str(self._own), "--port", str(self.port), "--nodes", str(nodes), "--restart"]
        self.up = Process("varlog-up", folder, command)
        self.repository = Member(self._own, "repository", 1)
        self.nodes = [Member(self._own, "node", number) for number in range(1, nodes + 1)]

    def data(self, number: int) -> Path:
        return self._own / f"node-{number}"

    def start(self) -> None:
        self.up.start()
        eventually(lambda: f"ready {self.url}" in self.up.output.read_text().splitlines(), "`varlog up` is ready")

    def close(self) -> None:
        """`varlog up` is killed too: its processes must end by themselves."""
        self.up.kill()
        for client in (*self.clients, *self.processes):
            client.kill()
        eventually(lambda: not any(server.alive for server in self.servers), "nothing outlives `varlog up`")

    def complaints(self) -> list[str]:
        said = [line for text in self.up.all_errors().values() for line in text.splitlines()]
        return super().complaints() + [f"varlog up says: {line}" for line in said if not TOLD.fullmatch(line)]


@contextmanager
def up_cluster(folder: Path, nodes: int, seed: int) -> Iterator[UpCluster]:
    """Ended with the block, whatever happens in it."""
    cluster = UpCluster(folder, nodes, seed)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
