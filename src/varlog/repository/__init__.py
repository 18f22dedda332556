"""The metadata repository: who is who, the chains, and the order of `cut` logs."""

from varlog.repository.config import RepositoryConfig
from varlog.repository.server import Repository

__all__ = ["Repository", "RepositoryConfig"]
