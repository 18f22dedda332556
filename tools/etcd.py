"""A real etcd for tests, benches and first steps: found on the PATH, or taken from Debian without root.

`./run etcd` starts members on loopback in the foreground and says where; `Ensemble` is the same for programs.
The Debian package is fetched and checked by apt, and unpacked below .venv; nothing is installed.
"""

import argparse
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".venv" / "etcd"
PACKAGE = "etcd-server"
OLDEST = (3, 4, 0)
WITHDRAWN = ((3, 5, 0), (3, 5, 3))
"""[first, second): releases that may corrupt what they store."""

LOOPBACK = "127.0.0.1"
PORTS = range(12_000, 30_000)
"""Below those that systems give to outgoing connections."""
START_S = 30.0
"""How long a member may take until it serves."""
STARTS = 3
"""How often a start is tried: another program may take a port between our look and etcd's."""

HINT = "install etcd 3.4, or 3.5.3 and newer, and put it on the PATH"


class NoEtcd(Exception):
    """There is none, or it is not to be used; the text says what to do."""


# ---------------------------------------------------------------- finding it


def find() -> Path:
    """The etcd to use: the PATH's if it is sound, else Debian's, fetched once."""
    on_path = shutil.which("etcd")
    if on_path is not None:
        check_version(Path(on_path))
        return Path(on_path)
    cached = CACHE / "usr" / "bin" / "etcd"
    if not cached.exists():
        fetch(CACHE)
        check_version(cached)
    return cached


def check_version(binary: Path) -> None:
    """Raise `NoEtcd` unless it is a version that can be trusted with data."""
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", told)
    if found is None:
        raise NoEtcd(f"{binary} does not tell its version; {HINT}")
    version = tuple(int(part) for part in found.groups())
    if version < OLDEST or WITHDRAWN[0] <= version < WITHDRAWN[1]:
        raise NoEtcd(f"{binary} is version {'.'.join(found.groups())}, which is not to be trusted with data; {HINT}")


def fetch(target: Path) -> None:
    """Unpack Debian's package into `target`, all or nothing."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NoEtcd(f"there is no etcd on the PATH, and this is no Debian to take it from; {HINT}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="etcd-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # apt drops its rights for the download
        step(["apt-get", "download", "-qq", PACKAGE], folder)
        package = next(folder.glob(f"{PACKAGE}_*.deb"))
        unpacked = folder / "unpacked"
        step(["dpkg", "-x", str(package), str(unpacked)], folder)
        try:
            unpacked.rename(target)
        except OSError:
            if not (target / "usr" / "bin" / "etcd").exists():  # else another run was faster
                raise


def step(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoEtcd(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}; {HINT}")


# ---------------------------------------------------------------- members


@dataclass(frozen=True)
class Tls:
    """Files of a mutual TLS set-up between clients and members."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(eq=False)
