"""Every error a caller can meet. Each class says whether a retry can help and whether the outcome is known.

Foreign exceptions (OSError, protobuf, ...) are translated where they appear, at the port; nothing
else crosses the public surface. `code` is the number on the wire; `value` is the one integer that
an error may carry (an end, a tail, a limit, ...), named by a property in each class.
"""

from typing import ClassVar


class VarlogError(Exception):
    """The root of all errors of this package."""

    code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    """The same call may succeed later without anybody's help."""
    outcome_known: ClassVar[bool] = True
    """The call certainly had no effect. False: it may have had."""

    def __init__(self, message: str = "", value: int = 0) -> None:
        super().__init__(message or type(self).__name__)
        self.message = message or type(self).__name__
        self.value = value


class Unavailable(VarlogError):
    """Nobody who could answer was reached, or the one reached cannot serve now."""

    code = 2
    retryable = True


class Timeout(VarlogError):
    """The deadline passed. Raised for calls that change nothing; appends raise `OutcomeUnknown`."""

    code = 3
    retryable = True


class Overloaded(VarlogError):
    """Too much in flight; wait and try again."""

    code = 4
    retryable = True

    @property
    def retry_after(self) -> float:
        """Seconds to wait."""
        return self.value / 1000


class OutcomeUnknown(VarlogError):
    """The call may or may not have had its effect. An append retried with `token` is never in the log twice."""

    code = 5
    retryable = True
    outcome_known = False
    token: object = None
    """`varlog.ProducerToken` of the append in question."""


class Fenced(VarlogError):
    """Another has taken over under a later epoch."""

    code = 6

    @property
    def epoch(self) -> int:
        return self.value


class Sealed(VarlogError):
    """The log, segment or stream takes no more entries."""

    code = 7

    @property
    def end(self) -> int:
        """One past the last position."""
        return self.value


class Trimmed(VarlogError):
    """The position is at or below the trim point: its entry is gone."""

    code = 8

    @property
    def first(self) -> int:
        """The first position that may still be read."""
        return self.value


class NotWritten(VarlogError):
    """The position is beyond the tail."""

    code = 9
    retryable = True

    @property
    def tail(self) -> int:
        return self.value


class Junk(VarlogError):
    """The position was filled because nobody wrote it; it will never hold an entry."""

    code = 10

    @property
    def glsn(self) -> int:
        return self.value


class Conflict(VarlogError):
    """A conditional change met another state than expected."""

    code = 11

    @property
    def tail(self) -> int:
        return self.value


class NotFound(VarlogError):
    """No such log, node, stream, replica or file."""

    code = 12


class AlreadyExists(VarlogError):
    """The name is taken."""

    code = 13


class TooLarge(VarlogError):
    """An entry, batch, frame or name is over its limit."""

    code = 14

    @property
    def limit(self) -> int:
        return self.value


class Corrupt(VarlogError):
    """Stored or received bytes do not match their checksum or layout."""

    code = 15
    replica: str = ""

    @property
    def slot(self) -> int:
        return self.value


class Unauthorized(VarlogError):
    """The caller may not do this."""

    code = 16


class Unsupported(VarlogError):
    """This ordering, version or build cannot do it."""

    code = 17
    capability: str = ""
    """The name of what is missing, where it is one of `log.capabilities`."""


class InvalidArgument(VarlogError):
    """The request makes no sense as it stands."""

    code = 18


class Taken(VarlogError):
    """Another batch is already stored at that slot."""

    code = 19

    @property
    def slot(self) -> int:
        return self.value


class Gap(VarlogError):
    """The store or send would leave a hole; go on from `expected` instead."""

    code = 20
    retryable = True

    @property
    def expected(self) -> int:
        return self.value


class WrongWriter(VarlogError):
    """The store came from another writer generation than the replica serves."""

    code = 21


class NoSpace(VarlogError):
    """The volume is full: stores are refused, reads go on."""

    code = 22
    retryable = True


class ReplicaFailed(VarlogError):
    """A write or sync of this replica failed: it has stopped and its files are not trusted again."""

    code = 23


class WrongCluster(VarlogError):
    """The data folder or address belongs to another cluster, node or incarnation."""

    code = 24


class ConnectionLost(Unavailable):
    """The connection broke while the answer was awaited: the request may have had its effect."""

    code = 25
    outcome_known = False


class NotLeader(Unavailable):
    """The repository asked does not lead, or no longer: another one may. Nothing was changed."""

    code = 26

    @property
    def term(self) -> int:
        """Of whoever leads now; 0 if nobody is known to."""
        return self.value


def _all_errors(root: type[VarlogError]) -> dict[int, type[VarlogError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _all_errors(child)
    return found


ERRORS: dict[int, type[VarlogError]] = _all_errors(VarlogError)
"""By code: how an error frame becomes an exception again."""
