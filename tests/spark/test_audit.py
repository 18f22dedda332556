"""An audit is content with a log that is whole, and tells the exact positions of what is not."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.cluster.cluster import RealCluster
from tests.cluster.processes import eventually

import varlog
from varlog.cli.audit import show, verdict
from varlog.cli.output import Printer
from varlog.spark.audit import FOUND, Report, _Copy, _differences, _disorder, _troubles, audit
from varlog.spark.audit_archive import Fault
from varlog.spark.options import Options


def fill(log: varlog.sync.Log) -> list[range]:
    """Batches of one to seven entries; the positions of each."""
    acks = [log.append_batch([b"entry %03d" % number] * (number % 7 + 1)) for number in range(60)]
    return [range(ack.first, ack.last + 1) for ack in acks]


def test_a_log_that_is_whole_and_one_that_is_not(
    spark: SparkSession, servers: RealCluster, log: varlog.sync.Log, options: Options
) -> None:
    placed = fill(log)
    tail = log.tail()
    report = audit(spark, options)
    assert report == Report(log.name, 1, tail + 1, 4, 2 * len(placed), ())

    hurt = next(each for each in placed if len(each) == 5)
    path = next(iter(copies_with(servers, log, b"entry %03d" % placed.index(hurt))))
    data = path.read_bytes()
    at = data.index(b"entry %03d" % placed.index(hurt))
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"E")
    (fault,) = audit(spark, options).faults
    assert (fault.first, fault.stop) == (hurt.start, hurt.stop)
    assert "checksum" in fault.what
    eventually(lambda: not audit(spark, options).faults, "the node makes its copy anew")


def copies_with(servers: RealCluster, log: varlog.sync.Log, text: bytes) -> list[Path]:
    """The files of nodes in which an entry lies."""
    number = log.info().id
    files = [path for node in range(1, 4) for path in servers.data(node).rglob("*.data") if f"{number}." in str(path)]
    return [path for path in files if text in path.read_bytes()]


def test_an_empty_log(spark: SparkSession, options: Options) -> None:
    report = audit(spark, options)
    assert (report.copies, report.batches, report.faults) == (0, 0, ())
    assert "nothing" in verdict(report)


ROW = (1, 1, 1, 0, 1, 5, 77, None)
"""Segment, stream, node, slot, first, stop, crc, trouble: of stream 1 on node 1."""


def test_copies_that_differ(spark: SparkSession) -> None:
    rows = [
        *(ROW, (1, 1, 2, 0, 1, 5, 77, None)),
        *((1, 2, 1, 0, 5, 8, 77, None), (1, 2, 2, 0, 5, 8, 78, None)),
        *((1, 3, 1, 0, 8, 9, 77, None), (1, 3, 2, 4, 8, 9, 77, None)),
        (1, 4, 1, 0, 9, 12, 77, None),
        *((1, 5, 1, 0, 12, 15, 77, None), (1, 5, 2, None, 12, 20, None, "away")),
    ]
    found = spark.createDataFrame(rows, FOUND)
    copies = [_Copy(1, stream, node, [3 - node], 1, 20, 4) for stream in range(1, 6) for node in (1, 2)]
    assert [*_troubles(found), *_differences(spark, found, copies)] == [
        Fault(12, 20, "stream 5 on node 2: away"),
        Fault(5, 8, "stream 2: its copies differ"),
        Fault(8, 9, "stream 3: its copies differ"),
        Fault(9, 12, "stream 4: node 2 lacks it"),
    ]


def test_positions_of_two_streams(spark: SparkSession) -> None:
    rows = [ROW, (1, 2, 1, 0, 5, 8, 1, None), (1, 1, 1, 4, 9, 12, 1, None), (1, 2, 1, 3, 11, 13, 1, None)]
    assert list(_disorder(spark.createDataFrame(rows, FOUND), 1, 15)) == [
        Fault(8, 9, "no copy has it"),
        Fault(11, 12, "it is there twice"),
        Fault(13, 15, "no copy has it"),
    ]


def test_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("orders", 1, 101, 6, 12, (Fault(7, 9, "its copies differ"),))
    show(report, Printer("table"))
    assert capsys.readouterr().out.splitlines() == [
        "POSITIONS  WHAT",
        "7..8       its copies differ",
        "positions 1 to 100 of orders: 1 fault",
    ]
    show(report, Printer("json"))
    assert json.loads(capsys.readouterr().out)["faults"] == [{"positions": "7..8", "what": "its copies differ"}]
    assert "each there once, without a gap" in verdict(Report("orders", 1, 101, 6, 12, ()))
