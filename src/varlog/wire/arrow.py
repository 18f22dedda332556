"""The columns of a log as Arrow has them: in record batches, in Spark and in archives. pyarrow is an extra, loaded at
its first use."""

from functools import cache
from typing import TYPE_CHECKING, Any

from varlog.base.errors import Unsupported

if TYPE_CHECKING:
    import pyarrow


@cache
def library() -> Any:
    """pyarrow itself."""
    try:
        import pyarrow
    except ImportError as missing:
        raise Unsupported("Arrow needs the extra: pip install 'varlog[arrow]'") from missing
    return pyarrow


@cache
def schema() -> "pyarrow.Schema":
    """The columns of every record batch."""
    arrow = library()
    return arrow.schema(
        [
            arrow.field("glsn", arrow.int64(), nullable=False),
            arrow.field("stream", arrow.int32(), nullable=False),
            arrow.field("slot", arrow.int64(), nullable=False),
            arrow.field("time", arrow.timestamp("us", tz="UTC"), nullable=False),
            arrow.field("key", arrow.binary()),
            arrow.field("headers", arrow.map_(arrow.string(), arrow.binary()), nullable=False),
            arrow.field("payload", arrow.binary(), nullable=False),
        ]
    )


@cache
def archive_schema() -> "pyarrow.Schema":
    """The same in archives, where positions that were given up have rows, too: without a payload."""
    arrow, columns = library(), schema()
    return columns.set(columns.get_field_index("payload"), arrow.field("payload", arrow.binary()))
