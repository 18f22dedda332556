"""Where replicas go."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlog.base.errors import Unavailable
from varlog.base.ids import NodeId
from varlog.core.placement import Candidate, is_full, most_zones, place_replacement, place_streams, zones_of

MIB = 1 << 20

Nodes = dict[NodeId, Candidate]


def nodes_with(*loads: int) -> Nodes:
    """Members of so many open streams each."""
    return {NodeId(number): Candidate(open=load, replicas=load) for number, load in enumerate(loads, 1)}


def in_zones(*zones: str) -> Nodes:
    return {NodeId(number): Candidate(zone) for number, zone in enumerate(zones, 1)}


candidates = st.builds(
    Candidate,
    zone=st.sampled_from(["", "a", "b", "c"]),
    open=st.integers(0, 9),
    replicas=st.integers(0, 9),
    primaries=st.integers(0, 3),
    grants=st.integers(0, 3),
    draining=st.booleans(),
    full=st.booleans(),
)
clusters = st.lists(candidates, min_size=1, max_size=9).map(
    lambda listed: {NodeId(number): node for number, node in enumerate(listed, 1)}
)


# ---------------------------------------------------------------- load


def test_primaries_are_spread() -> None:
    placed = place_streams(3, 3, nodes_with(0, 0, 0))
    assert sorted(members[0] for members in placed) == [1, 2, 3]


def test_a_new_primary_is_one_that_has_few_already() -> None:
    nodes = {NodeId(1): Candidate(primaries=2), NodeId(2): Candidate(primaries=1), NodeId(3): Candidate(primaries=2)}
    assert place_streams(1, 3, nodes)[0][0] == 2


def test_the_first_stream_is_one_whose_primary_grants_positions_for_few_logs() -> None:
    nodes = {NodeId(1): Candidate(grants=2), NodeId(2): Candidate(grants=1), NodeId(3): Candidate(grants=1)}
    assert [members[0] for members in place_streams(3, 1, nodes)] == [1, 2, 3]
    assert [members[0] for members in place_streams(3, 1, nodes, granting=True)] == [2, 1, 3]


@pytest.mark.parametrize("risky", [Candidate(shaky=True), Candidate(poor_head=True)])
def test_what_may_soon_end_a_segment_again_is_not_at_its_head(risky: Candidate) -> None:
    nodes = {NodeId(1): risky, NodeId(2): Candidate(open=5, primaries=5, replicas=9, grants=3)}
    assert place_streams(3, 2, nodes) == [(2, 1), (2, 1), (2, 1)]
    assert place_streams(1, 2, {NodeId(1): risky, NodeId(2): risky}) == [(1, 2)], "if there is no other"


@pytest.mark.parametrize("risky", [Candidate(shaky=True), Candidate(poor_head=True)])
def test_who_may_soon_end_a_segment_again_does_not_grant_its_positions(risky: Candidate) -> None:
    """Also where it has to be the head of a stream."""
    placed = place_streams(
        2, 1, {NodeId(1): risky, NodeId(2): Candidate(draining=True), NodeId(3): Candidate(grants=3)}
    )
    assert placed == ([(3,), (3,)] if risky.shaky else [(1,), (3,)])
    nodes = {NodeId(1): risky, NodeId(2): risky, NodeId(3): Candidate(grants=3, open=1)}
    assert place_streams(3, 1, nodes, granting=True)[0] == (3,)


def test_a_poor_head_is_as_good_a_member_as_any() -> None:
    assert place_streams(1, 1, {NodeId(1): Candidate(poor_head=True), NodeId(2): Candidate(open=1)}) == [(1,)]


def test_who_grants_positions_is_spread_over_many_logs() -> None:
    """Also where the primaries of each log are always the same nodes."""
    granted = [0, 0, 0, 0]
    for _ in range(8):
        nodes = {NodeId(number): Candidate(grants=count) for number, count in enumerate(granted, 1)}
        granted[place_streams(4, 1, nodes, granting=True)[0][0] - 1] += 1
    assert granted == [2, 2, 2, 2]


@given(clusters, st.integers(1, 4))
def test_who_grants_positions_changes_the_order_of_the_streams_and_nothing_else(nodes: Nodes, streams: int) -> None:
    if any(not node.unfit for node in nodes.values()):
        placed = place_streams(streams, 1, nodes)
        assert sorted(place_streams(streams, 1, nodes, granting=True)) == sorted(placed)


def test_the_least_loaded_nodes_are_taken() -> None:
    assert sorted(place_streams(1, 2, nodes_with(5, 0, 0, 1))[0]) == [2, 3]


def test_a_new_node_is_not_given_everything_because_others_hold_what_has_ended() -> None:
    nodes = {NodeId(number): Candidate(open=1, replicas=50) for number in (1, 2, 3)} | {NodeId(4): Candidate()}
    placed = place_streams(4, 2, nodes)
    assert sum(NodeId(4) in members for members in placed) == 3, "until it has as much to do as the others"


@given(clusters, st.integers(1, 3), st.integers(1, 3))
def test_those_that_could_not_open_a_replica_are_as_good_as_not_there_unless_needed(
    nodes: Nodes, streams: int, replicas: int
) -> None:
    refused = {NodeId(number + 100): replace(node, shaky=True) for number, node in nodes.items()}
    fit = sum(not node.unfit for node in nodes.values())
    if fit >= replicas:
        assert place_streams(streams, replicas, refused | nodes) == place_streams(streams, replicas, nodes)
    elif 2 * fit >= replicas:
        assert all(len(set(each)) == replicas for each in place_streams(streams, replicas, refused | nodes))


def test_of_nodes_with_as_much_to_do_the_one_with_fewer_replicas_is_taken() -> None:
    nodes = {NodeId(1): Candidate(open=1, replicas=9), NodeId(2): Candidate(open=1, replicas=3)}
    assert place_streams(1, 1, nodes) == [(NodeId(2),)]


@given(st.integers(1, 8), st.integers(1, 4), st.lists(st.integers(0, 9), min_size=4, max_size=7))
def test_no_stream_goes_to_a_node_that_is_busier_than_one_left_out(
    streams: int, replicas: int, loads: list[int]
) -> None:
    load = {NodeId(number): value for number, value in enumerate(loads, 1)}
    for members in place_streams(streams, replicas, nodes_with(*loads)):
        assert len(set(members)) == replicas
        left_out = [load[node] for node in load if node not in members]
        assert all(load[node] <= least for node in members for least in left_out)
        for node in members:
            load[node] += 1


@given(st.integers(1, 20), st.integers(1, 6))
def test_where_every_node_has_every_stream_all_are_primary_equally_often(streams: int, nodes: int) -> None:
    primaries = [members[0] for members in place_streams(streams, nodes, nodes_with(*[0] * nodes))]
    counts = [primaries.count(NodeId(number)) for number in range(1, nodes + 1)]
    assert max(counts) - min(counts) <= 1


# ---------------------------------------------------------------- zones


def test_zones_come_before_load() -> None:
    nodes = {NodeId(1): Candidate("a", 0), NodeId(2): Candidate("a", 0), NodeId(3): Candidate("b", 9)}
    assert 3 in place_streams(1, 2, nodes)[0]


def test_with_fewer_zones_than_replicas_no_zone_has_two_more_than_another() -> None:
    nodes = in_zones("a", "a", "a", "b", "b")
    members = place_streams(1, 4, nodes)[0]
    assert sorted(nodes[node].zone for node in members) == ["a", "a", "b", "b"]


def test_one_zone_is_no_reason_to_refuse() -> None:
    assert len(place_streams(1, 3, in_zones("a", "a", "a"))[0]) == 3


@given(st.integers(1, 6), st.integers(1, 4), clusters)
def test_every_stream_lies_in_as_many_zones_as_it_can(streams: int, replicas: int, nodes: Nodes) -> None:
    zones = {number: node.zone for number, node in nodes.items()}
    usable = [node.zone for node in nodes.values() if not node.draining and not node.full]
    if len(usable) < replicas:
        with pytest.raises(Unavailable):
            place_streams(streams, replicas, nodes)
        return
    for members in place_streams(streams, replicas, nodes):
        assert len(set(members)) == replicas
        assert len(zones_of(members, zones)) == most_zones(replicas, usable)


@given(st.integers(1, 6), st.integers(1, 4), clusters)
def test_within_a_zone_the_idlest_are_taken(streams: int, replicas: int, nodes: Nodes) -> None:
    fit = {number: node for number, node in nodes.items() if not node.draining and not node.full}
    if len(fit) < replicas:
        return
    load = {number: (node.open, node.primaries, node.replicas) for number, node in fit.items()}
    for members in place_streams(streams, replicas, nodes):
        for node in members:
            same_zone = [each for each in fit if fit[each].zone == fit[node].zone and each not in members]
            assert all(load[node] <= load[other] for other in same_zone)
        for node in members:
            open_, primaries, held = load[node]
            load[node] = (open_ + 1, primaries + (node == members[0]), held + 1)


@given(st.integers(1, 4), st.integers(1, 4), clusters)
def test_it_depends_on_nothing_but_the_nodes(streams: int, replicas: int, nodes: Nodes) -> None:
    turned = dict(reversed(nodes.items()))
    try:
        placed = place_streams(streams, replicas, nodes)
    except Unavailable:
        return
    assert place_streams(streams, replicas, turned) == placed


# ---------------------------------------------------------------- nodes that get nothing


@given(st.integers(1, 6), st.integers(1, 4), clusters)
def test_full_and_draining_nodes_get_nothing_new(streams: int, replicas: int, nodes: Nodes) -> None:
    try:
        placed = place_streams(streams, replicas, nodes)
    except Unavailable:
        return
    used = {node for members in placed for node in members}
    assert not any(nodes[node].draining or nodes[node].full for node in used)


def test_too_few_nodes_is_said_clearly() -> None:
    with pytest.raises(Unavailable, match=r"^3 replicas need 3 connected storage nodes; 2 are connected$"):
        place_streams(1, 3, nodes_with(0, 0))
    nodes = nodes_with(0, 0) | {NodeId(3): Candidate(draining=True), NodeId(4): Candidate(full=True)}
    with pytest.raises(Unavailable, match=r"4 are connected, but node 3 drains, node 4 is full$"):
        place_streams(1, 3, nodes)


@pytest.mark.parametrize(
    ("free", "total", "full"),
    [
        (0, 1000 * MIB, True),
        (MIB - 1, 100 * MIB, True),
        (MIB, 100 * MIB, False),
        (8 * MIB, 1 << 40, False),
        (7 * MIB, 1 << 40, True),
        (0, 0, False),
    ],
)
def test_when_a_volume_is_full(free: int, total: int, full: bool) -> None:
    assert is_full(free, total) is full


def test_a_replacement_is_fit_then_in_a_zone_of_its_own_then_the_least_loaded() -> None:
    nodes = {NodeId(3): Candidate("a", 0), NodeId(4): Candidate("c", 7), NodeId(5): Candidate("b", 2)}
    assert place_replacement(nodes, ["a", "b"]) == 4
    assert place_replacement(nodes, ["a", "b", "c"]) == 3
    assert place_replacement({NodeId(3): Candidate("a", 5), NodeId(5): Candidate("b", 2)}, ["a", "b"]) == 5
    leaving = {NodeId(3): Candidate("c", 0, draining=True), NodeId(5): Candidate("b", 2, full=True)}
    assert place_replacement(leaving | {NodeId(6): Candidate("a", 9)}, ["a"]) == 6
    assert place_replacement(leaving, ["a"]) == 3, "better there than one copy less"
    assert place_replacement({}, ["a"]) is None
