"""Who carries batches to the streams of a log: by the ordering of the segment they are in."""

from typing import TypeAlias

from varlog.client.chain_writer import ChainWriter
from varlog.client.context import LogContext
from varlog.client.routes import StreamRoute
from varlog.client.session import Session
from varlog.client.writer import Carried, Owner, StreamWriter

Writer: TypeAlias = StreamWriter | ChainWriter


def make_writer(
    context: LogContext, route: StreamRoute, owner: Owner, *, depth: int, session: Session[Carried] | None = None
) -> Writer:
    """With a `session` of a producer that has a name of its own, the writer ends when that session does."""
    kind = ChainWriter if route.written_by_clients else StreamWriter
    return kind(context, route, owner, depth=depth, session=session)
