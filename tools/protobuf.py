"""Generates the message classes from proto/*.proto; with --check, only tells whether they are up to date."""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (ROOT / "proto" / "varlog.proto", ROOT / "proto" / "etcd.proto")
TARGET = ROOT / "src" / "varlog" / "wire" / "proto"
GENERATED = tuple(f"{source.stem}_pb2.{kind}" for source in SOURCES for kind in ("py", "pyi"))


def generate(folder: Path) -> None:
    """Run protoc, which comes with grpcio-tools."""
    from grpc_tools import protoc

    folders = [f"--proto_path={SOURCES[0].parent}", f"--python_out={folder}", f"--pyi_out={folder}"]
    status = protoc.main(["protoc", *folders, *map(str, SOURCES)])
    if status:
        sys.exit(f"protobuf: protoc failed with {status}")


def outdated() -> list[str]:
    """Names of the generated files that differ from what protoc makes now."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        return [name for name in GENERATED if (fresh / name).read_bytes() != (TARGET / name).read_bytes()]


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if names := outdated():
            sys.exit(f"protobuf: {', '.join(names)} not as generated from proto/; run: ./run proto")
        print("protobuf: generated files are up to date")
    else:
        generate(TARGET)


if __name__ == "__main__":
    main()
