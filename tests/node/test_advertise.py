"""A server that others reach by another address than the one it serves at says so."""

from pathlib import Path

import pytest
from tests.servers import run, servers

import varlog
from varlog.base.errors import InvalidArgument
from varlog.node import NodeConfig
from varlog.repository import RepositoryConfig
from varlog.transport.tcp import advertised

REPOSITORY = ("127.0.0.1:7700",)


def test_others_are_sent_to_what_it_says(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, nodes=0, advertise="localhost:0") as cluster:
            served = cluster.repository_address.replace("localhost", "127.0.0.1")
            for number in (1, 2):
                await cluster.start_node(number, advertise="localhost:0")
            async with varlog.connect(f"varlog://{served}") as client:
                ports = [node.address.partition(":") for node in await client.nodes()]
                assert [(host, int(port) > 0) for host, _, port in ports] == [("localhost", True)] * 2
                log = await client.create_log("orders", replicas=2)
                assert (await log.append(b"found")).glsn == 1

    run(story())


def test_the_port_may_be_that_of_the_server() -> None:
    assert advertised("", "127.0.0.1:5000") == "127.0.0.1:5000"
    assert advertised("db1.example:0", "0.0.0.0:5000") == "db1.example:5000"
    assert advertised("db1.example:6000", "0.0.0.0:5000") == "db1.example:6000"
    assert advertised("[2001:db8::1]:0", "[::]:5000") == "[2001:db8::1]:5000"


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "[::0]:0", "0:0"])
def test_who_serves_everywhere_must_say_where(listen: str) -> None:
    with pytest.raises(InvalidArgument, match="advertise"):
        NodeConfig(REPOSITORY, listen=listen)
    with pytest.raises(InvalidArgument, match="advertise"):
        NodeConfig(REPOSITORY, listen="127.0.0.1:0", advertise=listen)
    with pytest.raises(InvalidArgument, match="advertise"):
        RepositoryConfig(advertise=listen)
    assert NodeConfig(REPOSITORY, listen=listen, advertise="db1.example:0").advertise
    assert RepositoryConfig(listen=listen).listen  # where there is one, everybody is told its address anyway


@pytest.mark.parametrize("advertise", ["db1.example", ":7000", "db1.example:port"])
def test_what_is_no_address_is_refused(advertise: str) -> None:
    with pytest.raises(InvalidArgument, match="host:port"):
        NodeConfig(REPOSITORY, advertise=advertise)
