"""Which Java is taken, and that Debian's still holds together when it lies elsewhere."""

from pathlib import Path

import pytest
from tools.java import resolve_links

from varlog.spark import java


def home(folder: Path, says: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with none."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setattr(java, "BESIDE", tmp_path / "beside")
    monkeypatch.setattr(java, "MACHINE", tmp_path / "machine")
    return tmp_path


def test_none(machine: Path) -> None:
    assert java.find_java() is None


def test_the_first_that_is_new_enough(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = home(machine / "machine" / "java-25", 'openjdk version "25" 2025-09-16')
    assert java.find_java() == newest
    beside = home(machine / "beside", 'openjdk version "17.0.19" 2026-04-21')
    assert java.find_java() == beside
    home(machine / "path", 'java version "1.8.0_392"')
    assert java.find_java() == beside
    monkeypatch.setenv("JAVA_HOME", str(home(machine / "named", "this is no java")))
    assert java.find_java() == beside
    monkeypatch.setenv("JAVA_HOME", str(newest))
    assert java.find_java() == newest


def test_links_into_the_package_are_replaced_by_what_they_mean(tmp_path: Path) -> None:
    settings = tmp_path / "etc" / "java"
    settings.mkdir(parents=True)
    (settings / "jvm.cfg").write_text("-server KNOWN")
    lib = tmp_path / "usr" / "lib"
    lib.mkdir(parents=True)
    (lib / "jvm.cfg").symlink_to("/etc/java/jvm.cfg")
    (lib / "conf").symlink_to("/etc/java")
    (lib / "cacerts").symlink_to("/etc/of/another/package")
    (lib / "near").symlink_to("jvm.cfg")
    resolve_links(tmp_path)
    assert (lib / "jvm.cfg").read_text() == (lib / "conf" / "jvm.cfg").read_text() == "-server KNOWN"
    assert not (lib / "jvm.cfg").is_symlink()
    assert (lib / "near").is_symlink()
    assert not (lib / "cacerts").exists()
