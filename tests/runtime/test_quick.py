"""When the event loop waits for a disk, and when it does not."""

from varlog.runtime.quick import FIRST_REST_SECONDS, LONGEST_REST_SECONDS, SLOW_SECONDS, Quickness


def wait_until_slow(quick: Quickness, now: float, took: float) -> float:
    """Try until it is given up; when that was."""
    before = quick.slow_until
    while quick.slow_until == before:
        quick.tried(now, now + took)
        now += took
    return now


def test_one_slow_write_among_quick_ones_changes_nothing() -> None:
    quick = Quickness()
    for number in range(100):
        took = SLOW_SECONDS * 4 if number % 20 == 19 else SLOW_SECONDS / 10
        quick.tried(number, number + took)
    assert quick.slow_until == 0.0


def test_a_stall_and_a_slow_disk_are_given_up_for_longer_and_longer() -> None:
    quick = Quickness()
    quick.tried(1.0, 2.0)
    assert quick.slow_until == 2.0 + FIRST_REST_SECONDS
    now, rests = quick.slow_until, []
    for _ in range(12):
        end = wait_until_slow(quick, now, 2 * SLOW_SECONDS)
        rests.append(quick.slow_until - end)
        now = quick.slow_until
    expected = [min(FIRST_REST_SECONDS * 2**number, LONGEST_REST_SECONDS) for number in range(1, 13)]
    assert all(abs(rest - each) < 1e-9 for rest, each in zip(rests, expected, strict=True))


def test_a_disk_that_was_quick_for_a_while_is_forgiven() -> None:
    quick = Quickness()
    for _ in range(5):
        quick.tried(quick.slow_until, quick.slow_until + 1.0)
    now = quick.slow_until + LONGEST_REST_SECONDS + 1.0
    quick.tried(now, now + 1.0)
    assert abs(quick.slow_until - (now + 1.0 + FIRST_REST_SECONDS)) < 1e-9
