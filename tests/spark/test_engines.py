"""Other engines read an archive as the table it is: DuckDB, Polars and PyIceberg, by the metadata that the log names.

None of them fetches anything: DuckDB's extensions are packages.
"""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import polars
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

import varlog
from varlog.spark.archive import archive
from varlog.spark.options import Options

Row = tuple[int, bytes | None, bytes]
EXTENSIONS = {"avro": "duckdb_extension_avro", "iceberg": "duckdb_extension_iceberg"}


def read_by_duckdb(metadata: str, first: int) -> list[Row]:
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        for name, package in EXTENSIONS.items():
            path = files(package) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
            connection.execute(f"LOAD '{path}'")
        query = "SELECT glsn, key, payload FROM iceberg_scan(?) WHERE glsn >= ? ORDER BY glsn"
        return connection.execute(query, [metadata, first]).fetchall()


def read_by_polars(metadata: str, first: int) -> list[Row]:
    frame = polars.scan_iceberg(metadata).filter(polars.col("glsn") >= first)
    return frame.select("glsn", "key", "payload").sort("glsn").collect().rows()


def read_by_pyiceberg(metadata: str, first: int) -> list[Row]:
    scan = StaticTable.from_metadata(metadata).scan(f"glsn >= {first}", selected_fields=("glsn", "key", "payload"))
    rows: list[dict[str, Any]] = scan.to_arrow().sort_by("glsn").to_pylist()
    return [(row["glsn"], row["key"], row["payload"]) for row in rows]


@pytest.fixture
def metadata(spark: SparkSession, log: varlog.sync.Log, options: Options, tmp_path: Path) -> str:
    """Of an archive in two snapshots."""
    for start in (0, 50):
        log.append_batch([b"%d" % number for number in range(start, start + 50)], key=b"k")
        log.append(b"")
        archive(spark, replace(options, min_partitions=2), tmp_path)
    known = log.info().archive
    assert known is not None
    return unquote(urlsplit(known.metadata).path)


@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")  # it plans by PyIceberg here
def test_every_engine_reads_the_same(log: varlog.sync.Log, metadata: str) -> None:
    expected = [(entry.glsn, entry.key, entry.payload) for entry in log.subscribe(wait=False)]
    assert len(expected) == 102
    for read in (read_by_duckdb, read_by_polars, read_by_pyiceberg):
        assert read(metadata, 1) == expected, read.__name__
        assert read(metadata, 90) == expected[89:], read.__name__
