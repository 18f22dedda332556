"""Which etcd is taken, and which is not."""

from pathlib import Path

import pytest
from tools.etcd import NoEtcd, check_version


def program(folder: Path, text: str) -> Path:
    path = folder / "etcd"
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["3.4.23", "3.4.0", "3.5.3", "3.6.1"])
def test_sound_versions(tmp_path: Path, version: str) -> None:
    check_version(program(tmp_path, f"etcd Version: {version}"))


@pytest.mark.parametrize("text", ["etcd Version: 3.5.1", "etcd Version: 3.5.2", "etcd Version: 3.3.9", "hello"])
def test_versions_that_are_not_to_be_trusted(tmp_path: Path, text: str) -> None:
    with pytest.raises(NoEtcd, match=r"put it on the PATH"):
        check_version(program(tmp_path, text))
