"""Whole runs: the same seed is the same run, and seeds that once found a bug pass.

A run changes with the code it runs, so an old seed may have lost its bug; each of them has a test of
its own beside the code it was found in.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from varlog.sim.run import run_seed, run_seeds

ONCE_FAILED: dict[int, str] = {
    2: "a member of a sealed log that cut off what lay beyond the end was said to have lost it (status)",
    5: "a time was looked for in a replica that had not heard of the trim yet (find)",
    10: "an ended stream went on saying that its volume was full (status)",
    13: "a connection attempt that failed when nobody waited for it any more was an unhandled error",
    44: "a named producer's batch that was never sent left its number to the next (I1, I2, I5)",
    86: "a commit came while a replica that had just failed was being marked (defect)",
    131: "the primary of a sealed log was said to have lost what a backup had not cut off yet (status)",
    456: "the primary of a sealed log was said to wait for its backups before it takes appends (status); a sealed log "
    "with fewer members than wanted got another segment when it was told what to keep (defect)",
    693: "a log was looked up in vain when nobody waited for it any more: an unhandled error",
    1134: "a seal whose commit failed was said to be refused, and had been done (I11)",
    194: "a replica was not rebuilt because the only node left for it drained (I14)",
    1229: "a time was looked for without a stream that had just come (find)",
    1545: "a node whose connection broke while it registered got two ids, and was locked out (I14)",
    14: "a copy was begun into the folder of one that was complete and could not be opened (I14)",
    144: "rot in what a copy begins with was not looked for (I1)",
    2076: "a producer's batches were overtaken on another stream (lanes)",
    33: "a complete copy was taken for a half one after a loss of power: the end of its mark was not synced (I14)",
    278: "under a leader, a time was looked for at a backup that was behind (find)",
    359: "a named producer moved to another stream before its last batches were answered (I2, I4)",
    2212: "what one node alone had of a led segment, never acknowledged, was part of the log and then gone (I1, I14)",
    2398: "the status of a led stream whose replica could not be opened had a number below nought (defect)",
    50: "a time was looked for on the nodes while they gave up, for the archive, the first entry at it (find)",
    37: "the end of a leader's lease was waited for in steps so small that the clock did not move (defect)",
    139: "a bit flipped where nobody reads, and whole streams were looked at only when their time was up (I14)",
    9746: "a leader renewed its lease again and again in the last moment of it, in which no clock moves (steps)",
    11005: "a primary that got back what had rotted went on saying that it lacks it (status)",
    11059: "a copy was to leave a node that drains for one that a flipped bit kept from starting (I14)",
    13018: "a stream was to leave a node that drains for one that a flipped bit kept from starting (I14)",
    13097: "what could not be put right was tried again as fast as messages travel (steps)",
    2474: "a scrub looked at the index of a file that had been trimmed away (defect)",
    63: "the description of a copy lacked how positions lie in its segment (defect)",
    536: "the head of a chain was taken for a leader when it was sealed: the end was too low (I1, I2)",
    556: "the head of a chain was taken for a leader when it was sealed: the end was too low (I1, I2)",
    570: "an append at a position that had been trimmed meanwhile was acknowledged (I13)",
    771: "the last member of a chain bound slots inside a batch (defect)",
    174: "a member that had lost the end of its replica to rot decided where the segment ends (I2, I4)",
    35: "members of a chain were never told what was committed when the last writer had died (I14)",
    690: "what was not committed, and then cut off, was counted among the bytes that a log keeps (I13)",
    2786: "a member was to finish a sealed stream whose end, never acknowledged, had rotted on another (I11)",
    2842: "a member was to finish a sealed stream whose end, never acknowledged, had rotted on another (I11)",
    1696: "thousands of positions that were given up were read one by one, and time was up before the last (I14)",
    1959: "a backup went on saying that it lacked what its primary had given it again (status)",
    2061: "an archiver was to come to its end before it gave up a log whose only copy was out for good (I14)",
    6908: "an end that one member alone had, whose sync then failed, was to be read (judged wrongly)",
    8013: "what was committed while a time was looked for was told to be that late (find)",
    4246: "the same, while the connection took nothing more (find)",
    6068: "a leader that had failed, and could not take in what it had committed, told the tail (I10)",
    8396: "a producer that was followed went on in the next segment by what it had heard in the last (I5)",
    4748: "a copy that nobody waited for took a member's place just before files were read (judged wrongly)",
    135: "of questions for a tail the next left again and again, in a moment in which no clock moves (steps)",
    52057: "a member that had not heard of the end of its segment told a named producer too low a number (I5)",
    1301: "who leads a log that is stuck was asked for its tail fifty times a second by each who waits (steps)",
    8493: "a tail that was granted, and never written before its log was sealed, was told (I10)",
    4996: "a log was trimmed by size into entries whose senders had no answer, which the checker took for none (I13)",
    653: "what was sent while its segment was being sealed was trimmed with what is older than the next one (I13)",
    3923: "a replica whose only source had rotted was to be copied anew (I14, status)",
    641: "what had rotted at the head of a chain before others got it failed reads of what was whole (I1)",
    6033: "a subscription that was closed went on seeing to what it lacked, for ever (steps)",
    169: "who was told that a position is trimmed took an answer from before it was archived for the truth (I13)",
    1086: "a reader waited for ever for the end of an ended stream that no replica was left with (I14)",
    829: "a middle member of a chain that had lost its end never said how far it was, and never got it again (I14)",
    745: "a segment was opened again and again to follow one whose only replica had failed (streams)",
    249: "of a stream that has ended a member was asked every 3 ms for as long as it could not tell (steps)",
    981: "more streams were asked for while nodes were away, refused, and wanted for ever after (I14)",
    1335: "the same, and the repository that was asked no longer led (I14)",
    3384: "the same, with all nodes away (I14)",
    5416: "what a chain's head lost by a flipped bit was filled with junk, and the others had it (I8, I9)",
    4207: "a member that had slots which were given up without it, and nobody whole to copy, was to be finished (I11)",
    5280: "who was asked to open the head of a chain before he knew his own id never took its part (I14)",
    4281: "what had been a journal was given two streams, and only one of them was tried, judged wrongly (I14)",
    7146: "fewer copies, which a segment went on with, were taken for the number that was asked for (change)",
    868: "a node that had just come back was taken for lost, and copied over itself, whose source was lost then (I14)",
    2837: "a node that was lost for good while it was told to stop was started again (judged wrongly)",
    362: "everybody who asked for the tail of a journal asked its members every 5 ms while one was away (steps)",
    680: "a position was named, and refused by what was known of the log before it was changed (conditional)",
    622: "a change of a log was said to be done, which another had come before (change)",
}


@pytest.mark.parametrize("seed", list(ONCE_FAILED))
def test_seeds_that_once_failed_pass(seed: int) -> None:
    result = run_seed(seed)
    assert result.ok, result.describe()


SCRIPT = """
from varlog.sim.run import run_seed
for seed in (3, 8):
    result = run_seed(seed)
    print(result.fingerprint, result.steps, result.frames, result.summary)
