"""The lock pins what pyproject.toml asks for, with hashes and without addresses; each dependency is explained."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def wanted() -> list[str]:
    extras = (requirement for listed in PROJECT["optional-dependencies"].values() for requirement in listed)
    return [re.split(r"[<>=!~;\[ ]", requirement)[0] for requirement in (*PROJECT["dependencies"], *extras)]


def pinned() -> dict[str, str]:
    """Each package with the text of its entry."""
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    return {entry.partition("==")[0]: entry for entry in entries}


def test_everything_asked_for_is_pinned() -> None:
    assert [name for name in wanted() if name not in pinned()] == []


def test_every_pin_has_its_hashes() -> None:
    assert len(pinned()) > 10
    assert [name for name, entry in pinned().items() if "--hash=sha256:" not in entry] == []


def test_the_lock_names_no_address() -> None:
    assert "://" not in LOCK
    assert not [line for line in LOCK.splitlines() if line.startswith("-")]


def test_every_dependency_is_explained() -> None:
    explained = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert [name for name in wanted() if name not in explained] == []
