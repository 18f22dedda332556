"""Archives on a real S3 server: written, read over the seam, and what is said when that cannot be."""

import asyncio
from pathlib import Path

import pytest
from tests.archive.by_hand import archive
from tests.archive.s3 import CREDENTIALS, KEY, S3, SECRET
from tests.client.test_archived import filled, run, scan

from varlog.archive import place as room
from varlog.archive.place import ENDPOINT_VARIABLES, REGION_VARIABLES, Place, parse_place
from varlog.archive.table import open_table
from varlog.base.errors import InvalidArgument, Unavailable


@pytest.fixture
def place(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in (*ENDPOINT_VARIABLES, *REGION_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    room._filesystem_of.cache_clear()  # which keeps the credentials it was made with
    return parse_place(s3.location, endpoint=s3.endpoint)


def test_a_log_is_archived_and_read_over_the_seam(place: Place) -> None:
    async def story() -> None:
        async with filled() as log:
            before = await scan(log)
            await archive(log, place, 41, file_rows=17, group_rows=5)
            info = await archive(log, place, 71)
            await log.trim(60)
            assert info.archive is not None
            assert (info.archive.location, info.archive.endpoint) == (place.url, place.endpoint)
            assert not any(secret in repr(info) for secret in (KEY, SECRET))
            assert await scan(log) == before
            assert await log.read(3) == before[2]
            first = next(entry.glsn for entry in before if entry.time >= before[33].time)
            assert await log.find(before[33].time) == first
            assert len(await asyncio.to_thread(place.list, place.below(f"{info.name}-{info.id}", "data"))) == 4

    run(story())


def test_who_may_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with filled(batches=10) as log:
            await archive(log, place, 11)
            await log.trim(5)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
            room._filesystem_of.cache_clear()
            with pytest.raises(Unavailable, match="cannot be reached from here") as refused:
                await log.read(3)
            assert SECRET not in refused.value.message
            with pytest.raises(InvalidArgument, match="cannot be an archive"):
                open_table(place, "orders", {}, "orders-1")

    run(story())


def test_places_that_are_none() -> None:
    for text in ("s3://key:secret@bucket/x", "s3:///x", "s3://bucket/x?a=b", "http://bucket/x", ""):
        with pytest.raises(InvalidArgument):
            parse_place(text)


def test_what_is_not_given_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://there:1/")
    monkeypatch.setenv("AWS_REGION", "mine")
    assert parse_place("s3://bucket/a/") == Place("s3://bucket/a", "http://there:1", "mine")
    assert parse_place("s3://bucket", endpoint="http://here") == Place("s3://bucket", "http://here", "mine")
    assert room.recorded_place("s3://bucket", "http://inside", "r").endpoint == "http://there:1/"
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert room.recorded_place("s3://bucket", "http://inside", "r") == Place("s3://bucket", "http://inside", "r")
    monkeypatch.chdir(tmp_path)
    assert parse_place("folder") == parse_place((tmp_path / "folder").as_uri()) == Place(f"file://{tmp_path}/folder")
