"""How far a log is archived is recorded by compare-and-swap, and survives a restart."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.servers import run, servers

import varlog
from varlog.base.errors import Conflict, InvalidArgument, NotWritten, Trimmed
from varlog.client import ArchiveDescription
from varlog.repository.archiving import MOST_CHARACTERS, record_archive
from varlog.wire.proto import varlog_pb2 as pb

HERE = ArchiveDescription("file:///here", "", "", "", 1, 1)


def at(stop: int) -> ArchiveDescription:
    return replace(HERE, metadata=f"file:///here/{stop}.json", stop=stop)


@pytest.mark.parametrize("ordering", ["cut", "leader"])
def test_an_archive_grows_by_compare_and_swap(tmp_path: Path, ordering: str) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            url = f"varlog://{cluster.repository_address}"
            async with varlog.connect(url) as client:
                log = await client.create_log("orders", ordering=ordering)
                assert (await log.info()).archive is None
                assert (await log.info()).archived == 0
                for number in range(9):
                    await log.append(b"%d" % number)
                assert (await log.record_archive(HERE, expected=0)).archive == HERE
                assert (await log.record_archive(at(5), expected=1)).archived == 5
                with pytest.raises(Conflict, match="up to 4 by now") as stale:
                    await log.record_archive(at(7), expected=1)
                assert stale.value.value == 5
                with pytest.raises(InvalidArgument, match="does not go back"):
                    await log.record_archive(at(3), expected=5)
                with pytest.raises(Conflict, match="a log has one"):
                    await log.record_archive(replace(HERE, location="file:///there", first=5, stop=5), expected=5)
                with pytest.raises(NotWritten) as beyond:
                    await log.record_archive(at(11), expected=5)
                assert beyond.value.tail == 9
                assert (await log.record_archive(at(10), expected=5)).archived == 10
            await cluster.stop_repository()
            await cluster.start_repository()
            async with varlog.connect(f"varlog://{cluster.repository_address}") as client:
                info = await client.log("orders").info()
                assert info.archive == at(10)
                assert (info.trimmed, info.first) == (0, 1)

    run(story())


def record(log: pb.LogInfo, location: str, first: int, archived: int, metadata: str = "") -> pb.LogInfo:
    made = pb.LogInfo()
    made.CopyFrom(log)
    archive = pb.ArchiveInfo(location=location, first=first, metadata=metadata)
    record_archive(made, pb.RecordArchiveRequest(archive=archive, expected=log.archived, archived=archived))
    return made


def test_another_archive_follows_one_that_cannot_be_continued() -> None:
    log = pb.LogInfo(name="orders", trimmed=3)
    with pytest.raises(Trimmed) as gone:
        record(log, "file:///a", 3, 3)
    assert gone.value.first == 4
    with pytest.raises(InvalidArgument, match="with nothing in it"):
        record(log, "file:///a", 4, 9)
    log = record(log, "file:///a", 4, 4)
    log = record(log, "file:///b", 5, 5)
    log = record(log, "file:///b", 5, 9, "file:///b/1.json")
    log.trimmed = 8
    with pytest.raises(Conflict, match="a log has one"):
        record(log, "file:///c", 9, 9)
    log.trimmed = 9
    log = record(log, "file:///c", 10, 10)
    assert (log.archive.location, log.archived) == ("file:///c", 10)


@pytest.mark.parametrize(
    ("location", "first", "why"),
    [
        ("s3://key:secret@bucket/logs", 1, "no secrets"),
        ("/folder", 1, "has a location"),
        ("file:///folder", 0, "first position"),
        ("file:///" + "x" * MOST_CHARACTERS, 1, "at most"),
    ],
)
def test_records_that_make_no_sense(location: str, first: int, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        record(pb.LogInfo(name="orders"), location, first, first)
