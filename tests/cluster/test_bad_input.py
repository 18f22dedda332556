"""What users and strangers do wrong, against the real programs: one clear line or a typed error, and nothing breaks."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster import RealCluster, Server, real_cluster
from tests.cluster.processes import PATIENCE_S, eventually, run_varlog

import varlog
from varlog.base import errors
from varlog.base.limits import BATCH_BYTES, ENTRY_BYTES, FRAME_BYTES, HEADER_BYTES
from varlog.storage.volume import IDENTITY
from varlog.transport.errors import decode_error
from varlog.transport.tcp import parse_address
from varlog.wire.frame import FRAME, PREFACE, Kind, encode_frame

ANSWER_S = PATIENCE_S
LISTEN = ("--listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with real_cluster(tmp_path_factory.mktemp("bad"), nodes=1) as cluster:
        cluster.ask(lambda asked: asked.create_log("orders", replicas=1))
        yield cluster
        assert cluster.complaints() == []


def works(cluster: RealCluster) -> None:
    """All servers are the ones that were started, and serve."""
    assert [server.life for server in cluster.servers] == [1, 1]
    assert all(server.alive for server in cluster.servers)
    ack = cluster.ask(lambda asked: asked.log("orders").append(b"fine"))
    assert isinstance(ack, varlog.Ack)


def one_line(done: "subprocess.CompletedProcess[bytes]", *words: str, status: int = 1) -> None:
    """It failed, and said why in one line."""
    text = done.stderr.decode()
    assert text.startswith("varlog: ")
    assert text.count("\n") == 1
    for word in words:
        assert word in text
    assert (done.returncode, done.stdout) == (status, b"")


# ---------------------------------------------------------------- folders and ports of servers


def test_two_nodes_on_one_folder(cluster: RealCluster) -> None:
    data = str(cluster.data(1))
    done = run_varlog("node", "start", "--repository", f"127.0.0.1:{cluster.port}", "--data", data, *LISTEN)
    one_line(done, f"the data folder {data} is in use by process {cluster.nodes[0].pid}")
    works(cluster)


def test_a_folder_of_another_cluster(cluster: RealCluster, tmp_path: Path) -> None:
    """The data of a node that was started for another cluster is refused, and left as it is."""
    foreign = tmp_path / "foreign"
    with real_cluster(tmp_path, nodes=1) as other:
        identity = other.data(1) / IDENTITY  # written when the repository knows the node already
        eventually(lambda: json.loads(identity.read_text())["cluster_id"], "the node knows its cluster")
        other.nodes[0].stop()
        shutil.copytree(other.data(1), foreign)
    node = Server("foreigner", tmp_path, _node_arguments(cluster, foreign))
    node.start()
    try:
        assert node.ended() == 1
    finally:
        node.kill()
    assert "the node's data folder belongs to cluster" in node.last_words()
    assert len(node.last_words().splitlines()) == 1
    assert [each.id for each in cluster.ask(lambda asked: asked.nodes())] == [1]
    works(cluster)


def test_a_node_that_lost_its_data_is_not_the_node_it_was(cluster: RealCluster, tmp_path: Path) -> None:
    node = Server("pretender", tmp_path, [*_node_arguments(cluster, tmp_path / "empty"), "--id", "1"])
    node.start()
    try:
        assert node.ended() == 1
    finally:
        node.kill()
    assert "node 1 is known with other data" in node.last_words()
    works(cluster)


def _node_arguments(cluster: RealCluster, data: Path) -> list[str]:
    return ["node", "start", "--repository", f"127.0.0.1:{cluster.port}", "--data", str(data), *LISTEN]


def test_a_busy_port(cluster: RealCluster, tmp_path: Path) -> None:
    taken = f"127.0.0.1:{cluster.port}"
    done = run_varlog("node", "start", "--repository", taken, "--data", str(tmp_path / "data"), "--listen", taken)
    one_line(done, f"cannot listen at {taken}", "address already in use")


@pytest.mark.parametrize("role", ["node", "repository"])
def test_folders_that_cannot_be_used(role: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "thesis.tex").write_bytes(b"")
    repository = ("--repository", "127.0.0.1:1") if role == "node" else ()
    for folder, status, words in (
        (tmp_path / "file" / "below", 2, "there is no folder"),
        (tmp_path / "strange", 2, "it holds 'thesis.tex'"),
        (Path("/sys"), 1, "cannot be written"),
    ):
        done = run_varlog(role, "start", *repository, "--data", str(folder), *LISTEN)
        one_line(done, words, status=status)
    assert not list(tmp_path.glob("strange/*.db"))


def test_each_kind_of_server_keeps_off_the_folder_of_the_other(tmp_path: Path) -> None:
    with real_cluster(tmp_path, nodes=1) as cluster:
        for server in cluster.servers:
            assert server.stop() == 0
    done = run_varlog("repository", "start", "--data", str(cluster.data(1)), *LISTEN)
    one_line(done, "neither empty nor the folder of a repository", status=2)
    done = run_varlog("node", "start", "--repository", "127.0.0.1:1", "--data", str(tmp_path / "repository"), *LISTEN)
    one_line(done, "neither empty nor a volume", status=2)


def test_damaged_files_that_belong_to_the_whole_server(tmp_path: Path) -> None:
    """Without its identity a node, without its store a repository cannot begin at all."""
    with real_cluster(tmp_path, nodes=1) as cluster:
        for server in cluster.servers:
            assert server.stop() == 0
    identity = cluster.data(1) / "identity"
    identity.write_bytes(identity.read_bytes().replace(b'"node_id": 1', b'"node_id": 2'))
    done = run_varlog("node", "start", "--repository", "127.0.0.1:1", "--data", str(cluster.data(1)), *LISTEN)
    one_line(done, "the file identity of the volume does not match its checksum")
    store = tmp_path / "repository" / "metadata.db"
    store.write_bytes(b"x" * 5000)
    done = run_varlog("repository", "start", "--data", str(store.parent), *LISTEN)
    one_line(done, "metadata.db is not a metadata store")


def test_an_address_that_is_none(tmp_path: Path) -> None:
    done = run_varlog("node", "start", "--repository", "nonsense", "--data", str(tmp_path / "data"), *LISTEN)
    one_line(done, "not an address of the form host:port: 'nonsense'", status=2)


# ---------------------------------------------------------------- what comes over the wire


def exchange(server: Server, sent: bytes) -> bytes:
    """Everything a server answers until it closes the connection."""
    with socket.create_connection(parse_address(server.address), timeout=ANSWER_S) as connection:
        connection.sendall(sent)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def told(received: bytes) -> errors.VarlogError | None:
    """The error in the one frame behind the preface; None if there is none."""
    assert received.startswith(PREFACE)
    frame = received[len(PREFACE) :]
    if not frame:
        return None
    length, kind, _, _, _, _, header_bytes = FRAME.unpack_from(frame)
    assert kind == Kind.ERROR
    assert len(frame) == length + 4
    return decode_error(frame[FRAME.size : FRAME.size + header_bytes])


STRANGE: list[tuple[str, bytes, type[errors.VarlogError] | None]] = [
    ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", None),
    ("another version", PREFACE[:-1] + b"\x09", None),
    ("a huge length", PREFACE + FRAME.pack(0xFFFFFFF0, Kind.REQUEST, 1, 0, 1, 1000, 0), errors.TooLarge),
    ("just too long", PREFACE + FRAME.pack(FRAME_BYTES, Kind.REQUEST, 1, 0, 1, 1000, 0), errors.TooLarge),
    (
        "a huge message",
        PREFACE + FRAME.pack(FRAME_BYTES - 4, Kind.REQUEST, 1, 0, 1, 1000, HEADER_BYTES + 1),
        errors.TooLarge,
    ),
    ("message over frame", PREFACE + FRAME.pack(20, Kind.REQUEST, 1, 0, 1, 1000, 500), errors.Corrupt),
    ("an unknown kind", PREFACE + FRAME.pack(20, 77, 1, 0, 1, 1000, 0), errors.Unsupported),
]
"""Who does not speak the protocol is told no more than who we are."""


@pytest.mark.parametrize("role", ["repository", "node"])
@pytest.mark.parametrize(("sent", "error"), [each[1:] for each in STRANGE], ids=[each[0] for each in STRANGE])
def test_what_is_no_frame_ends_the_connection_only(
    cluster: RealCluster, role: str, sent: bytes, error: type[errors.VarlogError] | None
) -> None:
    server = cluster.repository if role == "repository" else cluster.nodes[0]
    found = told(exchange(server, sent))
    assert found is None if error is None else type(found) is error


@pytest.mark.parametrize("role", ["repository", "node"])
def test_an_unknown_method_is_refused_and_the_connection_lives(cluster: RealCluster, role: str) -> None:
    """So is a message that is not the method's, and a method that only the other kind of server serves."""
    server = cluster.repository if role == "repository" else cluster.nodes[0]
    foreign = 16 if role == "repository" else 33
    with socket.create_connection(parse_address(server.address), timeout=ANSWER_S) as connection:
        connection.sendall(PREFACE)
        stream = connection.makefile("rb")
        assert stream.read(len(PREFACE)) == PREFACE
        for number, (method, message, words) in enumerate(
            [(200, b"", "200"), (foreign, b"", ""), (7 if role == "node" else 34, b"\xff\xff\xff", "")], 1
        ):
            connection.sendall(b"".join(encode_frame(Kind.REQUEST, method, number, message, timeout_ms=5000)))
            length, kind, _, _, request, _, header_bytes = FRAME.unpack(stream.read(FRAME.size))
            rest = stream.read(length + 4 - FRAME.size)
            assert (kind, request) == (Kind.ERROR, number)
            assert words in decode_error(rest[:header_bytes]).message


