"""A Java for Spark: the one that is there if it is new enough, or Debian's, without root.

The Debian package is fetched and checked by apt, and unpacked below .venv, where `varlog.spark.java` finds it;
nothing is installed. `./run` sees to it once, when it installs the packages.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from varlog.spark.java import BESIDE, OLDEST, find_java

PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless")
"""Whichever of these the Debian at hand has, the first first."""
HINT = f"install Java {OLDEST} or newer, and set JAVA_HOME or put it on the PATH; only Spark needs it"


class NoJava(Exception):
    """There is none and none could be had; the text says what to do."""


def provide() -> Path:
    """The home of a Java that Spark can use, fetched if there is none."""
    found = find_java()
    if found is None:
        fetch(BESIDE)
        found = find_java()
    if found is None:
        raise NoJava(f"the Java from Debian does not run here; {HINT}")
    return found


def fetch(target: Path) -> None:
    """Unpack Debian's package so that `target` is a Java home, all or nothing."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NoJava(f"there is no Java, and this is no Debian to take it from; {HINT}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="java-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # apt drops its rights for the download
        unpacked = folder / "unpacked"
        step(["dpkg", "-x", str(download(folder)), str(unpacked)], folder)
        resolve_links(unpacked)
        home = next((unpacked / "usr" / "lib" / "jvm").glob("java-*-openjdk-*"))
        shutil.rmtree(target, ignore_errors=True)
        home.rename(target)


def download(folder: Path) -> Path:
    failures = []
    for package in PACKAGES:
        try:
            step(["apt-get", "download", "-qq", package], folder)
            return next(folder.glob(f"{package}_*.deb"))
        except NoJava as error:
            failures.append(str(error))
    raise NoJava(failures[0])


def resolve_links(unpacked: Path) -> None:
    """Debian keeps the settings below /etc and links to them by their full path: put the files in the links' place."""
    for path in sorted(unpacked.rglob("*")):
        if path.is_symlink() and os.readlink(path).startswith("/"):
            inside = unpacked / os.readlink(path).lstrip("/")
            path.unlink()
            if inside.is_dir():
                shutil.copytree(inside, path, symlinks=True)
            elif inside.exists():
                shutil.copy2(inside, path)


def step(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoJava(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}; {HINT}")


def main() -> None:
    try:
        print(f"java: {provide()}")
    except NoJava as error:
        sys.exit(f"java: {error}")


if __name__ == "__main__":
    main()
