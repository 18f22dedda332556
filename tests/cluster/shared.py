"""A real cluster whose repositories share an etcd, on loopback or each process on a host of its own."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cluster import FILE_BYTES, RealCluster, Server
from tests.cluster.processes import Process
from tools.etcd import LOOPBACK, Ensemble, Member, free_ports
from tools.namespaces import Host, Hub

import varlog


class EtcdMember(Process):
    """A member of an etcd, as faults see it."""

    def __init__(self, member: Member) -> None:
        super().__init__(member.name.replace("member", "etcd"), member.folder, [])
        self._member = member

    @property
    def alive(self) -> bool:
        return self._member.alive()

    def start(self, environment: object = None) -> None:
        self._member.start()

    def kill(self) -> None:
        self._member.kill()

    def signal(self, number: signal.Signals) -> None:
        self._member.send(number)


class SharedCluster(RealCluster):
    """Several repositories; with a hub, every server on a host of its own."""

    def __init__(
        self, folder: Path, etcd: Ensemble, *, repositories: int, nodes: int = 3, seed: int = 0, hub: Hub | None = None
    ) -> None:
        super().__init__(folder, nodes, seed)
        self.members = [EtcdMember(member) for member in etcd.members]
        self.hosts: dict[Server, Host] = {}
        self._hub = hub
        endpoints = ",".join(etcd.endpoints)
        self.repositories = [self._place(f"repository{number}") for number in range(1, repositories + 1)]
        self.addresses: dict[Server, str] = {}
        for server, port in zip(self.repositories, free_ports(repositories), strict=True):
            self.addresses[server] = f"{self._address(server)}:{port}"
            server.command += ["repository", "start", "--etcd", endpoints, "--listen", self.addresses[server]]
        self.repository = self.repositories[0]
        self.url = f"varlog://{','.join(self.addresses.values())}"
        self.nodes = [self._place(f"node{number}") for number in range(1, nodes + 1)]
        for number, server in enumerate(self.nodes, 1):
            server.command += ["node", "start", "--repository", ",".join(self.addresses.values())]
            server.command += ["--data", str(self.data(number)), "--id", str(number)]
            server.command += ["--file-bytes", str(FILE_BYTES), "--listen", f"{self._address(server)}:0"]

    def _place(self, name: str) -> Server:
        server = Server(name, self.folder, [])
        if self._hub is not None:
            self.hosts[server] = host = self._hub.add()
            server.command = [*host.launch, *server.command]
        return server

    def _address(self, server: Server) -> str:
        return self.hosts[server].address if self._hub is not None else LOOPBACK

    @property
    def servers(self) -> list[Server]:
        return [*self.repositories, *self.nodes]

    def leader(self) -> Server | None:
        """The repository that answers for itself; None: nobody does just now."""
        for server, address in self.addresses.items():
            if server.alive:
                try:
                    with varlog.sync.connect(f"varlog://{address}", timeout=0.3) as cluster:
                        cluster.status()
                        return server
                except varlog.VarlogError:
                    continue
        return None


@contextmanager
def shared_cluster(
    folder: Path, etcd: Ensemble, *, repositories: int, seed: int = 0, hub: Hub | None = None
) -> Iterator[SharedCluster]:
    """A cluster that works; ended with the block, whatever happens in it."""
    cluster = SharedCluster(folder, etcd, repositories=repositories, seed=seed, hub=hub)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