def test_strangers_leave_the_cluster_as_it_was(cluster: RealCluster) -> None:
    """Half a frame and then nothing; and many who connect and say nothing."""
    silent = []
    try:
        for server in cluster.servers:
            for sent in (b"", PREFACE[:3], PREFACE + FRAME.pack(1 << 20, Kind.REQUEST, 1, 0, 1, 1000, 0) + b"x" * 99):
                connection = socket.create_connection(parse_address(server.address), timeout=ANSWER_S)
                connection.sendall(sent)
                silent.append(connection)
        works(cluster)
    finally:
        for connection in silent:
            connection.close()
    works(cluster)


# ---------------------------------------------------------------- appends and names


def test_appends_that_are_empty_or_too_large(cluster: RealCluster) -> None:
    def work(asked: "varlog.sync.Cluster") -> None:
        log = asked.log("orders")
        tail = log.tail()
        with pytest.raises(varlog.InvalidArgument):
            log.append_batch([])
        with pytest.raises(varlog.TooLarge) as large:
            log.append(bytes(ENTRY_BYTES + 1))
        assert large.value.limit == ENTRY_BYTES
        with pytest.raises(varlog.TooLarge) as large:
            log.append_batch([bytes(ENTRY_BYTES)] * 3)
        assert large.value.limit == BATCH_BYTES
        assert log.tail() == tail
        ack = log.append(b"")
        assert log.read(ack.glsn).payload == b""
        ack = log.append(bytes(ENTRY_BYTES))
        assert log.read(ack.glsn).payload == bytes(ENTRY_BYTES)

    cluster.ask(work)


