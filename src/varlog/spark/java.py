"""Where Java is. Spark runs on one; a log alone needs none."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = 17
BESIDE = Path(sys.prefix) / "java"
"""In the Python environment itself: where `./run` unpacks one if the machine has none."""
MACHINE = Path("/usr/lib/jvm")


def find_java() -> Path | None:
    """The home of a Java that is new enough: JAVA_HOME's, the PATH's, the environment's, the machine's."""
    return next((home for home in _candidates() if _version(home) >= OLDEST), None)


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parents[1]
    yield BESIDE
    if MACHINE.is_dir():
        yield from sorted(MACHINE.iterdir())


def _version(home: Path) -> int:
    """0 if it does not run, or does not say."""
    program = home / "bin" / "java"
    if not program.exists():
        return 0
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told.stderr)
    if found is None:
        return 0
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major
