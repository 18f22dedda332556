"""Where an archive is: a folder, or a prefix of a bucket on S3. The only place that knows file systems.

Credentials for S3 are never part of a place: they come from the environment of whoever reads or writes, in the ways
that all AWS tools know (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, profiles, roles of machines).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from varlog.archive.limits import CONNECT_SECONDS, REQUEST_SECONDS
from varlog.base.errors import Corrupt, InvalidArgument, Unavailable, Unsupported, VarlogError

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
FILE = "file://"
ANY_REGION = "us-east-1"
"""What servers that are not Amazon's go by."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an archive is, as tables name it: a URL in which nothing is escaped, for that is how they read it.

    Files below it are named by paths (folder) or URLs (S3), as tables want them.
    """

    url: str
    endpoint: str = ""
    region: str = ""

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one of this machine."""
        return Path(self.url.removeprefix(FILE)) if self.url.startswith(FILE) else None

    def below(self, *names: str) -> str:
        folder = self.folder
        return "/".join([self.url, *names]) if folder is None else str(folder.joinpath(*names))

    def properties(self) -> dict[str, str]:
        """What pyiceberg is told to reach the files."""
        if self.folder is not None:
            return {"py-io-impl": "varlog.archive.synced.SyncedFileIO"}
        told = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
        told |= {"s3.connect-timeout": str(CONNECT_SECONDS), "s3.request-timeout": str(REQUEST_SECONDS)}
        told |= {"s3.endpoint": self.endpoint} if self.endpoint else {}
        told |= {"s3.region": self.region} if self.region else {}
        return told

    # ------------------------------------------------------------ files

    @contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        """A file to be read at any place."""
        with told(self), _filesystem(self).open_input_file(_bare(path)) as file:
            yield file

    @contextmanager
    def writing(self, path: str) -> Iterator[BinaryIO]:
        """A new file, durable when the block has ended. If that ends in an error, a part may be left."""
        with told(self):
            filesystem = _filesystem(self)
            if self.folder is not None:
                make_folder(Path(path).parent)
            with filesystem.open_output_stream(_bare(path)) as file:
                yield file
            if self.folder is not None:
                sync_file(Path(path))

    def leave(self, path: str) -> None:
        """Nobody will read it soon: the next file can have its memory, where a file in a folder takes some."""
        if self.folder is not None:
            with told(self), open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def size(self, path: str) -> int:
        with told(self):
            return int(_filesystem(self).get_file_info(_bare(path)).size)

    def has(self, path: str) -> bool:
        with told(self):
            from pyarrow.fs import FileType

            return bool(_filesystem(self).get_file_info(_bare(path)).type == FileType.File)

    def remove(self, path: str) -> None:
        """No error if it is gone already."""
        with told(self):
            try:
                _filesystem(self).delete_file(_bare(path))
            except FileNotFoundError:
                pass

    def list(self, path: str) -> list[str]:
        """The files right below a path, as the table names them; sorted."""
        with told(self):
            from pyarrow.fs import FileSelector, FileType

            found = _filesystem(self).get_file_info(FileSelector(_bare(path), allow_not_found=True))
        scheme = "" if self.folder is not None else "s3://"
        return sorted(scheme + each.path for each in found if each.type == FileType.File)

    def check_writable(self, path: str) -> None:
        """Raises `InvalidArgument` if no file can be written below a path."""
        probe = f"{path}/probe-{uuid4()}"
        try:
            with self.writing(probe) as file:
                file.write(b"probe")
            self.remove(probe)
        except Unavailable as error:
            raise InvalidArgument(f"{self.url} cannot be an archive: {error.message}") from error


