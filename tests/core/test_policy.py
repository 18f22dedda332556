"""What a replication survives."""

from varlog.core.policy import survives


def test_under_cut_every_copy_counts_and_the_repository_knows_the_end() -> None:
    assert survives("cut", 3, 3) == (0, 3, 2)


def test_under_a_leader_appends_and_sealing_share_the_members() -> None:
    assert survives("leader", 3, 2) == (1, 1, 1)
    assert survives("leader", 5, 3) == (2, 2, 2)
    assert survives("leader", 5, 4) == (1, 3, 3)
    assert survives("leader", 3, 3) == (0, 2, 2)
    for members in range(1, 8):
        for ack in range(1, members + 1):
            losses = survives("leader", members, ack)
            assert losses.appends + losses.sealing == members - 1
