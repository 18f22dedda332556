"""Keys and transactions of the port as etcd's messages.

    PREFIX d/KEY                 what the store's users see
    PREFIX m/SESSION             one per open store: there while its lease is
    PREFIX m/SESSION/SLOT        markers, see `markers`

etcd takes 128 operations in a transaction, but a transaction may hold transactions: with more, the operations are
put into groups, each a transaction without condition, still applied as one and in order. That makes room for about
four thousand.
"""

from collections.abc import Sequence

from varlog.base.errors import Corrupt, InvalidArgument, TooLarge
from varlog.metadata.etcd.errors import OPERATIONS, REQUEST_BYTES
from varlog.ports.metadata import Transaction
from varlog.wire.proto import etcd_pb2 as pb

HEADROOM_BYTES = 4096
"""What etcd puts around a request before it looks at the size."""
GUARDS = 1
"""Conditions and operations of our own in every transaction."""


def range_end(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`, which is no row of 255s."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


class Keys:
    """Where things lie in etcd."""

    def __init__(self, prefix: str) -> None:
        self._data = prefix.encode() + b"d/"
        self._markers = prefix.encode() + b"m/"

    def data(self, key: str) -> bytes:
        try:
            return self._data + key.encode()
        except UnicodeEncodeError as broken:
            raise InvalidArgument(f"the key {key!r} is no valid text") from broken

    def name(self, key: bytes) -> str:
        """The other way round."""
        try:
            return key[len(self._data) :].decode()
        except UnicodeDecodeError as broken:
            raise Corrupt(f"etcd holds a key that is no text below {self._data!r}: {key!r}") from broken

    def session(self, session: str) -> bytes:
        return self._markers + session.encode()

    def marker(self, session: str, slot: int) -> bytes:
        return self._markers + f"{session}/{slot}".encode()


# ---------------------------------------------------------------- conditions


def at_revision(key: bytes, revision: int) -> pb.Compare:
    """The key was last changed there; 0: it does not exist."""
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=key, mod_revision=revision)


def has_value(key: bytes, value: bytes) -> pb.Compare:
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=key, value=value)


def conditions(keys: Keys, transaction: Transaction) -> list[pb.Compare]:
    found = [at_revision(keys.data(key), version) for key, version in transaction.expect.items()]
    found += [has_value(keys.data(key), value) for key, value in transaction.expect_values.items()]
    if len(found) + GUARDS > OPERATIONS:
        raise TooLarge(f"a metadata transaction has {len(found)} conditions", OPERATIONS - GUARDS)
    return found


# ---------------------------------------------------------------- operations


def put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes, end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=end))


def look(key: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def operations(keys: Keys, transaction: Transaction, lease: int) -> list[pb.RequestOp]:
    """In the order in which the changes are told to those who watch."""
    ranges = [(keys.data(first), keys.data(second)) for first, second in transaction.delete_ranges if first < second]
    return [
        *(delete(first, second) for first, second in ranges),
        *(delete(keys.data(key)) for key in transaction.delete),
        *(put(keys.data(key), value, lease) for key, value in transaction.put.items()),
    ]


def grouped(wanted: list[pb.RequestOp], conditions_beside: int) -> list[pb.RequestOp]:
    """The operations themselves if there are few, else transactions that hold them."""
    if len(wanted) + GUARDS <= OPERATIONS:
        return wanted
    for groups in range(2, OPERATIONS - GUARDS):
        room = OPERATIONS - max(groups + GUARDS, conditions_beside)
        if groups * room >= len(wanted):
            parts = (wanted[start : start + room] for start in range(0, len(wanted), room))
            return [pb.RequestOp(request_txn=pb.TxnRequest(success=part)) for part in parts]
    raise TooLarge(f"a metadata transaction has {len(wanted)} operations", OPERATIONS)


def check_size(request: pb.TxnRequest) -> None:
    limit = REQUEST_BYTES - HEADROOM_BYTES
    if request.ByteSize() > limit:
        raise TooLarge(f"a metadata transaction has {request.ByteSize()} bytes; etcd takes {limit}", limit)


def deleted_anything(responses: Sequence[pb.ResponseOp]) -> bool:
    """Whether a transaction took away a key, told by what etcd answered."""
    return any(
        each.response_delete_range.deleted > 0 or deleted_anything(each.response_txn.responses) for each in responses
    )
