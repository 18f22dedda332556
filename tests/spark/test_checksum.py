"""Equal rows give equal sums however they are cut, and anything changed gives another."""

import pyarrow
from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.spark.checksum import Checksum
from varlog.wire.arrow import schema

rows = st.lists(
    st.fixed_dictionaries(
        {
            "glsn": st.integers(1, 1 << 62),
            "stream": st.integers(1, 9),
            "slot": st.integers(0, 9),
            "time": st.integers(0, 1 << 50),
            "key": st.none() | st.binary(max_size=3),
            "headers": st.lists(st.tuples(st.text(max_size=2), st.binary(max_size=2)), max_size=2),
            "payload": st.binary(max_size=5),
        }
    ),
    min_size=1,
    max_size=12,
)


def summed(*batches: pyarrow.RecordBatch) -> dict[str, int]:
    checksum = Checksum()
    for batch in batches:
        checksum.add(batch)
    return checksum.sums


@settings(deadline=None)
@given(rows, st.integers(0, 12), st.data())
def test_cuts_do_not_matter_and_contents_do(given: list[dict[str, object]], cut: int, data: st.DataObject) -> None:
    whole = pyarrow.RecordBatch.from_pylist(given, schema=schema())
    copied = [pyarrow.RecordBatch.from_pylist(part, schema=schema()) for part in (given[:cut], given[cut:])]
    assert summed(*copied) == summed(whole)
    assert summed(whole.slice(0, cut), whole.slice(cut)) == summed(whole)
    changed = [dict(row) for row in given]
    row = data.draw(st.sampled_from(changed))
    row["payload"] = bytes(row["payload"]) + b"x"  # type: ignore[call-overload]
    assert summed(pyarrow.RecordBatch.from_pylist(changed, schema=schema())) != summed(whole)
