"""Where replicas go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlog.base.errors import Unavailable
from varlog.base.ids import NodeId
from varlog.core.placement import place_replacement, place_streams


def test_primaries_are_spread() -> None:
    placed = place_streams(3, 3, {NodeId(1): 0, NodeId(2): 0, NodeId(3): 0})
    assert sorted(members[0] for members in placed) == [1, 2, 3]


def test_the_least_loaded_nodes_are_taken() -> None:
    load = {NodeId(1): 5, NodeId(2): 0, NodeId(3): 0, NodeId(4): 1}
    assert sorted(place_streams(1, 2, load)[0]) == [2, 3]


def test_too_few_nodes_is_said_clearly() -> None:
    with pytest.raises(Unavailable, match="3 replicas need 3 connected storage nodes; 2 are connected"):
        place_streams(1, 3, {NodeId(1): 0, NodeId(2): 0})


@given(st.integers(1, 8), st.integers(1, 4), st.lists(st.integers(0, 9), min_size=4, max_size=7))
def test_no_stream_goes_to_a_node_that_is_busier_than_one_left_out(
    streams: int, replicas: int, loads: list[int]
) -> None:
    load = {NodeId(number): value for number, value in enumerate(loads, 1)}
    for members in place_streams(streams, replicas, load):
        assert len(set(members)) == replicas
        left_out = [load[node] for node in load if node not in members]
        assert all(load[node] <= least for node in members for least in left_out)
        for node in members:
            load[node] += 1


def test_a_replacement_is_in_a_zone_of_its_own_where_there_is_one_and_else_the_least_loaded() -> None:
    load = {NodeId(3): 0, NodeId(4): 7, NodeId(5): 2}
    others = [NodeId(1), NodeId(2)]
    zones = {NodeId(1): "a", NodeId(2): "b", NodeId(3): "a", NodeId(4): "c", NodeId(5): "b"}
    assert place_replacement(load, others, zones) == 4
    assert place_replacement(load, others, {}) == 3
    assert place_replacement({NodeId(3): 0, NodeId(5): 2}, others, zones) == 3
    assert place_replacement({NodeId(1): 0}, others, zones) is None
