"""Errors on the wire: an exception becomes the header of an ERROR frame, and an exception again."""

from google.protobuf.message import DecodeError

from varlog.base.errors import ERRORS, Corrupt, Unsupported, VarlogError
from varlog.wire.proto import varlog_pb2 as pb

MESSAGE_CHARACTERS = 4096
"""Longest text of an error that is sent."""


def encode_error(error: VarlogError) -> bytes:
    value = error.value if 0 <= error.value < 1 << 64 else 0
    text = error.message[:MESSAGE_CHARACTERS].encode(errors="replace").decode()
    return pb.Error(
        code=error.code,
        message=text,
        value=value,
        replica=getattr(error, "replica", ""),
        capability=getattr(error, "capability", ""),
    ).SerializeToString()


def decode_error(header: bytes) -> VarlogError:
    """The error the far side sent; one of a later release keeps its text, as the plain `VarlogError`.

    So is one that cannot be read: what it says of the request, nobody knows.
    """
    try:
        sent = pb.Error.FromString(header)
    except DecodeError:
        return VarlogError("an error arrived that cannot be read")
    error = ERRORS.get(sent.code, VarlogError)(sent.message, sent.value)
    if isinstance(error, Corrupt):
        error.replica = sent.replica
    elif isinstance(error, Unsupported):
        error.capability = sent.capability
    return error


def internal_error(error: BaseException) -> VarlogError:
    """What a caller is told of a defect: that there is one, and its kind; the rest is for our own eyes."""
    return VarlogError(f"internal error: {type(error).__name__}: {error}")