def test_input_of_the_append_command(cluster: RealCluster) -> None:
    done = run_varlog("append", "orders", "--lines", url=cluster.url, stdin=b"x" * (ENTRY_BYTES + 1))
    one_line(done, "larger than an entry may be")
    done = run_varlog("append", "orders", "--lines", url=cluster.url)
    assert (done.returncode, done.stdout) == (0, b"nothing to append to orders\n")
    done = run_varlog("append", "orders", "--file", "/nowhere/at/all", url=cluster.url)
    one_line(done, "/nowhere/at/all")
    one_line(run_varlog("append", "orders", "--file", "/", url=cluster.url), "/ is a folder", status=2)
    done = run_varlog("append", "nosuch", url=cluster.url, stdin=b"x")
    one_line(done, "there is no log named 'nosuch'")


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "../../etc", "a/b", "-rf", ".hidden", "na\u00efve", "line\nbreak", "x" * 129]
)
def test_names_with_odd_characters(cluster: RealCluster, name: str) -> None:
    def work(asked: "varlog.sync.Cluster") -> None:
        for call in (lambda: asked.create_log(name), lambda: asked.log(name), lambda: asked.remove_log(name)):
            with pytest.raises((varlog.InvalidArgument, varlog.TooLarge)):
                call()

    cluster.ask(work)


def test_odd_names_on_the_command_line(cluster: RealCluster) -> None:
    for command in (("log", "create", "../../etc"), ("append", "line\nbreak"), ("read", "a b", "1")):
        one_line(run_varlog(*command, url=cluster.url), "cannot be the name of a log", status=2)
    works(cluster)
