"""What may be said of a source or sink, and what is answered to the rest."""

import importlib
import pkgutil
from datetime import UTC, datetime
from typing import Any

import pytest

import varlog.spark
from varlog.base.errors import InvalidArgument, VarlogError
from varlog.spark.options import Options, parse_options

GIVEN = {"cluster": "varlog://127.0.0.1:7700", "log": "orders"}


def expected(**changes: Any) -> Options:
    return Options(cluster=GIVEN["cluster"], log=GIVEN["log"], **changes)


def test_defaults() -> None:
    assert parse_options(GIVEN) == expected()


def test_names_are_those_of_any_case_and_sparks_own_are_left_aside() -> None:
    given = {"Cluster": GIVEN["cluster"], "LOG": "orders", "failondataloss": "FALSE", "checkpointLocation": "/x"}
    assert parse_options(given) == expected(fail_on_data_loss=False)


def test_everything_at_once() -> None:
    given = {
        "start": "7",
        "stop": "2026-01-31T12:00:00+01:00",
        "stream": "2",
        "columns": "glsn, payload",
        "batchRows": "10",
        "partitionBytes": "1000",
        "minPartitions": "3",
        "maxEntriesPerTrigger": "5",
        "identity": "etl-1",
        "timeout": "1.5",
    }
    assert parse_options(GIVEN | given) == expected(
        start=7,
        stop=datetime(2026, 1, 31, 11, tzinfo=UTC),
        stream=2,
        columns=("glsn", "payload"),
        batch_rows=10,
        partition_bytes=1000,
        min_partitions=3,
        max_entries_per_trigger=5,
        identity="etl-1",
        timeout=1.5,
    )


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("start", "0", "from 1 on"),
        ("start", "-3", "from 1 on"),
        ("start", "yesterday", "'earliest', 'latest' or a time"),
        ("stop", "2026-01-31T12:00:00", "needs a zone"),
        ("minPartitions", "0", "'minPartitions' is a whole number from 1 on"),
        ("maxEntriesPerTrigger", "many", "whole number"),
        ("failOnDataLoss", "perhaps", "true or false"),
        ("timeout", "nan", "positive number of seconds"),
        ("log", "no spaces", "cannot be the name of a log"),
        ("cluster", "127.0.0.1:7700", "begins with varlog://"),
        ("identity", "a/b", "identity"),
        ("starts", "1", "there is no option 'starts'; the options are cluster, log, start"),
    ],
)
def test_what_makes_no_sense(name: str, text: str, says: str) -> None:
    with pytest.raises(VarlogError, match=says):
        parse_options(GIVEN | {name: text})


@pytest.mark.parametrize("missing", ["cluster", "log"])
def test_what_is_missing(missing: str) -> None:
    with pytest.raises(InvalidArgument, match=f"'{missing}' is missing"):
        parse_options({name: value for name, value in GIVEN.items() if name != missing})


def test_the_public_names_are_what_they_say() -> None:
    """Also after everything was imported: a module of the same name would stand in a function's place."""
    for module in pkgutil.iter_modules(varlog.spark.__path__):
        importlib.import_module(f"varlog.spark.{module.name}")
    assert all(callable(getattr(varlog.spark, name)) for name in varlog.spark.__all__)