class Member:
    """One etcd process that can be killed, stopped, and started again on its data."""

    name: str
    folder: Path
    client_port: int
    peer_port: int
    host: str = LOOPBACK
    command: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.client_port}"

    @property
    def peer(self) -> str:
        return f"{self.name}=http://{self.host}:{self.peer_port}"

    def start(self) -> None:
        """Does not wait; see `Ensemble.wait_ready`."""
        if self.process is not None:
            raise RuntimeError(f"{self.name} runs already")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """As `kill -9` does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """In good order."""
        self._end(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a stopped one ends too
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def last_words(self) -> str:
        path = self.folder / "log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-5:]) if path.exists() else ""


class Ensemble:
    """Members on this machine that form one etcd."""

    def __init__(
        self,
        folder: Path,
        members: int = 1,
        *,
        tls: Tls | None = None,
        options: Sequence[str] = (),
        host: str = LOOPBACK,
        launch: Sequence[str] = (),
    ) -> None:
        """`host`: where they serve; `launch`: what stands before their commands."""
        self._folder = folder
        self._host = host
        self._launch = launch
        self._tls = tls
        self._options = list(options)
        self._binary = find()
        self.members = self._make(members)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self) -> None:
        """Start all and wait until they serve."""
        for attempt in range(1, STARTS + 1):
            for member in self.members:
                member.start()
            try:
                self.wait_ready()
                return
            except NoEtcd:
                self.close()
                if attempt == STARTS:
                    raise
                shutil.rmtree(self._folder)
                self.members[:] = self._make(len(self.members))

    def _make(self, count: int) -> list[Member]:
        ports = free_ports(2 * count)
        members = []
        for number in range(count):
            folder = self._folder / f"member{number + 1}"
            folder.mkdir(parents=True)
            client_port, peer_port = ports[2 * number : 2 * number + 2]
            members.append(Member(f"member{number + 1}", folder, client_port, peer_port, self._host))
        for member in members:
            member.command = self._command(member, members)
        return members

    def _command(self, member: Member, members: list[Member]) -> list[str]:
        scheme = "http" if self._tls is None else "https"
        client, peer = f"{scheme}://{member.endpoint}", f"http://{member.host}:{member.peer_port}"
        flags = {
            "name": member.name,
            "data-dir": str(member.folder / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(each.peer for each in members),
            "initial-cluster-token": self._folder.name,
            "initial-cluster-state": "new",
            "logger": "zap",
            "log-level": "error",
        }
        if self._tls is not None:
            flags |= {
                "cert-file": str(self._tls.certificate),
                "key-file": str(self._tls.key),
                "trusted-ca-file": str(self._tls.authority),
                "client-cert-auth": "true",
            }
        given = (f"--{name}={value}" for name, value in flags.items())
        return [*self._launch, str(self._binary), *given, *self._options]

    def wait_ready(self) -> None:
        """Until every member that runs serves; raises `NoEtcd` with its last words when one does not."""
        for member in self.members:
            end = time.monotonic() + START_S
            while member.process is not None and not self._serves(member):
                if not member.alive() or time.monotonic() > end:
                    raise NoEtcd(f"{member.name} did not start:\n{member.last_words()}")
                time.sleep(0.02)

    def _serves(self, member: Member) -> bool:
        """Over TLS only the port is tried: etcd opens it when it is ready."""
        try:
            if self._tls is not None:
                socket.create_connection((member.host, member.client_port), 1).close()
                return True
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://{member.endpoint}/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except (OSError, urllib.error.URLError):
            return False

    def close(self) -> None:
        """End all that run."""
        for member in self.members:
            member.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, all different, and that nobody is given by chance while a server of ours is away."""
    found: list[int] = []
    random = Random()
    while len(found) < count:
        port = random.choice(PORTS)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


@contextmanager
def running(
    folder: Path, members: int = 1, *, tls: Tls | None = None, options: Sequence[str] = ()
) -> Iterator[Ensemble]:
    """An etcd that ends with the block."""
    ensemble = Ensemble(folder / "etcd", members, tls=tls, options=options)
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.close()


# ---------------------------------------------------------------- ./run etcd


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run etcd", description="Run an etcd on loopback until interrupted.")
    parser.add_argument("--members", type=int, choices=(1, 3, 5), default=1, help="how many (default: 1)")
    parser.add_argument("--path", action="store_true", help="only say where the program is")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # leave through the blocks that end the members
    try:
        if options.path:
            print(find())
            return
        with tempfile.TemporaryDirectory(prefix="etcd-") as made, running(Path(made), options.members) as ensemble:
            print(f"ready {','.join(ensemble.endpoints)}", flush=True)
            print("its data goes with it; interrupt to end it", file=sys.stderr)
            while all(member.alive() for member in ensemble.members):
                time.sleep(0.2)
            sys.exit("etcd: a member ended by itself")
    except NoEtcd as error:
        sys.exit(f"etcd: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
