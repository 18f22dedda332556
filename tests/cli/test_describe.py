"""What is said of logs in words."""

import pytest

from varlog.cli.describe import kept
from varlog.client.describe import describe_log
from varlog.wire.proto import varlog_pb2 as pb


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (pb.LogInfo(), "everything, until it is trimmed"),
        (pb.LogInfo(retain_ms=86_400_000), "86,400 s; what is beyond that goes"),
        (
            pb.LogInfo(retain_ms=60_000, retain_bytes=1 << 30, retain_archived=True),
            "the newest 1.0 GiB and 60 s; what is beyond either goes, once it is archived",
        ),
    ],
)
def test_what_a_log_keeps(info: pb.LogInfo, says: str) -> None:
    assert kept(describe_log(info)) == says
