"""The columns of the log as Spark sees them, and which of them a reader or writer was asked for."""

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from varlog.base.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow

HEADERS = MapType(StringType(), BinaryType(), True)

SCHEMA = StructType(
    [
        StructField("glsn", LongType(), False),
        StructField("stream", IntegerType(), False),
        StructField("slot", LongType(), False),
        StructField("time", TimestampType(), False),
        StructField("key", BinaryType(), True),
        StructField("headers", HEADERS, False),
        StructField("payload", BinaryType(), False),
    ]
)

ARCHIVED = StructType([*SCHEMA.fields[:-1], StructField("payload", BinaryType(), True)])
"""The same in archives: a position that was given up is a row without a payload."""

WRITTEN: dict[str, tuple[DataType, ...]] = {
    "payload": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (HEADERS, MapType(StringType(), BinaryType(), False)),
}
"""What a sink takes, and as which types."""

GIVEN_BY_THE_LOG = ("glsn", "stream", "slot", "time")
"""What a sink leaves aside: the log it writes to gives its own."""


def chosen(names: tuple[str, ...] | None) -> StructType:
    """The schema of the columns asked for by name; all without names."""
    if names is None:
        return SCHEMA
    if not names or len(set(names)) != len(names):
        raise InvalidArgument(f"the option 'columns' names each column once, not {', '.join(names) or 'none'}")
    return StructType([_field(name) for name in names])


def _field(name: str) -> StructField:
    for field in SCHEMA.fields:
        if field.name == name:
            return field
    raise InvalidArgument(f"the log has no column {name!r}; its columns are {', '.join(SCHEMA.fieldNames())}")


def check_read(schema: StructType) -> StructType:
    """A schema that a reader was given: columns of the log with their types, in any order, perhaps not all."""
    if not schema.fields:
        raise InvalidArgument("a schema for reading a log names at least one column")
    for field in schema.fields:
        wanted = _field(field.name)
        if field.dataType not in (WRITTEN["headers"] if field.name == "headers" else (wanted.dataType,)):
            raise InvalidArgument(
                f"the column {field.name!r} of a log is {wanted.dataType.simpleString()}, not "
                f"{field.dataType.simpleString()}: read it so, and cast it afterwards"
            )
        if wanted.nullable and not field.nullable:
            raise InvalidArgument(f"the column {field.name!r} of a log may be null: let the schema say so")
    return schema


def check_written(schema: StructType) -> None:
    """A frame that is to be appended."""
    if "payload" not in schema.fieldNames():
        raise InvalidArgument(
            f"a frame needs a column `payload` to be appended to a log; this one has {', '.join(schema.fieldNames())}"
        )
    for field in schema.fields:
        if field.name in GIVEN_BY_THE_LOG:
            continue
        kinds = WRITTEN.get(field.name)
        if kinds is None:
            raise InvalidArgument(
                f"a log has no place for the column {field.name!r}: it takes payload, key and headers; "
                f"drop it, or put it into the payload, as to_json(struct(...)) does"
            )
        if field.dataType not in kinds:
            raise InvalidArgument(
                f"the column {field.name!r} is appended as {kinds[0].simpleString()}, not "
                f"{field.dataType.simpleString()}: cast it"
            )


def arrow_schema(schema: StructType) -> "pyarrow.Schema":
    """What Spark compares record batches with, nullability included."""
    return to_arrow_schema(schema, timezone="UTC")
