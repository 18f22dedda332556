"""Keys and transactions of the port as etcd's messages.

    PREFIX d/KEY                 what the store's users see
    PREFIX m/SESSION             one per open store: there while its lease is
    PREFIX m/SESSION/SLOT        markers, see `markers`

etcd takes 128 operations in a transaction, but a transaction may hold transactions: with more, the operations are
put into groups, each a transaction without condition, still applied as one and in order. That makes room for about
four thousand.
"""

from collections.abc import Iterator, Sequence

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


# ---------------------------------------------------------------- parts


def at_revision(key: bytes, revision: int) -> pb.Compare:
    """The key was last changed there; 0: it does not exist."""
    return pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=revision)


def put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def look(key: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


# ---------------------------------------------------------------- transactions


def encode(keys: Keys, transaction: Transaction, lease: int) -> pb.TxnRequest:
    """The transaction as etcd wants it, what it puts attached to `lease`; raises `TooLarge` for what etcd refuses.

    Every field is set where it lies, which takes a third of the time of handing messages to constructors.
    """
    request = pb.TxnRequest()
    _encode_conditions(request, keys, transaction)
    _encode_changes(request, keys, transaction, lease)
    limit = REQUEST_BYTES - HEADROOM_BYTES
    if request.ByteSize() > limit:
        raise TooLarge(f"a metadata transaction has {request.ByteSize()} bytes; etcd takes {limit}", limit)
    return request


def _encode_conditions(request: pb.TxnRequest, keys: Keys, transaction: Transaction) -> None:
    count = len(transaction.expect)
    if count + GUARDS > OPERATIONS:
        raise TooLarge(f"a metadata transaction has {count} conditions", OPERATIONS - GUARDS)
    for key, version in transaction.expect.items():
        compare = request.compare.add()
        compare.target = pb.Compare.MOD
        compare.key = keys.data(key)
        compare.mod_revision = version


def _encode_changes(request: pb.TxnRequest, keys: Keys, transaction: Transaction, lease: int) -> None:
    """In the order in which the changes are told to those who watch."""
    ranges = [(first, second) for first, second in transaction.delete_ranges if first < second]
    places = _places(request, len(ranges) + len(transaction.delete) + len(transaction.put))
    for first, second in ranges:
        deletion = next(places).request_delete_range
        deletion.key = keys.data(first)
        deletion.range_end = keys.data(second)
    for key in transaction.delete:
        next(places).request_delete_range.key = keys.data(key)
    for key, value in transaction.put.items():
        change = next(places).request_put
        change.key = keys.data(key)
        change.value = value
        change.lease = lease


def _places(request: pb.TxnRequest, count: int) -> Iterator[pb.RequestOp]:
    """Where each of so many operations goes: into the request if they are few, else into transactions inside of it."""
    if count + GUARDS <= OPERATIONS:
        for _ in range(count):
            yield request.success.add()
        return
    room = _room(count, len(request.compare))
    for start in range(0, count, room):
        group = request.success.add().request_txn
        for _ in range(min(room, count - start)):
            yield group.success.add()


def _room(count: int, conditions: int) -> int:
    """How many operations go into each group: etcd allows 128 less what stands beside the groups."""
    for groups in range(2, OPERATIONS - GUARDS):
        room = OPERATIONS - max(groups, conditions) - GUARDS
        if groups * room >= count:
            return room
    raise TooLarge(f"a metadata transaction has {count} operations", OPERATIONS)


def deleted_anything(responses: Sequence[pb.ResponseOp]) -> bool:
    """Whether a transaction took away a key, told by what etcd answered."""
    return any(
        each.response_delete_range.deleted > 0 or deleted_anything(each.response_txn.responses) for each in responses
    )
