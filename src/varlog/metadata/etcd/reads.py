"""Reading from etcd: one key, or a range in pages that are all of one moment."""

from varlog.base.errors import TooLarge, Unavailable
from varlog.metadata.etcd.connection import RANGE, Connection
from varlog.metadata.etcd.errors import Compacted
from varlog.wire.proto import etcd_pb2 as pb

PAGE_KEYS = 512
"""Keys asked for at once; halved while what comes is too large to be taken."""
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
    limit = PAGE_KEYS
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
