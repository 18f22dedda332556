"""The table of contents of the protocol: every method, what it is asked with and what it is answered with."""

from enum import IntEnum
from typing import Any

from google.protobuf.message import Message

from varlog.wire.proto import varlog_pb2 as pb


class Method(IntEnum):
    """Numbers on the wire; never reused."""

    # storage verbs, served by nodes; the ten of the design
    OPEN = 1
    STORE = 2
    ADVANCE = 3
    SEAL = 4
    DIGEST = 5
    FINISH = 6
    READ = 7
    TRIM = 8
    DROP = 9
    REPORT = 10

    # rebuilding and scrubbing, served by nodes
    COPY = 11
    SCRUB = 12
    FINGERPRINT = 13
    CONDEMN = 14

    # retention, served by nodes
    MARKS = 15

    # the `cut` ordering's primary, served by nodes
    APPEND = 16
    PRODUCER = 17
    DIRECTORY = 18

    # the `leader` ordering, served by nodes
    LEAD = 19

    # the `sequencer` ordering, served by nodes
    GRANT = 20

    # who is there, served by all
    HELLO = 21

    # served by the repository
    REGISTER = 32
    CREATE_LOG = 33
    GET_LOG = 34
    WATCH_LOG = 35
    LIST_LOGS = 36
    LIST_NODES = 37
    TAIL = 38
    TRIM_LOG = 39
    SEAL_LOG = 40
    REMOVE_LOG = 41
    STATUS = 42
    DRAIN_NODE = 43
    CHECK_NODE = 44
    REMOVE_NODE = 45
    LEASE = 48
    RECONFIGURE_LOG = 52
    SCRUB_NODE = 56
    LEAD_LOG = 57
    GATHER = 60
    FORWARD = 61
    RECORD_ARCHIVE = 64


MESSAGES: dict[Method, tuple[type[Message], type[Message]]] = {
    Method.OPEN: (pb.OpenRequest, pb.ReplicaStatus),
    Method.STORE: (pb.StoreRequest, pb.ReplicaStatus),
    Method.ADVANCE: (pb.CommitRequest, pb.CommitResponse),
    Method.SEAL: (pb.SealRequest, pb.ReplicaStatus),
    Method.DIGEST: (pb.DigestRequest, pb.DigestReply),
    Method.FINISH: (pb.FinishRequest, pb.ReplicaStatus),
    Method.READ: (pb.ReadRequest, pb.ReadPart),
    Method.TRIM: (pb.TrimRequest, pb.ReplicaStatus),
    Method.DROP: (pb.DropRequest, pb.Empty),
    Method.REPORT: (pb.GetReportRequest, pb.GetReportResponse),
    Method.COPY: (pb.CopyRequest, pb.ReplicaStatus),
    Method.SCRUB: (pb.ScrubRequest, pb.ScrubStatus),
    Method.FINGERPRINT: (pb.FingerprintRequest, pb.FingerprintReply),
    Method.CONDEMN: (pb.CondemnRequest, pb.ReplicaStatus),
    Method.MARKS: (pb.MarksRequest, pb.MarksReply),
    Method.APPEND: (pb.AppendRequest, pb.AppendReply),
    Method.PRODUCER: (pb.ProducerRequest, pb.ProducerReply),
    Method.DIRECTORY: (pb.NodeDirectory, pb.Empty),
    Method.LEAD: (pb.LeadRequest, pb.ReplicaStatus),
    Method.GRANT: (pb.GrantRequest, pb.GrantReply),
    Method.HELLO: (pb.HelloRequest, pb.HelloReply),
    Method.REGISTER: (pb.RegisterRequest, pb.RegisterReply),
    Method.CREATE_LOG: (pb.CreateLogRequest, pb.LogInfo),
    Method.GET_LOG: (pb.GetLogRequest, pb.LogInfo),
    Method.WATCH_LOG: (pb.GetLogRequest, pb.LogInfo),
    Method.LIST_LOGS: (pb.ListLogsRequest, pb.ListLogsReply),
    Method.LIST_NODES: (pb.ListNodesRequest, pb.ListNodesReply),
    Method.TAIL: (pb.TailRequest, pb.TailReply),
    Method.TRIM_LOG: (pb.TrimLogRequest, pb.TailReply),
    Method.SEAL_LOG: (pb.SealLogRequest, pb.LogInfo),
    Method.REMOVE_LOG: (pb.RemoveLogRequest, pb.Empty),
    Method.STATUS: (pb.StatusRequest, pb.StatusReply),
    Method.DRAIN_NODE: (pb.DrainNodeRequest, pb.NodeInfo),
    Method.CHECK_NODE: (pb.CheckNodeRequest, pb.CheckNodeReply),
    Method.REMOVE_NODE: (pb.RemoveNodeRequest, pb.Empty),
    Method.LEASE: (pb.LeaseRequest, pb.LeaseReply),
    Method.RECONFIGURE_LOG: (pb.ReconfigureLogRequest, pb.LogInfo),
    Method.SCRUB_NODE: (pb.ScrubNodeRequest, pb.NodeInfo),
    Method.LEAD_LOG: (pb.LeadLogRequest, pb.LeadLogReply),
    Method.GATHER: (pb.GatherRequest, pb.Empty),
    Method.FORWARD: (pb.ForwardedReports, pb.Empty),
    Method.RECORD_ARCHIVE: (pb.RecordArchiveRequest, pb.LogInfo),
}
"""Request and reply of each method. Pushed (NOTIFY frames): REPORT by nodes, carrying its *reply*; STORE by primaries,
FORWARD by repositories that follow, ADVANCE and DIRECTORY by the one that leads, carrying their requests. READ and
WATCH_LOG are answered by many parts."""

PUSHES: dict[Method, type[Message]] = {
    Method.STORE: pb.StoreRequest,
    Method.REPORT: pb.GetReportResponse,
    Method.ADVANCE: pb.CommitRequest,
    Method.DIRECTORY: pb.NodeDirectory,
    Method.FORWARD: pb.ForwardedReports,
}
"""What a NOTIFY frame of a method carries."""


def parse(kind: type[Message], data: Any) -> Message:
    """Decode a message; the transport turns what this raises into a typed error."""
    message = kind()
    message.ParseFromString(bytes(data))
    return message
