"""Files into a log and back, and SQL over logs; one command is run as people run it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from tests.cluster.cluster import RealCluster
from tests.cluster.processes import run_varlog

import varlog
from varlog.base.errors import InvalidArgument
from varlog.cli.sql import Part, chosen, mentioned, parse_part, run_query
from varlog.spark.transfer import export_rows, format_of, import_rows, rows_in

ROWS: list[dict[str, Any]] = [{"user": f"u{number % 3}", "amount": number} for number in range(50)]


def write(folder: Path, form: str) -> str:
    path = folder / f"rows.{form}"
    if form == "json":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "\n")
    elif form == "csv":
        pyarrow.csv.write_csv(pyarrow.Table.from_pylist(ROWS), path)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return str(path)


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_in_and_out_again(
    spark: SparkSession, servers: RealCluster, log: varlog.sync.Log, tmp_path: Path, form: str
) -> None:
    frame = rows_in(spark, write(tmp_path, form), form, "user")
    for _ in range(2):
        assert import_rows(frame, servers.url, log.name, "import-1") == 50
    entries = list(log.subscribe(wait=False))
    assert [
        {**row, "amount": int(row["amount"])} for row in map(json.loads, (each.payload for each in entries))
    ] == ROWS
    assert [each.key for each in entries] == [row["user"].encode() for row in ROWS]

    out = str(tmp_path / f"out.{form}")
    assert export_rows(spark, servers.url, log.name, 11, 31, out, form) == 20
    reader = spark.read.option("header", "true").option("escape", '"').option("inferSchema", "true")
    back = reader.format(form).load(out).orderBy("glsn").collect()
    assert [row.glsn for row in back] == list(range(11, 31))
    payloads = [bytes(row.payload) if form == "parquet" else row.payload.encode() for row in back]
    assert payloads == [each.payload for each in entries[10:30]]
    if form == "parquet":
        assert rows_in(spark, out, form).columns == ["key", "headers", "payload"]


ODD = [
    b"  blanks ",
    b"two\nlines",
    b"a\r\nb\rc",
    b'say "so"',
    b"back\\slash\\",
    b"",
    b"a,b",
    b'\\"',
    b"#x",
    b"null",
    b"\x00",
]


def test_odd_texts_come_back_from_csv(
    spark: SparkSession, servers: RealCluster, client: varlog.sync.Cluster, log: varlog.sync.Log, tmp_path: Path
) -> None:
    log.append_batch(ODD, keys=[None, *ODD[1:]])
    out = str(tmp_path / "out.csv")
    assert export_rows(spark, servers.url, log.name, 1, None, out, "csv") == len(ODD)
    copy = client.create_log(f"{log.name}-copy", replicas=1)
    assert import_rows(rows_in(spark, out, "csv"), servers.url, copy.name) == len(ODD)
    found = [(entry.payload, entry.key) for entry in copy.subscribe(wait=False)]
    assert sorted(found) == sorted(zip(ODD, [None, *ODD[1:]], strict=True))


@pytest.mark.parametrize("form", ["json", "csv"])
def test_what_is_not_text_is_not_changed_into_some(
    spark: SparkSession, servers: RealCluster, log: varlog.sync.Log, tmp_path: Path, form: str
) -> None:
    log.append_batch([b"text", b"\xff\xfe"])
    out = tmp_path / "out"
    with pytest.raises(InvalidArgument, match="export it as parquet"):
        export_rows(spark, servers.url, log.name, 1, None, str(out), form)
    assert not list(out.glob("part-*"))
    assert export_rows(spark, servers.url, log.name, 1, 2, str(tmp_path / "text"), form) == 1
    assert export_rows(spark, servers.url, log.name, 1, None, str(tmp_path / "all"), "parquet") == 2


def test_how_long_a_question_may_take_is_told_to_all_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Told something that makes no sense, each of them complains."""
    nobody, path = "varlog://127.0.0.1:1", str(tmp_path / "out.json")
    frame = spark.createDataFrame([(b"a",)], ["payload"])
    for work in (
        lambda: export_rows(spark, nobody, "orders", 1, None, path, "json", timeout=-1.0),
        lambda: import_rows(frame, nobody, "orders", timeout=-1.0),
        lambda: run_query(spark, nobody, [Part("orders")], "select * from orders", 10, timeout=-1.0),
    ):
        with pytest.raises(Exception, match="option 'timeout'"):
            work()


