"""An archive holds what the log holds, each range once, whatever became of the runs that wrote it."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from tests.archive.s3 import S3

import varlog
from varlog.archive import files as files_module
from varlog.archive import table as table_module
from varlog.archive.files import ArchivedRange, Snapshot
from varlog.archive.place import Place, parse_place
from varlog.archive.table import ArchiveTable, find_table
from varlog.base.errors import Conflict, Corrupt, InvalidArgument, NotFound, Trimmed
from varlog.spark import archive as room
from varlog.spark import archive_log, read
from varlog.spark.archive import Archived, archive, archived, write_part
from varlog.spark.options import Options
from varlog.spark.reading import Part, read_part


def fill(log: varlog.sync.Log, count: int) -> None:
    for number in range(count):
        log.append_batch([b"%d" % number, b""], keys=[None, b"k"], headers=[{"n": b"%d" % number}, {}])


def entries(log: varlog.sync.Log) -> list[dict[str, Any]]:
    return [entry._asdict() for entry in log.subscribe(wait=False)]


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/data/*"))


def scanned(folder: Path, log: varlog.sync.Log, where: str = "glsn > 0") -> list[dict[str, Any]]:
    """As another engine sees the table."""
    catalog = SqlCatalog("varlog", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    found = catalog.load_table(("varlog", log.name)).scan(row_filter=where).to_arrow().sort_by("glsn").to_pylist()
    return [{**row, "headers": dict(row["headers"])} for row in found]


def test_run_after_run(spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path) -> None:
    fill(log, 50)
    cut = replace(options, min_partitions=2)
    first = archive(spark, cut, tmp_path, upto=60)
    assert (first.start, first.stop, first.files) == (1, 61, 2)
    second = archive(spark, cut, tmp_path)
    assert (second.start, second.stop, second.files) == (61, 101, 2)
    assert archive(spark, cut, tmp_path) == Archived(log.name, 101, 101, 0, 0)
    info = log.info()
    assert info.archive is not None
    assert (info.archive.location, info.archive.first, info.archived) == (tmp_path.as_uri(), 1, 101)
    assert scanned(tmp_path, log) == entries(log)
    assert scanned(tmp_path, log, "glsn >= 95 and glsn < 97") == entries(log)[94:96]
    rows = archived(spark, tmp_path, log.name).orderBy("glsn").collect()
    assert [(row.glsn, row.payload, row.key) for row in rows] == [
        (entry["glsn"], entry["payload"], entry["key"]) for entry in entries(log)
    ]


def test_windows(
    spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file holds positions of two windows; who looks for one opens no file of another."""
    for module in (room, table_module, files_module):
        monkeypatch.setattr(module, "WINDOW", 16)
    fill(log, 25)
    assert archive(spark, options, tmp_path, upto=20).files == 2
    assert archive(spark, options, tmp_path).files == 3
    names = [path.name[:41] for path in files_in(tmp_path)]
    assert names == [f"{start:020}-{stop:020}" for start, stop in ((1, 16), (16, 21), (21, 32), (32, 48), (48, 51))]
    before = entries(log)
    log.trim(50)
    opened: list[str] = []
    reading = Place.reading

    def watched(self: Place, path: str) -> Any:
        opened.append(Path(path).name[:20])
        return reading(self, path)

    monkeypatch.setattr(Place, "reading", watched)
    assert entries(log) == before
    assert opened == [f"{start:020}" for start in (1, 16, 21, 32, 48)]
    opened.clear()
    assert log.read(33).payload == before[32]["payload"]
    assert opened == [f"{32:020}"]
    opened.clear()
    assert log.find(before[30]["time"]) == 31
    assert opened == [f"{21:020}"]


class Killed(Exception):
    """The run ends here."""