def parse_place(text: str, *, endpoint: str | None = None, region: str | None = None) -> Place:
    """A folder of this machine, or s3://bucket/prefix; what is not given comes from the environment."""
    parts = urlsplit(text)
    if parts.scheme == "s3":
        if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
            raise InvalidArgument(f"an archive on S3 is s3://bucket/prefix, not {text!r}; credentials go elsewhere")
        endpoint = endpoint or _environment(ENDPOINT_VARIABLES)
        region = region or _environment(REGION_VARIABLES) or (ANY_REGION if endpoint else "")
        return Place(f"s3://{parts.netloc}{parts.path.rstrip('/')}", endpoint.rstrip("/"), region)
    if parts.scheme not in ("", "file") or parts.netloc or not parts.path:
        raise InvalidArgument(f"an archive is in a folder or at s3://bucket/prefix, not {text!r}")
    folder = str((Path(unquote(parts.path)) if parts.scheme else Path(text)).absolute())
    if urlsplit(FILE + folder).path != folder or not folder.isprintable():
        raise InvalidArgument(f"an archive's folder has no '?', '#' or control character in its name: {folder!r}")
    return Place(FILE + folder)


def recorded_place(url: str, endpoint: str, region: str) -> Place:
    """As a log's record has it. The environment knows better where S3 is, seen from here."""
    if url.startswith("s3:"):
        return Place(url, _environment(ENDPOINT_VARIABLES) or endpoint, region)
    return Place(url)


@cache
def check_extra() -> None:
    """Raises `Unsupported` if what archives need is not installed."""
    try:
        import_module("pyarrow.parquet")
        import_module("pyiceberg.table")
    except ImportError as missing:
        raise Unsupported("an archive needs the extra: pip install 'varlog[archive]'") from missing


def _environment(names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := os.environ.get(name))), "")


@contextmanager
def told(place: Place) -> Iterator[None]:
    """What goes wrong with files, in our own words."""
    check_extra()
    from pyarrow.lib import ArrowException
    from pyiceberg.exceptions import ValidationError

    try:
        yield
    except FileNotFoundError as error:
        raise Unavailable(f"the archive at {place.url} lacks a file: {_first_line(error)}") from error
    except OSError as error:
        if error.errno is None and "AWS Error" not in str(error):
            # Arrow's own, of what stands in a file; those of the system have a number, those of S3 that name.
            raise Corrupt(f"a file of the archive at {place.url} is damaged: {_first_line(error)}") from error
        raise Unavailable(f"the archive at {place.url} cannot be reached from here: {_first_line(error)}") from error
    except (ArrowException, ValidationError, EOFError, ValueError) as error:
        raise Corrupt(f"a file of the archive at {place.url} is damaged: {_first_line(error)}") from error


@contextmanager
def understood(place: Place) -> Iterator[None]:
    """The same where pyiceberg is at work, which says anything at all of a damaged file; a lost race is handed on."""
    check_extra()
    from pyiceberg.exceptions import CommitFailedException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with told(place):
            yield
    except (VarlogError, CommitFailedException):
        raise
    except SQLAlchemyError as error:
        raise Unavailable(f"the catalog of the archive at {place.url} cannot be used: {_first_line(error)}") from error
    except Exception as error:
        what = f"{type(error).__name__}: {_first_line(error)}"
        raise Corrupt(f"a file of the archive at {place.url} is damaged: {what}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _filesystem(place: Place) -> Any:
    return _filesystem_of(place, os.getpid())


@cache
def _filesystem_of(place: Place, process: int) -> Any:
    """One for each place and process: it keeps connections, which a forked process must not share with its parent."""
    from pyarrow.fs import LocalFileSystem, S3FileSystem

    if place.folder is not None:
        return LocalFileSystem()
    return S3FileSystem(
        endpoint_override=place.endpoint or None,
        region=place.region or None,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
    )


def _bare(path: str) -> str:
    """As pyarrow's file systems want it."""
    return path.removeprefix("s3://").removeprefix(FILE)


# ---------------------------------------------------------------- durable


def make_folder(folder: Path) -> None:
    """With all above it that are missing; a power failure takes none of them away again."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def sync_file(path: Path) -> None:
    """A file that has been written, and its name."""
    _sync(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
