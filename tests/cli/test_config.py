"""Settings: file, environment, flags, in this order, and every mistake named."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from varlog.base.errors import InvalidArgument
from varlog.cli.config import load
from varlog.node.config import NodeConfig
from varlog.repository.config import RepositoryConfig


@dataclass(frozen=True, slots=True)
class Sample:
    """One field of every type that settings have."""

    peers: tuple[str, ...]
    listen: str = "127.0.0.1:0"
    limit: int = 5
    share: float = 0.5
    loud: bool = False


def settings(file: Path | None = None, environment: dict[str, str] | None = None, **flags: Any) -> Sample:
    path = None if file is None else str(file)
    given = {"data": ("d",), "peers": None, **flags}
    loaded, data = load(Sample, "sample", given, file=path, environment=environment or {})
    assert data == ("d",)
    return loaded


def test_the_later_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "varlog.toml"
    file.write_text('[sample]\npeers = ["file:1", "file:2"]\nlisten = "file"\nlimit = 1\n[other]\nx = 1\n')
    assert settings(file) == Sample(("file:1", "file:2"), "file", 1)
    environment = {"VARLOG_SAMPLE_LISTEN": "environment", "VARLOG_SAMPLE_LIMIT": "2", "VARLOG_SAMPLE_PEERS": "a, b"}
    assert settings(file, environment) == Sample(("a", "b"), "environment", 2)
    assert settings(file, environment, limit=3) == Sample(("a", "b"), "environment", 3)


def test_types_from_text_and_file(tmp_path: Path) -> None:
    file = tmp_path / "varlog.toml"
    file.write_text('[sample]\npeers = "one:1"\nshare = 1\nloud = true\n')
    assert settings(file) == Sample(("one:1",), share=1.0, loud=True)
    environment = {"VARLOG_SAMPLE_PEERS": "one:1", "VARLOG_SAMPLE_SHARE": "0.25", "VARLOG_SAMPLE_LOUD": "yes"}
    assert settings(environment=environment) == Sample(("one:1",), share=0.25, loud=True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[sample]\nlimitt = 1\n", "unknown setting 'limitt'"),
        ("[sample]\nlimit = 'many'\n", "limit in .*'many' is not a whole number"),
        ("[sample]\nlimit = true\n", "is not a whole number"),
        ("[sample]\npeers = [1]\n", "is not a list of texts"),
        ("sample = 1\n", "is not a table"),
        ("[sample\n", "is not TOML"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "varlog.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgument, match=complaint):
        settings(file, peers=("p",))


@pytest.mark.parametrize(
    ("variable", "text", "complaint"),
    [
        ("VARLOG_SAMPLE_LIMIT", "many", "VARLOG_SAMPLE_LIMIT: 'many' is not a whole number"),
        ("VARLOG_SAMPLE_LOUD", "maybe", "is not true or false"),
    ],
)
def test_mistakes_in_the_environment(variable: str, text: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        settings(environment={variable: text}, peers=("p",))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InvalidArgument, match="cannot be read: No such file"):
        settings(Path("/nowhere/varlog.toml"), peers=("p",))


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InvalidArgument, match="needs a setting for: peers"):
        settings()
    with pytest.raises(InvalidArgument, match="--data DIR"):
        load(Sample, "sample", {"peers": ("p",)}, environment={})


def test_the_real_ones_check_themselves_at_once() -> None:
    with pytest.raises(InvalidArgument, match="heartbeat_ms"):
        load(RepositoryConfig, "repository", {"data": ("d",), "heartbeat_ms": 1}, environment={})
    with pytest.raises(InvalidArgument, match="file_bytes"):
        load(NodeConfig, "node", {"data": ("d",), "repositories": ("a:1",), "file_bytes": 1}, environment={})
