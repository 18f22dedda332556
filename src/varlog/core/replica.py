"""What one replica may do: its states, its positions, and the judgement of what it is asked.

    0           trimmed        committed          durable       appended
    |--- gone ---|--- readable ---|--- synced -------|--- staged --|
                                  `- waits for its   `- not reported: not yet
                                     binding            anywhere for sure

Always: trimmed <= committed <= durable <= appended (I3, I13; C3). A replica reports `durable`,
never `appended`; it binds a commit only if it continues at `committed` and lies below `durable`.
"""

from enum import Enum, IntEnum

from varlog.base.errors import Gap, InvalidArgument, ReplicaFailed, Sealed, VarlogError
from varlog.base.ids import Slot
from varlog.base.ranges import Binding


class ReplicaState(IntEnum):
    """The numbers are those of `varlog.v1.ReplicaState`."""

    OPEN = 1
    SEALED = 2
    FINISHED = 3
    FAILED = 4


MOVES: dict[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.OPEN: frozenset({ReplicaState.SEALED, ReplicaState.FAILED}),
    ReplicaState.SEALED: frozenset({ReplicaState.FINISHED, ReplicaState.FAILED}),
    ReplicaState.FINISHED: frozenset({ReplicaState.FAILED}),
    ReplicaState.FAILED: frozenset(),
}
"""Legal moves. Nothing is ever unsealed, nothing failed is ever trusted again."""


def refuse_store(state: ReplicaState, end: Slot, *, settle: bool) -> VarlogError | None:
    """Why a replica in this state takes no new batch, or None. `end` is its tail, for the answer."""
    if state is ReplicaState.FAILED:
        return ReplicaFailed("this replica has stopped after a failed write; ask another member")
    if state is ReplicaState.FINISHED or (state is ReplicaState.SEALED and not settle):
        return Sealed("this replica is sealed", end)
    return None


def refuse_slot(slot: Slot, appended: Slot) -> VarlogError | None:
    """A dense stream has no holes: a store begins at or below its tail."""
    return Gap(f"slots from {appended} on are missing before {slot}", appended) if slot > appended else None


class Verdict(Enum):
    """What to do with a commit."""

    APPLY = "it continues exactly where the replica stands"
    OLD = "the replica has it already"
    MISSED = "commits before it are missing: ask for the history"
    BEYOND = "it covers slots the replica does not have: never bind a part"


def judge_commit(committed: Slot, durable: Slot, last_glsn_end: int, binding: Binding) -> Verdict:
    """S9: repeated, late and reordered commits change nothing."""
    slot, glsn, count = binding
    if count <= 0:
        raise InvalidArgument(f"a commit of {count} slots")
    if slot + count <= committed:
        return Verdict.OLD
    if slot != committed:
        return Verdict.MISSED
    if slot + count > durable or glsn < last_glsn_end:
        return Verdict.BEYOND
    return Verdict.APPLY
