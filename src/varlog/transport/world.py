"""The world of a real process: its clock, its sockets, true chance."""

import os
import ssl
from random import Random

from varlog.ports import World
from varlog.runtime.clock import RealClock
from varlog.transport.tcp import TcpNetwork


def real_world(*, server_tls: ssl.SSLContext | None = None, client_tls: ssl.SSLContext | None = None) -> World:
    """What a node, repository or client of production is handed."""
    return World(
        clock=RealClock(),
        network=TcpNetwork(server_tls=server_tls, client_tls=client_tls),
        random=Random(os.urandom(32)),
    )
