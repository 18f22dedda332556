"""What all parts of one log's client share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from varlog.base.ids import Glsn
from varlog.client.choice import Choice
from varlog.client.hints import Hints
from varlog.client.holes import Holes
from varlog.client.repository import Repositories
from varlog.client.routes import Routes
from varlog.client.together import Together
from varlog.ports import Archives, World
from varlog.runtime.scope import Scope
from varlog.transport.pool import PeerPool


@dataclass(frozen=True, slots=True)
class LogContext:
    """One log as this client sees it, and the ways to it."""

    world: World
    pool: PeerPool
    repositories: Repositories
    scope: Scope
    routes: Routes
    choice: Choice
    hints: Hints
    archives: Archives
    tails: Together[Glsn]
    """Questions for the tail."""
    holes: Holes = field(default_factory=Holes)
    on_close: list[Callable[[], None]] = field(default_factory=list)
    """Called when the connection to the cluster is closed."""
