"""A small network of namespaces for tests with real partitions: hosts of their own, joined by a router that can drop.

    hub (the calling thread)      10.77.1.1 ── 10.77.1.2  host 1
                                  10.77.2.1 ── 10.77.2.2  host 2      ...

Whoever runs in the hub reaches every host, and hosts reach each other through it, unless a rule of the hub drops what
goes between two of them: silently, as a cut cable does. Needs root and iproute2, which is installed from
Debian if it is missing. Nothing outside of the namespaces is changed.
"""

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
MOST_HOSTS = 250
PACKAGE = "iproute2"
HINT = "run as root, on Linux with iproute2, where network namespaces may be made"


class NoNamespaces(Exception):
    """They cannot be made here; the text says what to do."""


def find() -> str:
    """The `ip` command, installed if it is missing."""
    there = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
    if there is not None:
        return there
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoNamespaces(f"there is no `ip` command; {HINT}")
    _step(["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE])
    return find()


class Host:
    """One namespace with one address."""

    def __init__(self, ip: str, name: str, number: int) -> None:
        self.name = name
        self.address = f"10.77.{number}.2"
        self.launch = [ip, "netns", "exec", name]
        """What to put before a command that is to run there; its process is the command's own."""


class Hub:
    """The router, and the hosts around it. Made by `network`."""

    def __init__(self, ip: str) -> None:
        self._ip = ip
        self.hosts: list[Host] = []
        self._rules: list[list[str]] = []

    def add(self) -> Host:
        """Another host."""
        number = len(self.hosts) + 1
        if number > MOST_HOSTS:
            raise NoNamespaces(f"a hub has {MOST_HOSTS} hosts at most")
        host = Host(self._ip, f"varlog-{os.getpid()}-{number}", number)
        router = f"10.77.{number}.1"
        self._run("netns", "add", host.name)
        self.hosts.append(host)
        self._run("link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns", host.name)
        self._run("addr", "add", f"{router}/24", "dev", f"host{number}")
        self._run("link", "set", f"host{number}", "up")
        inside = ("-n", host.name)
        self._run(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
        self._run(*inside, "link", "set", "eth0", "up")
        self._run(*inside, "link", "set", "lo", "up")
        self._run(*inside, "route", "add", "default", "via", router)
        return host

    def cut(self, one: Host, other: Host) -> None:
        """Nothing passes between them, in either direction."""
        for source, target in ((one, other), (other, one)):
            rule = ["from", source.address, "to", target.address, "blackhole"]
            self._run("rule", "add", *rule)
            self._rules.append(rule)

    def heal(self) -> None:
        """Everything passes."""
        while self._rules:
            self._run("rule", "del", *self._rules.pop())

    def close(self) -> None:
        """Remove the hosts; what still runs in them keeps them alive."""
        for host in self.hosts:
            self._run("netns", "del", host.name)
        self.hosts.clear()

    def _run(self, *arguments: str) -> None:
        _step([self._ip, *arguments])


@contextmanager
def network() -> Iterator[Hub]:
    """For the block, this thread, and what it starts, is in a hub of its own."""
    ip = find()
    before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
    try:
        _system_call("unshare", CLONE_NEWNET)
        hub = Hub(ip)
        try:
            _step([ip, "link", "set", "lo", "up"])
            FORWARDING.write_text("1\n")
            yield hub
        finally:
            hub.close()
            _system_call("setns", before, CLONE_NEWNET)
    finally:
        os.close(before)


def _system_call(name: str, *arguments: int) -> None:
    """Of the calling thread alone."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        raise NoNamespaces(f"{name} failed: {os.strerror(ctypes.get_errno())}; {HINT}")


def _step(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNamespaces(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}; {HINT}")
