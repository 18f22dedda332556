"""Orderings, policies, pins and switches, as they are asked for and shown on the command line, with real processes."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_processes import Inside, Up, up

NODES = 5
ROUND = ("cut", "leader", "sequencer", "cut", "sequencer", "leader", "cut")
"""Every ordering is followed by every other."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Started once for all of these: each makes logs of its own."""
    with up(tmp_path_factory.mktemp("orderings") / "cluster", "--nodes", str(NODES)) as running:
        yield running


@pytest.fixture
def inside(cluster: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Inside:
    return Inside(cluster.url, tmp_path, capsys)


def refused(inside: Inside, *arguments: str) -> str:
    """Why: one line, of a command that did nothing."""
    status, out, errors = inside.run(*arguments)
    assert status in (1, 2)
    assert out == ""
    assert errors.startswith("varlog: ")
    assert errors.count("\n") == 1
    assert "internal error" not in errors
    return errors


def facts(table: str) -> dict[str, str]:
    """The first part of what `log show` prints, by name."""
    lines = [line.split(None, 1) for line in table.partition("\n\n")[0].splitlines()]
    return {line[0].lower(): line[1] if len(line) > 1 else "" for line in lines}


def read_all(inside: Inside, log: str) -> list[str]:
    return [json.loads(line)["payload"] for line in inside.ok("read", log, "1..", "-o", "json").splitlines()]


MADE: dict[str, tuple[str, dict[str, Any], str, str]] = {
    # options: what is shown of it, for programs; and for people, how copies are made and what is survived
    "cut": (
        "--replicas 3 --streams 2 --pin many_streams,many_writers",
        {
            "ordering": "cut",
            "replicas": 3,
            "streams": 2,
            "ack": 3,
            "losses": {"appends": 0, "sealing": 3, "data": 2},
            "capabilities": ["atomic_batch", "many_streams", "many_writers"],
            "pinned": ["many_streams", "many_writers"],
        },
        "3, of which an acknowledgement needs 3; goes on with 2 where there are no nodes for more",
        "with 0 lost appends go on at once, with any others take over, with 2 nothing acknowledged is lost",
    ),
    "leader": (
        "--ordering leader --replicas 3",
        {
            "ordering": "leader",
            "ack": 2,
            "losses": {"appends": 1, "sealing": 1, "data": 1},
            "capabilities": ["atomic_batch", "many_writers"],
            "pinned": [],
        },
        "3, of which an acknowledgement needs 2",
        "with 1 lost appends go on at once, with 1 others take over, with 1 nothing acknowledged is lost",
    ),
    "leader-ack": (
        "--ordering leader --replicas 5 --ack 4 --replication broadcast",
        {"replicas": 5, "ack": 4, "losses": {"appends": 1, "sealing": 3, "data": 3}},
        "5, of which an acknowledgement needs 4",
        "with 1 lost appends go on at once, with 3 others take over, with 3 nothing acknowledged is lost",
    ),
    "chain": (
        "--ordering leader --replicas 4 --replication chain --pin atomic_batch",
        {
            "replicas": 4,
            "ack": 4,
            "losses": {"appends": 0, "sealing": 3, "data": 3},
            "pinned": ["atomic_batch"],
        },
        "4, of which an acknowledgement needs 4, in a chain; goes on with 3 where there are no nodes for more",
        "with 0 lost appends go on at once, with 3 others take over, with 3 nothing acknowledged is lost",
    ),
    "journal": (
        "--ordering leader --journal --replicas 5",
        {
            "ack": 3,
            "losses": {"appends": 2, "sealing": 2, "data": 2},
            "capabilities": ["atomic_batch"],
            "leader": "nobody; it waits for a candidate",
        },
        "5, of which an acknowledgement needs 3",
        "with 2 lost appends go on at once, with 2 others take over, with 2 nothing acknowledged is lost",
    ),
    "sequencer": (
        "--ordering sequencer --replicas 2 --streams 2 --unit 64",
        {
            "ordering": "sequencer",
            "ack": 2,
            "losses": {"appends": 0, "sealing": 1, "data": 1},
            "capabilities": ["conditional_append", "many_streams", "many_writers"],
        },
        "2, of which an acknowledgement needs 2, in stripes of 64",
        "with 0 lost appends go on at once, with 1 others take over, with 1 nothing acknowledged is lost",
    ),
    "sequencer-alone": (
        "--ordering sequencer --replicas 3 --pin conditional_append",
        {"capabilities": ["atomic_batch", "conditional_append", "many_streams", "many_writers"]},
        "3, of which an acknowledgement needs 3, in stripes of 4,096; goes on with 2 where there are no nodes for more",
        "with 0 lost appends go on at once, with 2 others take over, with 2 nothing acknowledged is lost",
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_what_a_log_was_made_of_is_shown(inside: Inside, name: str) -> None:
    options, expected, copies, survives = MADE[name]
    log = f"made-{name}"
    assert inside.ok("log", "create", log, *options.split()).startswith(f"created {log}: ")
    shown = inside.rows("log", "show", log)
    assert {key: shown[key] for key in expected} == expected
    (segment,) = shown["segments"]
    assert (segment["ordering"], segment["ack"]) == (shown["ordering"], shown["ack"])
    assert segment["replication"] == ("" if "leader" not in options else "chain" if "chain" in options else "broadcast")
    assert segment["unit"] == (None if "sequencer" not in options else 64 if "64" in options else 4096)
    assert segment["journal"] == ("--journal" in options)
    table = facts(inside.ok("log", "show", log))
    assert table["ordering"] == shown["ordering"]
    assert table["copies"] == copies
    assert table["survives"] == shown["survives"] == survives
    assert table["capabilities"].replace(",", "").split() == shown["capabilities"]
    assert table.get("pinned", "").replace(",", "").split() in (shown["pinned"], ["-"])


def test_a_log_is_switched_in_all_six_directions(inside: Inside) -> None:
    """With entries appended before, between and after, which are read back in the order in which they came."""
    assert len(set(pairwise(ROUND))) == 6
    inside.ok("log", "create", "round", "--ordering", ROUND[0], "--streams", "2")
    lines: list[str] = []

    def append() -> None:
        more = [str(number) for number in range(len(lines) + 1, len(lines) + 4)]
        for line in more:
            assert inside.append("round", line)[0] == 0
        lines.extend(more)

    append()
    for epoch, ordering in enumerate(ROUND[1:], 2):
        options = [] if ordering == "leader" else ["--streams", "2"]
        out = inside.ok("log", "reconfigure", "round", "--ordering", ordering, *options)
        streams = "1 stream" if ordering == "leader" else "2 streams"
        assert out.startswith(f"round is now {ordering}, 3 replicas, {streams}, in segment ")
        assert out.endswith(f"in segment {epoch} from {len(lines) + 1} on\n")
        append()
        assert inside.rows("log", "show", "round")["ordering"] == ordering
    assert read_all(inside, "round") == lines
    chain = inside.rows("log", "show", "round")["segments"]
    assert [segment["ordering"] for segment in chain] == list(ROUND)
    assert [segment["base"] for segment in chain] == list(range(1, 3 * len(ROUND), 3))
    assert [segment["state"] for segment in chain] == ["sealed"] * (len(ROUND) - 1) + ["open"]


def test_options_of_an_ordering_are_changed_while_it_stays(inside: Inside) -> None:
    """Another ack, replication or unit begins a segment; what is there already does not."""
    inside.ok("log", "create", "options", "--ordering", "leader", "--replicas", "5")
    for number, (options, ack, replication) in enumerate(
        [
            (["--ack", "4"], 4, "broadcast"),
            (["--replication", "chain"], 5, "chain"),
            (["--replication", "broadcast"], 4, "broadcast"),
            (["--replicas", "3"], 2, "broadcast"),
        ]
    ):
        assert inside.append("options", str(number))[0] == 0
        inside.ok("log", "reconfigure", "options", *options)
        again = inside.rows("log", "reconfigure", "options", *options)
        last = inside.rows("log", "show", "options")["segments"][-1]
        assert (last["epoch"], last["ack"], last["replication"]) == (number + 2, ack, replication)
        assert again["segment"] == last["epoch"], "nothing is to change a second time"
    inside.ok("log", "reconfigure", "options", "--ordering", "sequencer", "--unit", "8", "--streams", "2")
    inside.ok("log", "reconfigure", "options", "--unit", "16")
    units = [segment["unit"] for segment in inside.rows("log", "show", "options")["segments"]]
    assert units == [None] * 5 + [8, 16]
    assert read_all(inside, "options") == ["0", "1", "2", "3"]


def test_a_log_becomes_a_journal_and_is_one_no_more(inside: Inside) -> None:
    inside.ok("log", "create", "wal")
    assert inside.append("wal", "a")[0] == 0
    made = inside.ok("log", "reconfigure", "wal", "--journal")
    assert made.startswith("wal is now leader, 3 replicas, 1 stream, a journal, in segment 2")
    assert inside.rows("log", "show", "wal")["leader"] == "nobody; it waits for a candidate"
    status, out, errors = inside.append("wal", "b")
    assert (status, out, errors.count("\n")) == (1, "", 1)
    assert "journal.lead()" in errors
    assert "journal" not in inside.ok("log", "reconfigure", "wal", "--no-journal")
    shown = inside.rows("log", "show", "wal")
    assert shown["ordering"] == "leader"
    assert shown["leader"].startswith("node ")
    assert [segment["journal"] for segment in shown["segments"]] == [False, True, False]
    roles = {(row["segment"], row["role"]) for row in shown["replica_states"]}
    assert roles == {(1, "primary"), (1, "backup"), (2, "member"), (3, "primary"), (3, "backup")}
    assert inside.append("wal", "c")[0] == 0
    assert read_all(inside, "wal") == ["a", "c"]


def test_a_switch_that_takes_what_a_log_is_pinned_to_is_refused(inside: Inside) -> None:
    inside.ok("log", "create", "pinned", "--streams", "2", "--pin", "many_streams")
    assert inside.append("pinned", "a")[0] == 0
    why = refused(inside, "log", "reconfigure", "pinned", "--ordering", "leader")
    assert "pinned to many_streams, which ordering 'leader' with 1 stream does not have: choose cut or sequencer" in why
    assert "pinned to many_streams" in refused(inside, "log", "reconfigure", "pinned", "--journal")
    assert "conditional_append" in refused(inside, "log", "reconfigure", "pinned", "--pin", "conditional_append")
    for pin in ("--pin", "--unpin"):
        assert "there is no capability flying" in refused(inside, "log", "reconfigure", "pinned", pin, "flying")
    shown = inside.rows("log", "show", "pinned")
    assert (len(shown["segments"]), shown["pinned"]) == (1, ["many_streams"])
    inside.ok("log", "reconfigure", "pinned", "--pin", "many_writers")
    assert inside.rows("log", "show", "pinned")["pinned"] == ["many_streams", "many_writers"]
    inside.ok("log", "reconfigure", "pinned", "--ordering", "leader", "--unpin", "many_streams")
    shown = inside.rows("log", "show", "pinned")
    assert (shown["ordering"], shown["pinned"]) == ("leader", ["many_writers"])
    assert "which a journal does not have" in refused(inside, "log", "reconfigure", "pinned", "--journal")
    assert read_all(inside, "pinned") == ["a"]


SENSELESS: list[tuple[str, str]] = [
    ("--ordering leader --ack 1", "would keep the segment from being sealed for good: ack is 2 to 3"),
    ("--ordering leader --ack 4", "an acknowledgement cannot need 4 copies of 3"),
    ("--ordering leader --unit 8", "under `leader` positions are not striped over streams: there is no unit"),
    ("--ordering leader --streams 2", "under `leader` a log has 1 stream, not 2"),
    ("--ordering leader --replication star", "replication is 'broadcast' or 'chain', not 'star'"),
    ("--ordering leader --replication chain --ack 4", "an acknowledgement cannot need 4 copies of 3"),
    ("--ordering cut --ack 4", "an acknowledgement cannot need 4 copies of 3"),
    ("--ordering cut --unit 8", "under `cut` positions are not striped over streams: there is no unit"),
    ("--ordering cut --replication chain", "replication 'chain' is for logs under `leader`"),
    ("--ordering cut --journal", "a journal has a leader: its ordering is 'leader', and cannot be 'cut'"),
    ("--ordering sequencer --ack 4", "an acknowledgement cannot need 4 copies of 3"),
    ("--ordering sequencer --unit 1048577", "a stripe has at most 1048576 positions, not 1048577"),
    ("--ordering sequencer --replication chain", "replication 'chain' is for logs under `leader`"),
    ("--ordering sequencer --journal", "a journal has a leader: its ordering is 'leader', and cannot be 'sequencer'"),
    ("--ordering chance", "ordering 'chance': this release has cut, leader, sequencer"),
    ("--roll-seconds 0.5", "roll_seconds is at least 1, or 0 for no limit, not 0.5"),
    ("--roll-bytes 1000", "roll_bytes is at least 1,048,576, or 0 for no limit, not 1,000"),
]


def test_an_append_at_a_position_or_not_at_all(inside: Inside, tmp_path: Path) -> None:
    for name, ordering in (("expects", "sequencer"), ("cannot", "cut")):
        inside.ok("log", "create", name, "--ordering", ordering)
    (tmp_path / "entry").write_text("a")
    given = ["--file", str(tmp_path / "entry"), "--expect"]
    assert inside.ok("append", "expects", *given, "1") == "appended 1 entry to expects at 1\n"
    assert "position 1 was expected, the next one is 2" in refused(inside, "append", "expects", *given, "1")
    assert "conditional_append" in refused(inside, "append", "cannot", *given, "1")
    assert "does not go with --lines" in refused(inside, "append", "expects", *given, "2", "--lines")
    assert read_all(inside, "expects") == ["a"]


def test_a_journal_is_under_leader_unless_something_else_is_said(inside: Inside) -> None:
    made = inside.ok("log", "create", "chained", "--journal", "--replication", "chain")
    assert made == "created chained: leader, 3 replicas, 1 stream, a journal, in a chain\n"
    assert inside.rows("log", "show", "chained")["ordering"] == "leader"


def test_who_numbers_and_when_segments_roll_is_shown(inside: Inside) -> None:
    inside.ok("log", "create", "shown", "--ordering", "sequencer", "--roll-bytes", "64M", "--roll-seconds", "3600")
    shown = inside.rows("log", "show", "shown")
    assert (shown["roll_bytes"], shown["roll_seconds"]) == (64 << 20, 3600)
    head = shown["stream_states"][0]["members"][0]
    table = facts(inside.ok("log", "show", "shown"))
    assert (table["leader"], table["sequencer"]) == ("-", f"node {head}")
    assert (table["rolls"], table["wanted"]) == ("a segment at 64.0 MiB or 3,600 s", "1 stream, 3 replicas")
    inside.ok("log", "reconfigure", "shown", "--roll-bytes", "0", "--roll-seconds", "0", "--ordering", "leader")
    table = facts(inside.ok("log", "show", "shown"))
    assert table["sequencer"] == "-"
    assert table["rolls"] == "when asked to, or something is changed or lost"


def test_too_few_nodes_are_told_apart_from_a_cluster_that_is_away(inside: Inside) -> None:
    inside.ok("log", "create", "members")
    for options in (("reconfigure", "members", "--members", "1,2,99"), ("create", "many", "--replicas", "9")):
        assert "is the cluster running" not in refused(inside, "log", *options)
    assert "`varlog log ls` lists them" in refused(inside, "log", "reconfigure", "nosuch", "--roll")


@pytest.mark.parametrize(("options", "why"), SENSELESS, ids=[options for options, _ in SENSELESS])
def test_what_makes_no_sense_for_an_ordering_is_refused_with_the_reason(inside: Inside, options: str, why: str) -> None:
    """When a log is made, and when one is switched that was well; and nothing is left of it."""
    assert why in refused(inside, "log", "create", "senseless", *options.split())
    assert "there is no log named 'senseless'; `varlog log ls` lists them" in refused(
        inside, "log", "show", "senseless"
    )
    if "senseless-switch" not in [log["name"] for log in inside.rows("log", "ls")]:
        inside.ok("log", "create", "senseless-switch")
    assert why in refused(inside, "log", "reconfigure", "senseless-switch", *options.split())
    shown = inside.rows("log", "show", "senseless-switch")
    assert (shown["ordering"], len(shown["segments"])) == ("cut", 1)
