"""What a replication survives."""

import pytest

from varlog.core.ordering.leader import default_ack
from varlog.core.policy import survives


def test_under_cut_every_copy_counts_and_the_repository_knows_the_end() -> None:
    assert survives("cut", 3, 3) == (0, 3, 2)
    for members in range(1, 8):
        assert survives("cut", members, members) == (0, members, members - 1)


def test_under_a_leader_appends_and_sealing_share_the_members() -> None:
    assert survives("leader", 3, 2) == (1, 1, 1)
    assert survives("leader", 5, 3) == (2, 2, 2)
    assert survives("leader", 5, 4) == (1, 3, 3)
    assert survives("leader", 3, 3) == (0, 2, 2)
    for members in range(1, 8):
        for ack in range(1, members + 1):
            losses = survives("leader", members, ack)
            assert losses.appends + losses.sealing == members - 1


@pytest.mark.parametrize("ordering", ["sequencer", "leader"])
def test_where_all_copies_acknowledge_any_of_them_tells_the_end(ordering: str) -> None:
    """In a chain, whoever writes it: an append waits for each loss, and one member that is left has everything."""
    assert survives(ordering, 3, 3) == (0, 2, 2)
    assert survives(ordering, 1, 1) == (0, 0, 0)
    for members in range(1, 8):
        assert survives(ordering, members, members) == (0, members - 1, members - 1)


def test_with_the_usual_ack_a_leader_survives_as_many_losses_of_each_kind_as_it_can() -> None:
    """One more or less for appends, where the number of members is even."""
    for members in range(2, 8):
        appends, sealing, data = survives("leader", members, default_ack(members))
        assert sealing == data == members // 2
        assert appends == members - 1 - sealing
