"""What the demo makes of the rows of its query, and what it says where Spark cannot run."""

import os
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException, SparkRuntimeException

from varlog.base.errors import InvalidArgument, NotFound, Unavailable, VarlogError
from varlog.cli.demo_query import Result, page, summed
from varlog.cli.small_spark import hushed, told, why_not
from varlog.spark import java

OURS = "varlog.base.errors"


def test_rows_are_summed_by_writer_and_by_second() -> None:
    rows = [
        {"writer": "2", "second": 103, "count": 4},
        {"writer": "1", "second": 100, "count": 1},
        {"writer": "1", "second": 103, "count": 2},
    ]
    result = summed(rows)
    assert result == Result([{"writer": 1, "entries": 3}, {"writer": 2, "entries": 4}], [1, 0, 0, 6])
    assert result.entries == 7
    assert summed([]) == Result([], [])


def test_the_page_has_a_bar_for_every_second() -> None:
    lines = page(Result([{"writer": 1, "entries": 3}], [1, 0, 2]))
    assert [line.count("█") for line in lines if " s " in line or line.endswith(" 0")] == [25, 0, 50]
    assert not any(line.endswith(" ") for line in lines)


def test_nothing_runs_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not() == ""
    monkeypatch.setattr(java, "find_java", lambda: None)
    assert "Java 17" in why_not()
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert "varlog[spark]" in why_not()


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (
            PythonException(f"failed\nTraceback\n{OURS}.Unavailable: node 3 is away\nat Java"),
            Unavailable,
            "node 3",
        ),
        (AnalysisException(f"odd\n{OURS}.NotFound: no log 'x'\nSQLSTATE"), NotFound, "no log 'x'"),
        (AnalysisException("[TABLE_NOT_FOUND] there is none\nat Java"), InvalidArgument, "[TABLE_NOT_FOUND] there"),
        (SparkRuntimeException("[DIVIDE_BY_ZERO] oh\nat Java"), VarlogError, "[DIVIDE_BY_ZERO] oh"),
        (PySparkException(""), VarlogError, "PySparkException"),
    ],
)
def test_errors_of_spark_are_told_as_what_they_are(raised: Exception, kind: type[VarlogError], message: str) -> None:
    """Only what makes no sense as it stands has exit status 2."""
    with pytest.raises(VarlogError) as caught, told():
        raise raised
    assert type(caught.value) is kind
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message


def fail(folder: Path) -> None:
    with hushed(folder):
        os.write(2, b"idle talk\nno room\n")
        raise RuntimeError("it ended")


def test_what_a_program_says_is_shown_only_when_it_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with hushed(tmp_path):
        os.write(2, b"idle talk\n")
    with pytest.raises(VarlogError, match="Spark did not start: no room"):
        fail(tmp_path)
    os.write(2, b"heard\n")
    assert capfd.readouterr().err == "heard\n"