def test_files_are_cut_alike_on_any_number_of_cores(spark: SparkSession, tmp_path: Path) -> None:
    """A task that is repeated under the same identity must have the same rows."""
    path = tmp_path / "large.jsonl"
    path.write_bytes((b"x" * 1023 + b"\n") * (40 << 10))
    cores = "spark.sql.leafNodeDefaultParallelism"
    try:
        counts = []
        for number in (1, 4, 64):
            spark.conf.set(cores, number)
            counts.append(rows_in(spark, str(path), "json").rdd.getNumPartitions())
    finally:
        spark.conf.unset(cores)
    assert counts == [2, 2, 2]


def test_what_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    assert [format_of(path, None) for path in ("a.jsonl", "b/c.CSV", "d.parquet")] == ["json", "csv", "parquet"]
    with pytest.raises(InvalidArgument, match="say which"):
        format_of("rows.txt", None)
    with pytest.raises(InvalidArgument, match="no column 'name'; its columns are user, amount"):
        rows_in(spark, write(tmp_path, "csv"), "csv", "name")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        rows_in(spark, str(tmp_path / "nothing.parquet"), "parquet")


def test_logs_are_tables(spark: SparkSession, servers: RealCluster, client: varlog.sync.Cluster) -> None:
    dashed = client.create_log("dashed-log", replicas=1)
    dashed.append_batch([b"a", b"b", b"b"])
    query = "select cast(payload as string) as text, count(*) as n from `Dashed-Log` group by 1 order by 1"
    logs = mentioned(query, ["other", "dashed-log", "log"])
    assert logs == ["dashed-log", "log"]
    assert run_query(spark, servers.url, [Part("dashed-log")], query, 10) == (
        ["text", "n"],
        [{"text": "a", "n": 1}, {"text": "b", "n": 2}],
    )
    joined = (
        "select a.glsn, -b.glsn as glsn from `dashed-log` a join `dashed-log` b on a.glsn = b.glsn where a.glsn = 2"
    )
    assert run_query(spark, servers.url, [Part("dashed-log")], joined, 10) == (
        ["glsn", "glsn_2"],
        [{"glsn": 2, "glsn_2": -2}],
    )
    for told, positions in (("dashed-log=2..2", [2]), ("dashed-log=..2", [1, 2]), ("dashed-log=3..", [3])):
        parts = chosen([parse_part(told)], logs[:1])
        _, rows = run_query(spark, servers.url, parts, "select glsn from `dashed-log` order by 1", 10)
        assert [row["glsn"] for row in rows] == positions


def test_ranges_of_tables() -> None:
    noon = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert parse_part("orders=1..9") == Part("orders", 1, 10)
    assert parse_part("orders=2026-11-15T12:00:00+00:00..latest") == Part("orders", noon, "latest")
    assert chosen([Part("b", 2, 3)], ["a", "b"]) == [Part("a"), Part("b", 2, 3)]
    for text in ("orders", "orders=7", "=1..2", "orders=x..", "orders=2026-11-15T12:00:00.."):
        with pytest.raises(InvalidArgument):
            parse_part(text)
    with pytest.raises(InvalidArgument, match="no log of the query"):
        chosen([Part("c")], ["a", "b"])
    with pytest.raises(InvalidArgument, match="one range"):
        chosen([Part("a", 1), Part("a", 5)], ["a"])


def test_the_command(servers: RealCluster, log: varlog.sync.Log) -> None:
    log.append_batch([b"x", b"y", b"z"], key=b"k")
    query = f"select glsn, payload from {log.name} order by glsn"
    options = ["--range", f"{log.name}=2..", "--limit", "1", "--master", "local[1]"]
    done = run_varlog("sql", query, *options, url=servers.url, seconds=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == ["GLSN  PAYLOAD", "2     y", "… and more; --limit shows more than 1"]
    assert done.stderr == b""