@pytest.mark.parametrize("step", ["_write", "add", "_record"])
def test_a_run_that_was_killed(
    spark: SparkSession,
    log: varlog.sync.Log,
    options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """Before its files were named by a snapshot, before that was recorded, or right after."""
    fill(log, 20)

    def killed(work: Any) -> Any:
        def run(*arguments: Any) -> Any:
            work(*arguments)
            raise Killed

        return run

    with monkeypatch.context() as patch:
        target = ArchiveTable if step == "add" else room
        patch.setattr(target, step, killed(getattr(target, step)))
        with pytest.raises(Killed):
            archive(spark, options, tmp_path)
    assert log.info().archived == (41 if step == "_record" else 1)
    again = archive(spark, options, tmp_path)
    assert (again.files, again.stop) == (1 if step == "_write" else 0, 41), "what has a snapshot is not copied again"
    assert log.info().archived == 41
    assert scanned(tmp_path, log) == entries(log)
    fill(log, 1)
    archive(spark, options, tmp_path)
    assert len(files_in(tmp_path)) == 2, "what the killed run left was swept away"
    assert scanned(tmp_path, log) == entries(log)


def test_killed_anywhere(spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path) -> None:
    """`kill -9` of the driver and all its tasks, at a moment that nobody chose."""
    fill(log, 500)
    program = [sys.executable, "-m", "tests.spark.archive_program", options.cluster, log.name, str(tmp_path)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        time.sleep(random.random())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert said == b"7\n"
    before = log.info().archived
    assert before > 7
    log.trim(before - 1)
    done = archive(spark, options, tmp_path)
    assert (log.info().archived, done.stop) == (1001, 1001)
    assert scanned(tmp_path, log) == entries(log)
    fill(log, 1)
    archive(spark, options, tmp_path)
    named = find_table(parse_place(str(tmp_path)), log.name).files()
    assert [str(path) for path in files_in(tmp_path)] == named, "what no snapshot names is swept away"


@pytest.mark.parametrize("step", ["_write", "_record"])
def test_of_two_runs_at_once_one_goes_on_from_the_other(
    spark: SparkSession,
    log: varlog.sync.Log,
    options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """Overtaken before its snapshot, or before that was recorded."""
    fill(log, 10)
    work = getattr(room, step)

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.undo()
        archive(spark, options, tmp_path)
        fill(log, 1)
        return work(*arguments)

    monkeypatch.setattr(room, step, overtaken)
    done = archive(spark, options, tmp_path)
    assert (done.start, done.stop, done.files) == (21, 23, 1)
    assert log.info().archived == 23
    assert scanned(tmp_path, log) == entries(log)
    assert len(files_in(tmp_path)) == 2


def test_a_file_that_does_not_hold_what_was_written(
    log: varlog.sync.Log, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 10)

    def lossy(*arguments: Any, **settings: Any) -> Iterator[Any]:
        for batch in read_part(*arguments, **settings):
            yield batch.slice(1)

    place, part = parse_place(str(tmp_path)), Part(log.info().id, 1, 21)
    assert place.size(write_part(options, place, str(tmp_path), part)) > 0
    monkeypatch.setattr(room, "read_part", lossy)
    with pytest.raises(Corrupt, match="does not hold"):
        write_part(options, place, str(tmp_path), part)


def test_archives_that_cannot_be(
    spark: SparkSession, client: varlog.sync.Cluster, log: varlog.sync.Log, options: Options, tmp_path: Path
) -> None:
    fill(log, 5)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="cannot be an archive"):
        archive(spark, options, tmp_path / "file")
    with pytest.raises(InvalidArgument, match="in a folder or at s3"):
        archive(spark, options, "ftp://there/folder")
    with pytest.raises(NotFound, match="no archive"):
        archived(spark, tmp_path, log.name)
    assert log.info().archive is None
    archive(spark, options, tmp_path, upto=4)
    with pytest.raises(Conflict, match="a log has one"):
        archive(spark, options, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    log.trim(6)
    with pytest.raises(Trimmed, match=r"positions 5 to 6 .* not in the archive"):
        archive(spark, options, tmp_path)
    assert archive(spark, options, tmp_path / "other").start == 7
    client.remove_log(log.name)
    client.create_log(log.name, replicas=1).append(b"x")
    with pytest.raises(Conflict, match="is not of this log"):
        archive(spark, options, tmp_path)
    assert log.info().archive is None


def test_a_place_that_lost_what_is_archived(
    spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path
) -> None:
    """A folder that is not mounted, or was put back from an old copy: going on there would forget what is archived."""
    folder, away, old = tmp_path / "archive", tmp_path / "away", tmp_path / "old"
    fill(log, 10)
    archive(spark, options, folder, upto=8)
    shutil.copytree(folder, old)
    archive(spark, options, folder, upto=14)
    recorded = log.info()
    folder.rename(away)
    for made in (False, True):
        if made:
            folder.mkdir()
        with pytest.raises(Conflict, match=r"is not at .* any more"):
            archive(spark, options, folder)
        assert not made or not list(folder.iterdir()), "nothing begins anew there"
    shutil.copytree(away, folder, dirs_exist_ok=True)
    shutil.copy(old / "catalog.db", folder / "catalog.db")
    with pytest.raises(Conflict, match=r"ends at 8, though .* up to 14"):
        archive(spark, options, folder)
    assert log.info() == recorded
    shutil.copy(away / "catalog.db", folder / "catalog.db")
    log.trim(14)
    assert archive(spark, options, folder).start == 15
    assert [entry["glsn"] for entry in entries(log)] == list(range(1, 21))


def test_an_archive_follows_another_where_an_earlier_one_was(
    spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins where the record says, not where the table does, also for who finds it after a kill."""
    fill(log, 10)
    archive(spark, options, tmp_path / "one", upto=4)
    log.trim(6)
    archive(spark, options, tmp_path / "two", upto=8)
    log.trim(10)

    def killed(*_: Any) -> None:
        monkeypatch.undo()
        raise Killed

    monkeypatch.setattr(room, "_record", killed)
    with pytest.raises(Killed):
        archive(spark, options, tmp_path / "one")
    again = archive(spark, options, tmp_path / "one")
    assert (again.files, again.stop, log.info().first) == (0, 21, 11)
    log.trim(15)
    assert [entry.glsn for entry in log.subscribe(11, wait=False)] == list(range(11, 21))


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_a_trim_that_overtakes_a_first_run(
    spark: SparkSession,
    log: varlog.sync.Log,
    options: Options,
    tmp_path: Path,
    s3: S3,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """It left nothing, so that the archive begins behind the trim point, at the same place; else it is gone on with."""
    place = parse_place(str(tmp_path)) if where == "folder" else parse_place(s3.location, endpoint=s3.endpoint)
    fill(log, 10)
    work, add = room._write, ArchiveTable.add

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.undo()
        log.trim(4)
        return work(*arguments)

    def killed(*arguments: Any) -> None:
        monkeypatch.undo()
        add(*arguments)
        raise Killed

    monkeypatch.setattr(room, "_write", overtaken)
    with pytest.raises(PythonException, match="trimmed"):
        archive(spark, options, place)
    recorded = log.info().archive
    assert recorded is not None
    assert (recorded.first, recorded.stop) == (1, 1)
    monkeypatch.setattr(ArchiveTable, "add", killed)
    with pytest.raises(Killed):
        archive(spark, options, place)
    log.trim(6)
    again = archive(spark, options, place)
    assert (again.files, again.stop, log.info().first) == (0, 21, 5), "what has a snapshot is not given up"
    log.trim(20)
    assert [entry.glsn for entry in log.subscribe(5, wait=False)] == list(range(5, 21))


def test_a_table_with_another_schema(
    spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path
) -> None:
    fill(log, 1)
    archive(spark, options, tmp_path)
    catalog = SqlCatalog("varlog", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    with catalog.load_table(("varlog", log.name)).update_schema() as update:
        update.add_column("more", StringType())
    fill(log, 1)
    with pytest.raises(Conflict, match="another schema"):
        archive(spark, options, tmp_path)


def test_on_s3(
    spark: SparkSession, log: varlog.sync.Log, options: Options, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the function for schedulers: run after run, killed before the record, two at once; then read by Spark."""

    def run() -> Archived:
        return archive_log(spark, options.cluster, log.name, s3.location, endpoint=s3.endpoint)

    fill(log, 10)
    assert archive_log(spark, options.cluster, log.name, s3.location, upto=4, endpoint=s3.endpoint).stop == 5

    def killed(*_: Any) -> None:
        monkeypatch.undo()
        raise Killed

    monkeypatch.setattr(room, "_record", killed)
    with pytest.raises(Killed):
        run()
    again = run()
    assert (again.files, again.stop) == (0, 21), "what has a snapshot is not copied again"
    fill(log, 1)
    work = room._write

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert run().stop == 23
        fill(log, 1)
        return work(*arguments)

    monkeypatch.setattr(room, "_write", overtaken)
    done = run()
    assert (done.start, done.stop, log.info().archived) == (23, 25, 25)
    before = entries(log)
    log.trim(18)
    assert entries(log) == before
    frame = read(spark, options.cluster, log.name, columns=["glsn", "payload"])
    assert sorted(map(tuple, frame.collect())) == [(entry["glsn"], entry["payload"]) for entry in before]
    archive_info = log.info().archive
    assert archive_info is not None
    assert len(list(Snapshot(ArchivedRange(**asdict(archive_info))).files(1, 25))) == 4
    place = parse_place(s3.location, endpoint=s3.endpoint)
    data = archive_info.metadata.rpartition("/metadata/")[0] + "/data"
    fill(log, 1)
    run()
    assert len(place.list(data)) == 5, "what was left over is swept away"
