"""Rows of an archive as batches: no larger than a batch may be, whatever makes them large."""

from typing import Any

import pyarrow
import pytest
from tests.archive.rows import rows

from varlog.archive.batches import to_batches


@pytest.mark.parametrize("column", ["payload", "key", "headers"])
def test_large_entries_of_one_moment_are_cut(column: str) -> None:
    """Appended in the same microsecond, they look like one batch, which could be larger than any may be."""
    large = b"x" * (6 << 20)
    table = rows(1, 5)
    value: Any = [("n", large)] if column == "headers" else large
    index = table.schema.get_field_index(column)
    table = table.set_column(
        index, table.schema.field(index), pyarrow.array([value] * 4, table.schema.field(index).type)
    )
    made = to_batches(table.to_batches()[0])
    assert [(each.glsn, each.slot, len(each.batch)) for each in made] == [(number, number, 1) for number in range(1, 5)]
    got = {"payload": made[0].batch.payloads, "key": made[0].batch.keys, "headers": made[0].batch.headers}[column]()
    assert got == [dict(value) if column == "headers" else large]