"""


def test_a_seed_is_the_same_run_in_every_process() -> None:
    source = str(Path(__file__).resolve().parents[2] / "src")

    def output(hash_seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": source}
        return subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True).stdout

    first = output("1")
    assert first.count(b"append ack") == 2
    assert output("2") == first


def test_a_trace_changes_nothing() -> None:
    plain, traced = run_seed(5), run_seed(5, trace=True)
    assert (plain.fingerprint, plain.steps) == (traced.fingerprint, traced.steps)
    assert not plain.trace
    assert any("crashes" in line or "starts" in line for line in traced.trace)


def test_seeds_on_several_processes_come_in_order_and_are_the_same() -> None:
    results = list(run_seeds(1, 3, jobs=2))
    assert [result.seed for result in results] == [1, 2, 3]
    assert [result.fingerprint for result in results] == [run_seed(seed).fingerprint for seed in (1, 2, 3)]


def test_a_failing_seed_says_everything_one_needs() -> None:
    results = (run_seed(seed, plant="retry_with_new_identity") for seed in range(1, 30))
    result = next(result for result in results if "I5" in result.invariants)
    text = result.describe()
    assert f"seed {result.seed} FAILS: " in text
    assert "I5 violated in log" in text
    assert "network  " in text
    assert f"varlog sim --from {result.seed} --seeds 1 --trace --plant retry_with_new_identity" in text
