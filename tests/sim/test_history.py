"""Histories as text, and orders made from the clock of one machine."""

import pytest

from varlog.sim.checkers import check_history
from varlog.sim.history import Append, History, Subscription, Tail, fingerprint, payload_bytes


def test_payloads_are_told_apart_by_every_byte() -> None:
    payload = payload_bytes("c1.7", 100)
    assert fingerprint(payload).startswith("c1.7/105/")
    assert fingerprint(payload) == fingerprint(payload_bytes("c1.7", 100))
    assert fingerprint(payload[:-1] + b"\0") != fingerprint(payload)
    assert fingerprint(b"\xff\xfe garbage") != fingerprint(b"\xff\xff garbage")


def test_a_history_survives_the_trip_through_a_file() -> None:
    history = History(
        [
            Append(log="l", client="a", start=1, end=2, payloads=["x"], outcome="ack", first=1, last=1, stream=2),
            Append(log="l", client="a", start=3, payloads=["y"]),
            Subscription(log="l", client="b", start=4, end=9, glsns=[1], payloads=["x"], orders=[5]),
            Tail(log="m", client="b", start=6, end=7, tail=0),
        ]
    )
    lines = list(history.dump())
    assert History.load(lines).records == history.records
    assert History.load(lines).logs() == ["l", "m"]


@pytest.mark.parametrize("line", ['{"kind": "append"', '{"kind": "nonsense"}', '{"kind": "tail", "speed": 3}', "[]"])
def test_a_wrong_line_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        History.load(["", line])


def test_orders_are_made_from_times_and_a_tie_counts_as_overlap() -> None:
    """Two processes, one clock: b's append began when a's ended, to the tick."""
    a = '{"kind":"append","log":"l","start_time":1,"end_time":2,"payloads":["a"],"outcome":"ack","first":2,"last":2}'
    b = '{"kind":"append","log":"l","start_time":%s,"end_time":3.0,"payloads":["b"],"outcome":"ack","first":1,"last":1}'
    assert check_history(History.load([b % "2.0", a])) == []
    violations = check_history(History.load([b % "2.1", a]))
    assert [violation.invariant for violation in violations] == ["I4"]


def test_deliveries_get_orders_from_their_times() -> None:
    lines = [
        '{"kind":"subscription","log":"l","start_time":1.0,"glsns":[1],"payloads":["a"],"times":[5.0]}',
        '{"kind":"append","log":"l","start_time":2.0,"payloads":["a"]}',
        '{"kind":"tail","log":"l","start_time":6.0,"end_time":7.0,"tail":0}',
    ]
    violations = check_history(History.load(lines))
    assert [violation.invariant for violation in violations] == ["I10"]
