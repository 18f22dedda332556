"""Pins everything that `./run` installs: pyproject.toml in, requirements.lock out. Needs uv on the PATH.

The lock holds names, versions and hashes, and no address: where packages come from is the reader's business.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
HEADER = """\
# Everything ./run installs, with hashes. After a change of dependencies in pyproject.toml, make it anew:
#     ./run lock
"""
EXPORT = "export --quiet --format requirements-txt --all-extras --no-emit-project --no-annotate --no-header"


def export(uv: str, arguments: list[str]) -> str:
    """What uv resolves for pyproject.toml; its own lock file is not kept, for it names addresses."""
    own_lock = ROOT / "uv.lock"
    try:
        done = subprocess.run([uv, *EXPORT.split(), *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        own_lock.unlink(missing_ok=True)
    if done.returncode:
        sys.exit(f"lock: uv failed:\n{done.stderr}")
    return done.stdout


def main() -> None:
    """Further arguments go to uv, e.g. `--upgrade`."""
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("lock: uv is needed to pin dependencies; install it, e.g. with: pip install uv")
    pinned = export(uv, sys.argv[1:])
    if "://" in pinned:
        sys.exit("lock: the result names an address; pin only packages that a registry has by name and version")
    LOCK.write_text(HEADER + pinned, encoding="utf-8")
    print(f"lock: {pinned.count('==')} packages in {LOCK.name}")


if __name__ == "__main__":
    main()
