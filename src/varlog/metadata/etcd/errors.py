"""What errors of etcd and of gRPC mean here. Nothing foreign gets past this file and `connection`."""

from typing import Any

import grpc

from varlog.base.errors import (
    ConnectionLost,
    InvalidArgument,
    NoSpace,
    NotFound,
    Overloaded,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
    VarlogError,
)

REQUEST_BYTES = 3 << 19
"""etcd's default for --max-request-bytes."""
OPERATIONS = 128
"""etcd's default for --max-txn-ops."""
TOO_BUSY_MS = 100


class Compacted(VarlogError):
    """The revision asked for is gone. Never leaves this package."""


_TEXTS: tuple[tuple[str, VarlogError], ...] = (
    ("no leader", Unavailable("etcd has no leader")),
    ("too many requests", Overloaded("etcd is overloaded", TOO_BUSY_MS)),
    ("database space exceeded", NoSpace("etcd is full: compact and defragment it, then disarm its alarm")),
    ("request is too large", TooLarge("a metadata transaction is too large for etcd", REQUEST_BYTES)),
    ("too many operations", TooLarge("a metadata transaction has too many operations for etcd", OPERATIONS)),
    ("revision has been compacted", Compacted("a revision was compacted")),
    ("requested lease not found", NotFound("the lease is gone")),
    ("permission denied", Unauthorized("etcd refuses: permission denied")),
    ("user name is empty", Unauthorized("etcd asks for a user; only certificates are supported")),
)
"""Answers of etcd that say for sure that nothing was changed; but see `EtcdStore._full`."""

_CODES: dict[Any, type[VarlogError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.UNAUTHENTICATED: Unauthorized,
    grpc.StatusCode.PERMISSION_DENIED: Unauthorized,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooLarge,
}


def translate(error: Any, endpoint: str) -> VarlogError:
    """An `AioRpcError`. Whatever is not known to have changed nothing becomes `ConnectionLost`."""
    details = str(error.details() or "")
    for text, meaning in _TEXTS:
        if text in details:
            return type(meaning)(f"{meaning.message} ({endpoint})", meaning.value)
    kind = _CODES.get(error.code(), ConnectionLost)
    return kind(f"etcd at {endpoint}: {details or error.code().name}")
