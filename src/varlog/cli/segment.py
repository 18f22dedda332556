"""`varlog segment`: look into the files of a storage node, without the node."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from varlog.cli.frame import Arguments, Commands, add_command, add_family
from varlog.cli.output import Column, Printer, count, plain

if TYPE_CHECKING:
    from varlog.ports import Disk
    from varlog.storage.inspect import Finding, Row

Result = TypeVar("Result")


def register(commands: Commands, summary: str) -> None:
    family = add_family(commands, "segment", summary)
    dump = add_command(family, "dump", dump_files, "print every record", hints="files")
    verify = add_command(
        family, "verify", verify_files, "check every checksum and every link between files", hints="files"
    )
    for parser in (dump, verify):
        parser.add_argument("path", metavar="PATH", help="a data folder, a replica's folder, or one file in it")


def dump_files(arguments: Arguments) -> None:
    from varlog.storage.inspect import dump

    printer = Printer(arguments.output)

    async def work(disk: "Disk", path: str) -> None:
        file = ""
        async for row in dump(disk, path):
            if row.file != file and not printer.json:
                file = row.file
                print(f"{file}:")
            printer.line(_record(row), _line(row))

    _with_files(arguments.path, work)


def _record(row: "Row") -> dict[str, object]:
    return {
        "file": row.file,
        "offset": row.offset,
        "kind": row.kind,
        "slot": row.slot,
        "size": row.size,
        **row.details,
    }


def _line(row: "Row") -> str:
    details = "  ".join(f"{name}={plain(value)}" for name, value in row.details.items())
    slot = "" if row.slot is None else f"slot {row.slot}"
    size = "" if row.size is None else f"{row.size} B"
    return f"{row.offset:>12}  {row.kind:<7} {slot:<14} {size:>10}  {details}".rstrip()


def verify_files(arguments: Arguments) -> int:
    from varlog.base.errors import NotFound
    from varlog.storage.inspect import replica_files, verify
    from varlog.storage.volume import REPLICAS

    async def work(disk: "Disk", path: str) -> "tuple[int, list[Finding]]":
        there = await replica_files(disk, "")
        if not (path in there if path else there or await disk.exists(REPLICAS)):
            raise NotFound(f"{arguments.path} is no file or folder of a storage node: nothing was verified")
        return len(await replica_files(disk, path)), await verify(disk, path)

    files, findings = _with_files(arguments.path, work)
    columns = [
        Column("file"),
        count("offset"),
        count("slot", "from slot"),
        Column("damage", style=lambda damage: "red" if damage else "yellow"),
        Column("what"),
    ]
    rows = [
        {"file": found.file, "offset": found.offset, "slot": found.slot, "damage": found.damage, "what": found.what}
        for found in findings
    ]
    Printer(arguments.output).table(columns, rows, empty=f"{files} files, all as they should be")
    return 1 if any(found.damage for found in findings) else 0


def _with_files(path: str, work: "Callable[[Disk, str], Coroutine[None, None, Result]]") -> Result:
    """Open the folder that holds what was named, for reading only, and hand both over."""
    from varlog.base.errors import NotFound
    from varlog.runtime.disk import RealDisk
    from varlog.runtime.loop import run

    place = Path(path)
    if not place.exists():
        raise NotFound(f"there is no file or folder {path}")
    folder, name = (place, "") if place.is_dir() else (place.absolute().parent, place.name)

    async def opened() -> Result:
        disk = RealDisk(folder, read_only=True)
        try:
            return await work(disk, name)
        finally:
            disk.close()

    return run(opened())
