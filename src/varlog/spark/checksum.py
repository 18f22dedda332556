"""A checksum of Arrow columns that depends on what is in them and not on how they are cut into batches."""

import numpy
import pyarrow
from crc32c import crc32c


class Checksum:
    """Feed batches of one schema in order; equal rows give equal sums, wherever the batches begin and end."""

    def __init__(self) -> None:
        self.rows = 0
        self._sums: dict[str, int] = {}

    def add(self, batch: pyarrow.RecordBatch) -> None:
        self.rows += batch.num_rows
        for field, column in zip(batch.schema, batch.columns, strict=True):
            self._column(field.name, column, nullable=field.nullable)

    @property
    def sums(self) -> dict[str, int]:
        """By buffer: validity, lengths and values of each column are summed up each for itself."""
        return dict(self._sums)

    def _column(self, name: str, column: pyarrow.Array, *, nullable: bool) -> None:
        if nullable:
            self._feed(f"{name} valid", column.is_valid().to_numpy(zero_copy_only=False).tobytes())
        if pyarrow.types.is_map(column.type):
            low, high = self._lengths(name, column)
            self._column(f"{name} names", column.keys.slice(low, high - low), nullable=False)
            self._column(f"{name} values", column.items.slice(low, high - low), nullable=True)
        elif pyarrow.types.is_binary(column.type) or pyarrow.types.is_string(column.type):
            low, high = self._lengths(name, column)
            values = column.buffers()[2]
            self._feed(name, b"" if values is None else memoryview(values)[low:high])
        else:
            numbers = column.cast(pyarrow.int64()).fill_null(0)
            self._feed(name, numbers.to_numpy().tobytes())

    def _lengths(self, name: str, column: pyarrow.Array) -> tuple[int, int]:
        """Feeds the lengths; where the values of this slice begin and end."""
        offsets = numpy.frombuffer(column.buffers()[1], numpy.int32)[column.offset : column.offset + len(column) + 1]
        self._feed(f"{name} lengths", numpy.diff(offsets).tobytes())
        return (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)

    def _feed(self, name: str, data: "bytes | memoryview") -> None:
        self._sums[name] = crc32c(data, self._sums.get(name, 0))
