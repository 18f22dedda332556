"""What is unavailable is named as exactly as it is known."""

from varlog.repository.unavailable import Missing, describe_missing, missing_ranges
from varlog.wire.proto import varlog_pb2 as pb


def row(*damage: tuple[int, int, int, int]) -> pb.LogStreamUncommitReport:
    found = [pb.Damage(slot=slot, end_slot=end, glsn=glsn, end_glsn=stop) for slot, end, glsn, stop in damage]
    return pb.LogStreamUncommitReport(damage=found)


def test_only_what_is_whole_nowhere_is_missing() -> None:
    assert missing_ranges(40, []) == [Missing(0, 40)]
    assert missing_ranges(0, []) == []
    assert missing_ranges(40, [row()]) == []
    assert missing_ranges(40, [row((8, 10, 9, 11), (20, 21, 21, 22))]) == [
        Missing(8, 10, 9, 11),
        Missing(20, 21, 21, 22),
    ]
    assert missing_ranges(40, [row((8, 10, 9, 11)), row((20, 21, 21, 22))]) == [], "each has what the other lacks"
    assert missing_ranges(40, [row((8, 12, 9, 13)), row((10, 30, 11, 31))]) == [Missing(10, 12, 11, 13)]
    assert missing_ranges(40, [row((8, 8, 0, 0))]) == [], "something else than batches is damaged"


def test_positions_are_exact_where_they_are_known() -> None:
    log = pb.LogInfo()
    alone = pb.StreamInfo(end_slot=40, from_glsn=1, until_glsn=41)
    shared = pb.StreamInfo(end_slot=40, from_glsn=1, until_glsn=101)
    everything = [Missing(0, 40)]
    assert describe_missing(log, alone, everything) == "slots 0 to 39 (positions 1 to 40)"
    assert describe_missing(log, shared, everything) == "slots 0 to 39 (among positions 1 to 100)"
    assert describe_missing(log, shared, [Missing(8, 10, 9, 13)]) == "slots 8 to 9 (positions 9 to 12)"
    log.trimmed = 7
    assert describe_missing(log, alone, everything).endswith("(positions 1 to 40, of which those up to 7 are trimmed)")
    log.trimmed = 40
    assert describe_missing(log, alone, everything) == "", "nothing is left to be missed"
