"""Hosts in namespaces of their own, and cables that are cut."""

import socket
import subprocess
import sys

import pytest
from tools.namespaces import Host, network

CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.3).close()
    print("answered")
except ConnectionRefusedError:
    print("refused")
except TimeoutError:
    print("silence")
"""


def connects(source: Host, target: Host, port: int = 9) -> str:
    command = [*source.launch, sys.executable, "-c", CONNECT, target.address, str(port)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_cut_is_silent_and_of_two_hosts_only() -> None:
    with network() as hub:
        one, two, three = hub.add(), hub.add(), hub.add()
        assert connects(one, two) == "refused"
        hub.cut(one, two)
        assert [connects(one, two), connects(two, one)] == ["silence", "silence"]
        assert [connects(one, three), connects(three, two)] == ["refused", "refused"]
        hub.heal()
        assert connects(one, two) == "refused"


def test_the_hub_is_left_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with network(), pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)
        socket.create_connection(("127.0.0.1", port), 1).close()
