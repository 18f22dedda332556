"""Schemas: what can be read from a log, and which frames can be appended to one."""

import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, MapType, StringType, StructType

from varlog.base.errors import InvalidArgument
from varlog.spark.columns import SCHEMA, check_read, check_written, chosen
from varlog.spark.source import VarlogDataSource

TEXTS = MapType(StringType(), StringType())


def made(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def test_schemas_that_can_be_read() -> None:
    assert chosen(None) is SCHEMA
    assert chosen(("payload", "glsn")).fieldNames() == ["payload", "glsn"]
    headers = MapType(StringType(), BinaryType(), False)
    assert check_read(made(payload=BinaryType(), headers=headers, glsn=LongType()))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (made(), "at least one column"),
        (made(offset=LongType()), "no column 'offset'; its columns are glsn, stream"),
        (made(payload=StringType()), "'payload' of a log is binary, not string"),
        (StructType().add("key", BinaryType(), False), "'key' of a log may be null"),
    ],
)
def test_schemas_that_cannot_be_read(schema: StructType, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        check_read(schema)


@pytest.mark.parametrize("columns", ["glsn,glsn", ",", "glsn,nothing"])
def test_columns_that_cannot_be_chosen(columns: str) -> None:
    source = VarlogDataSource({"cluster": "varlog://127.0.0.1:1", "log": "log", "columns": columns})
    with pytest.raises(InvalidArgument, match="column"):
        source.schema()


def test_frames_that_can_be_appended() -> None:
    check_written(SCHEMA)
    check_written(made(payload=StringType(), key=StringType()))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (made(value=BinaryType()), "needs a column `payload`"),
        (made(payload=LongType()), "'payload' is appended as binary, not bigint: cast it"),
        (made(payload=BinaryType(), user=StringType()), "no place for the column 'user'"),
        (made(payload=BinaryType(), headers=TEXTS), "'headers' is appended as map<string,binary>"),
    ],
)
def test_frames_that_cannot_be_appended(schema: StructType, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        check_written(schema)
