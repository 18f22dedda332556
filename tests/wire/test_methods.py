"""The table of methods: complete, and never renumbered."""

import pytest
from google.protobuf.message import DecodeError

from varlog.wire.methods import MESSAGES, PUSHES, Method, parse
from varlog.wire.proto import varlog_pb2 as pb


def test_every_method_has_its_messages() -> None:
    assert set(MESSAGES) == set(Method)
    assert set(PUSHES) <= set(Method)


def test_numbers_fit_their_field_and_leave_zero_to_the_connection() -> None:
    assert all(0 < method < 256 for method in Method)
    assert len({int(method) for method in Method}) == len(Method)


def test_numbers_never_change() -> None:
    """A number on the wire is for ever: add to this list, change nothing in it."""
    assert {method.name: int(method) for method in Method}.items() >= {
        "OPEN": 1,
        "STORE": 2,
        "ADVANCE": 3,
        "SEAL": 4,
        "DIGEST": 5,
        "FINISH": 6,
        "READ": 7,
        "TRIM": 8,
        "DROP": 9,
        "REPORT": 10,
        "COPY": 11,
        "APPEND": 16,
        "PRODUCER": 17,
        "DIRECTORY": 18,
        "REGISTER": 32,
        "CREATE_LOG": 33,
        "GET_LOG": 34,
        "WATCH_LOG": 35,
        "LIST_LOGS": 36,
        "LIST_NODES": 37,
        "TAIL": 38,
        "TRIM_LOG": 39,
        "SEAL_LOG": 40,
        "REMOVE_LOG": 41,
        "STATUS": 42,
        "DRAIN_NODE": 43,
        "CHECK_NODE": 44,
        "REMOVE_NODE": 45,
        "LEASE": 48,
        "LEAD_LOG": 57,
        "GATHER": 60,
        "FORWARD": 61,
        "RECORD_ARCHIVE": 64,
    }.items()


def test_parsing() -> None:
    message = pb.TailReply(tail=5, trimmed=3)
    for data in (message.SerializeToString(), bytearray(message.SerializeToString())):
        assert parse(pb.TailReply, data) == message
    with pytest.raises(DecodeError):
        parse(pb.TailReply, b"\xff\xff")
