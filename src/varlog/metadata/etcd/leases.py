"""Leases of etcd: what is attached to one goes when it is not renewed in time."""

import asyncio
import math

from varlog.base.errors import NotFound, Timeout
from varlog.metadata.etcd.connection import GRANT, KEEP_ALIVE, REVOKE, Connection
from varlog.wire.proto import etcd_pb2 as pb


async def grant(connection: Connection, seconds: float) -> int:
    """A new lease of at least so long. One whose answer got lost ends by itself."""
    response = await connection.ask(GRANT, pb.LeaseGrantRequest(TTL=math.ceil(seconds)))
    return response.ID


async def revoke(connection: Connection, lease: int) -> None:
    """End it now; one that is gone already is fine."""
    try:
        await connection.ask(REVOKE, pb.LeaseRevokeRequest(ID=lease))
    except NotFound:
        pass  # that is what was wanted


async def renew(connection: Connection, lease: int, attempt_s: float) -> float:
    """Seconds that it lasts from now on; 0: it is gone. Each member gets `attempt_s` to answer."""

    async def attempt() -> float:
        stream = await connection.stream(KEEP_ALIVE)
        try:
            async with asyncio.timeout(attempt_s):
                await stream.send(pb.LeaseKeepAliveRequest(ID=lease))
                return float((await stream.receive()).TTL)
        except TimeoutError:
            stream.failed()
            raise Timeout("etcd did not renew a lease in time") from None
        except Exception:
            stream.failed()
            raise
        finally:
            stream.cancel()

    return await connection.retried(attempt)
