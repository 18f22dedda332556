"""How much of the past is kept: by count, by bytes, and whatever order commits come in."""

from itertools import pairwise

from varlog.metadata.etcd.space import COMPACT_BYTES, COMPACT_EVERY, KEPT_BYTES, KEPT_REVISIONS, Past

START = 10 * KEPT_REVISIONS


def test_small_revisions_are_kept_by_count() -> None:
    past = Past()
    assert past.grown(START, 200) == START - KEPT_REVISIONS
    assert not any(past.grown(START + made, 200) for made in range(1, COMPACT_EVERY + 1))
    now = START + COMPACT_EVERY + 1
    assert past.grown(now, 200) == now - KEPT_REVISIONS


def test_large_revisions_are_kept_by_bytes() -> None:
    past = Past()
    past.grown(START, 1 << 20)
    compacted = [(now, past.grown(now, 1 << 20)) for now in range(START + 1, START + 1001)]
    times = [(now, revision) for now, revision in compacted if revision]
    assert {now - revision for now, revision in times} == {KEPT_BYTES >> 20}
    apart = {second - first for (first, _), (second, _) in pairwise(times)}
    assert apart == {(COMPACT_BYTES >> 20) + 1}


def test_nothing_of_the_present_goes_when_commits_come_in_any_order() -> None:
    past = Past()
    past.grown(START, 1)
    for late in range(START - 1, START - 100, -1):
        assert past.grown(late, 1 << 20) < late


def test_a_young_etcd_is_left_alone() -> None:
    past = Past()
    assert not any(past.grown(revision, 1000) for revision in range(1, COMPACT_EVERY * 2))
