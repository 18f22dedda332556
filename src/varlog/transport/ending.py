"""Waiting for a connection that others use to end."""

import asyncio

from varlog.base.errors import VarlogError
from varlog.transport.peer import Peer


async def ended(peer: Peer) -> VarlogError:
    """Returns when the connection has ended, from whichever end, with the reason."""
    reason: asyncio.Future[VarlogError] = asyncio.get_running_loop().create_future()
    peer.on_close(lambda error: None if reason.done() else reason.set_result(error))
    return await reason
