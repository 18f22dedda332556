"""Reading from etcd: one key, or a range in pages that are all of one moment."""

from varlog.base.errors import TooLarge, Unavailable
from varlog.metadata.etcd.connection import RANGE, Connection
from varlog.metadata.etcd.errors import Compacted
from varlog.wire.proto import etcd_pb2 as pb

FIRST_KEYS = 32
"""Keys asked for at once as long as nobody knows how large they are."""
PAGE_KEYS = 512
"""Most keys asked for at once."""
PAGE_BYTES = 4 << 20
"""What a page is to have at most, as far as the one before it tells. etcd makes all of an answer before it sends any:
one of hundreds of megabytes takes longer than a member is given, at every try."""
RESTARTS = 8
"""How often a scan begins anew because what it was reading has been compacted away."""


async def read_key(connection: Connection, key: bytes) -> pb.KeyValue | None:
    """As of now: nothing that was applied before the call is missed."""
    response = await connection.ask(RANGE, pb.RangeRequest(key=key))
    return response.kvs[0] if response.kvs else None


async def read_range(connection: Connection, first: bytes, end: bytes) -> tuple[list[pb.KeyValue], int]:
    """All keys in [first, end), in order, at one revision; and that revision."""
    for _ in range(RESTARTS):
        try:
            return await read_range_at(connection, first, end, 0)
        except Compacted:
            pass  # reading took longer than old revisions are kept: once more, from a new one
    raise Unavailable("etcd is compacted faster than it can be read")


async def read_range_at(
    connection: Connection, first: bytes, end: bytes, revision: int, *, keys_only: bool = False
) -> tuple[list[pb.KeyValue], int]:
    """The same at a revision, 0 meaning now; raises `Compacted` when that is gone, or goes meanwhile."""
    found: list[pb.KeyValue] = []
    limit = min(FIRST_KEYS, PAGE_KEYS)
    while True:
        request = pb.RangeRequest(key=first, range_end=end, limit=limit, revision=revision, keys_only=keys_only)
        try:
            response = await connection.ask(RANGE, request)
        except TooLarge:
            if limit == 1:
                raise
            limit //= 2
            continue
        revision = revision or response.header.revision
        found.extend(response.kvs)
        if not response.more:
            return found, revision
        first = response.kvs[-1].key + b"\0"
        limit = max(1, min(2 * limit, PAGE_KEYS, PAGE_BYTES * len(response.kvs) // response.ByteSize()))
