from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_UNKNOWN: _ClassVar[ReplicaState]
    REPLICA_OPEN: _ClassVar[ReplicaState]
    REPLICA_SEALED: _ClassVar[ReplicaState]
    REPLICA_FINISHED: _ClassVar[ReplicaState]
    REPLICA_FAILED: _ClassVar[ReplicaState]
    REPLICA_COPYING: _ClassVar[ReplicaState]

class SlotContent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLOT_UNKNOWN: _ClassVar[SlotContent]
    SLOT_EMPTY: _ClassVar[SlotContent]
    SLOT_DATA: _ClassVar[SlotContent]
    SLOT_JUNK: _ClassVar[SlotContent]

class Leads(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEADS_NOT: _ClassVar[Leads]
    LEADS: _ClassVar[Leads]
    LEADS_WAITING: _ClassVar[Leads]
    LEADS_NO_MORE: _ClassVar[Leads]

class SegmentState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEGMENT_OPEN: _ClassVar[SegmentState]
    SEGMENT_SETTLING: _ClassVar[SegmentState]
    SEGMENT_SEALED: _ClassVar[SegmentState]

class StreamState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_WRITABLE: _ClassVar[StreamState]
    STREAM_FINALIZED: _ClassVar[StreamState]

class Candidature(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAMPAIGN: _ClassVar[Candidature]
    RENEW: _ClassVar[Candidature]
    RESIGN: _ClassVar[Candidature]
REPLICA_UNKNOWN: ReplicaState
REPLICA_OPEN: ReplicaState
REPLICA_SEALED: ReplicaState
REPLICA_FINISHED: ReplicaState
REPLICA_FAILED: ReplicaState
REPLICA_COPYING: ReplicaState
SLOT_UNKNOWN: SlotContent
SLOT_EMPTY: SlotContent
SLOT_DATA: SlotContent
SLOT_JUNK: SlotContent
LEADS_NOT: Leads
LEADS: Leads
LEADS_WAITING: Leads
LEADS_NO_MORE: Leads
SEGMENT_OPEN: SegmentState
SEGMENT_SETTLING: SegmentState
SEGMENT_SEALED: SegmentState
STREAM_WRITABLE: StreamState
STREAM_FINALIZED: StreamState
CAMPAIGN: Candidature
RENEW: Candidature
RESIGN: Candidature

class ReplicaId(_message.Message):
    __slots__ = ("log", "segment", "stream")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    log: int
    segment: int
    stream: int
    def __init__(self, log: _Optional[int] = ..., segment: _Optional[int] = ..., stream: _Optional[int] = ...) -> None: ...

class Binding(_message.Message):
    __slots__ = ("slot", "glsn", "count")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GLSN_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    slot: int
    glsn: int
    count: int
    def __init__(self, slot: _Optional[int] = ..., glsn: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("state", "contiguous", "committed", "trimmed", "high_watermark", "trimmed_glsn", "behind", "leads", "ahead", "granted")
    STATE_FIELD_NUMBER: _ClassVar[int]
    CONTIGUOUS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_GLSN_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    state: ReplicaState
    contiguous: int
    committed: int
    trimmed: int
    high_watermark: int
    trimmed_glsn: int
    behind: int
    leads: bool
    ahead: int
    granted: int
    def __init__(self, state: _Optional[_Union[ReplicaState, str]] = ..., contiguous: _Optional[int] = ..., committed: _Optional[int] = ..., trimmed: _Optional[int] = ..., high_watermark: _Optional[int] = ..., trimmed_glsn: _Optional[int] = ..., behind: _Optional[int] = ..., leads: _Optional[bool] = ..., ahead: _Optional[int] = ..., granted: _Optional[int] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "value", "replica", "capability")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    value: int
    replica: str
    capability: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., value: _Optional[int] = ..., replica: _Optional[str] = ..., capability: _Optional[str] = ...) -> None: ...

class ReplicaSpec(_message.Message):
    __slots__ = ("replica", "ordering", "members", "log_name", "copy", "ack", "unit", "streams", "index", "journal", "replication", "writer")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LOG_NAME_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    ordering: str
    members: _containers.RepeatedScalarFieldContainer[int]
    log_name: str
    copy: int
    ack: int
    unit: int
    streams: int
    index: int
    journal: bool
    replication: str
    writer: int
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., ordering: _Optional[str] = ..., members: _Optional[_Iterable[int]] = ..., log_name: _Optional[str] = ..., copy: _Optional[int] = ..., ack: _Optional[int] = ..., unit: _Optional[int] = ..., streams: _Optional[int] = ..., index: _Optional[int] = ..., journal: _Optional[bool] = ..., replication: _Optional[str] = ..., writer: _Optional[int] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: ReplicaSpec
    def __init__(self, spec: _Optional[_Union[ReplicaSpec, _Mapping]] = ...) -> None: ...

class StoreRequest(_message.Message):
    __slots__ = ("log", "segment", "stream", "slot", "writer", "settle", "commits", "committed", "base")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    log: int
    segment: int
    stream: int
    slot: int
    writer: int
    settle: bool
    commits: _containers.RepeatedCompositeFieldContainer[StoreCommit]
    committed: int
    base: int
    def __init__(self, log: _Optional[int] = ..., segment: _Optional[int] = ..., stream: _Optional[int] = ..., slot: _Optional[int] = ..., writer: _Optional[int] = ..., settle: _Optional[bool] = ..., commits: _Optional[_Iterable[_Union[StoreCommit, _Mapping]]] = ..., committed: _Optional[int] = ..., base: _Optional[int] = ...) -> None: ...

class StoreCommit(_message.Message):
    __slots__ = ("slot", "glsn", "count", "high_watermark")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GLSN_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    slot: int
    glsn: int
    count: int
    high_watermark: int
    def __init__(self, slot: _Optional[int] = ..., glsn: _Optional[int] = ..., count: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class SealRequest(_message.Message):
    __slots__ = ("replica",)
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ...) -> None: ...

class DigestRequest(_message.Message):
    __slots__ = ("replica", "low", "high", "bindings")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    low: int
    high: int
    bindings: bool
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., low: _Optional[int] = ..., high: _Optional[int] = ..., bindings: _Optional[bool] = ...) -> None: ...

class DigestRow(_message.Message):
    __slots__ = ("slot", "count", "content", "crc")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    slot: int
    count: int
    content: SlotContent
    crc: int
    def __init__(self, slot: _Optional[int] = ..., count: _Optional[int] = ..., content: _Optional[_Union[SlotContent, str]] = ..., crc: _Optional[int] = ...) -> None: ...

class DigestReply(_message.Message):
    __slots__ = ("status", "rows", "bindings")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    status: ReplicaStatus
    rows: _containers.RepeatedCompositeFieldContainer[DigestRow]
    bindings: _containers.RepeatedCompositeFieldContainer[Binding]
    def __init__(self, status: _Optional[_Union[ReplicaStatus, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[DigestRow, _Mapping]]] = ..., bindings: _Optional[_Iterable[_Union[Binding, _Mapping]]] = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("replica", "end", "base", "sources", "junk_slot", "take")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    JUNK_SLOT_FIELD_NUMBER: _ClassVar[int]
    TAKE_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    end: int
    base: int
    sources: _containers.RepeatedScalarFieldContainer[int]
    junk_slot: int
    take: bool
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., end: _Optional[int] = ..., base: _Optional[int] = ..., sources: _Optional[_Iterable[int]] = ..., junk_slot: _Optional[int] = ..., take: _Optional[bool] = ...) -> None: ...

class LeadRequest(_message.Message):
    __slots__ = ("replica", "base")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    base: int
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., base: _Optional[int] = ...) -> None: ...

class GrantRequest(_message.Message):
    __slots__ = ("log", "segment", "stream", "count", "expect", "base", "producer", "sequence", "claim")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    EXPECT_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    log: int
    segment: int
    stream: int
    count: int
    expect: int
    base: int
    producer: bytes
    sequence: int
    claim: bytes
    def __init__(self, log: _Optional[int] = ..., segment: _Optional[int] = ..., stream: _Optional[int] = ..., count: _Optional[int] = ..., expect: _Optional[int] = ..., base: _Optional[int] = ..., producer: _Optional[bytes] = ..., sequence: _Optional[int] = ..., claim: _Optional[bytes] = ...) -> None: ...

class GrantReply(_message.Message):
    __slots__ = ("first", "skipped", "claim")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    first: int
    skipped: int
    claim: bytes
    def __init__(self, first: _Optional[int] = ..., skipped: _Optional[int] = ..., claim: _Optional[bytes] = ...) -> None: ...

class HelloRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("cluster_id", "node_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("log", "segment", "stream", "slot", "glsn", "time_us", "stop_glsn", "max_batches", "part_bytes", "wait", "stored", "whole")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GLSN_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    STOP_GLSN_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCHES_FIELD_NUMBER: _ClassVar[int]
    PART_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    log: int
    segment: int
    stream: int
    slot: int
    glsn: int
    time_us: int
    stop_glsn: int
    max_batches: int
    part_bytes: int
    wait: bool
    stored: bool
    whole: bool
    def __init__(self, log: _Optional[int] = ..., segment: _Optional[int] = ..., stream: _Optional[int] = ..., slot: _Optional[int] = ..., glsn: _Optional[int] = ..., time_us: _Optional[int] = ..., stop_glsn: _Optional[int] = ..., max_batches: _Optional[int] = ..., part_bytes: _Optional[int] = ..., wait: _Optional[bool] = ..., stored: _Optional[bool] = ..., whole: _Optional[bool] = ...) -> None: ...

class ReadPart(_message.Message):
    __slots__ = ("slot", "bindings", "status", "producers")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    bindings: _containers.RepeatedCompositeFieldContainer[Binding]
    status: ReplicaStatus
    producers: bool
    def __init__(self, slot: _Optional[int] = ..., bindings: _Optional[_Iterable[_Union[Binding, _Mapping]]] = ..., status: _Optional[_Union[ReplicaStatus, _Mapping]] = ..., producers: _Optional[bool] = ...) -> None: ...

class TrimRequest(_message.Message):
    __slots__ = ("replica", "upto")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    upto: int
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., upto: _Optional[int] = ...) -> None: ...

class DropRequest(_message.Message):
    __slots__ = ("replica", "before", "copy")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    before: int
    copy: bool
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., before: _Optional[int] = ..., copy: _Optional[bool] = ...) -> None: ...

class CopyRequest(_message.Message):
    __slots__ = ("spec", "end", "sources", "in_place")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    spec: ReplicaSpec
    end: int
    sources: _containers.RepeatedScalarFieldContainer[int]
    in_place: bool
    def __init__(self, spec: _Optional[_Union[ReplicaSpec, _Mapping]] = ..., end: _Optional[int] = ..., sources: _Optional[_Iterable[int]] = ..., in_place: _Optional[bool] = ...) -> None: ...

class Damage(_message.Message):
    __slots__ = ("slot", "end_slot", "glsn", "end_glsn")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    END_SLOT_FIELD_NUMBER: _ClassVar[int]
    GLSN_FIELD_NUMBER: _ClassVar[int]
    END_GLSN_FIELD_NUMBER: _ClassVar[int]
    slot: int
    end_slot: int
    glsn: int
    end_glsn: int
    def __init__(self, slot: _Optional[int] = ..., end_slot: _Optional[int] = ..., glsn: _Optional[int] = ..., end_glsn: _Optional[int] = ...) -> None: ...

class ScrubStatus(_message.Message):
    __slots__ = ("running", "done_bytes", "total_bytes", "passes", "ended_us", "found", "repaired")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    DONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    ENDED_US_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    running: bool
    done_bytes: int
    total_bytes: int
    passes: int
    ended_us: int
    found: int
    repaired: int
    def __init__(self, running: _Optional[bool] = ..., done_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., passes: _Optional[int] = ..., ended_us: _Optional[int] = ..., found: _Optional[int] = ..., repaired: _Optional[int] = ...) -> None: ...

class ScrubRequest(_message.Message):
    __slots__ = ("begin",)
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    begin: bool
    def __init__(self, begin: _Optional[bool] = ...) -> None: ...

class FingerprintRequest(_message.Message):
    __slots__ = ("replica", "first")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    first: int
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., first: _Optional[int] = ...) -> None: ...

class FingerprintReply(_message.Message):
    __slots__ = ("first", "crcs", "next", "read_us")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    CRCS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    READ_US_FIELD_NUMBER: _ClassVar[int]
    first: int
    crcs: _containers.RepeatedScalarFieldContainer[int]
    next: int
    read_us: int
    def __init__(self, first: _Optional[int] = ..., crcs: _Optional[_Iterable[int]] = ..., next: _Optional[int] = ..., read_us: _Optional[int] = ...) -> None: ...

class CondemnRequest(_message.Message):
    __slots__ = ("replica", "damage", "why")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    damage: Damage
    why: str
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., damage: _Optional[_Union[Damage, _Mapping]] = ..., why: _Optional[str] = ...) -> None: ...

class ScrubNodeRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    def __init__(self, node_id: _Optional[int] = ...) -> None: ...

class LogStreamUncommitReport(_message.Message):
    __slots__ = ("log_stream_id", "uncommitted_llsn_offset", "uncommitted_llsn_length", "high_watermark", "log_id", "segment", "bound_llsn_offset", "state", "trimmed_glsn", "stored_bytes", "missed_commits", "trouble", "damage", "read_us", "leads")
    LOG_STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_LLSN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_LLSN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    BOUND_LLSN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_GLSN_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MISSED_COMMITS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    READ_US_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    log_stream_id: int
    uncommitted_llsn_offset: int
    uncommitted_llsn_length: int
    high_watermark: int
    log_id: int
    segment: int
    bound_llsn_offset: int
    state: ReplicaState
    trimmed_glsn: int
    stored_bytes: int
    missed_commits: bool
    trouble: str
    damage: _containers.RepeatedCompositeFieldContainer[Damage]
    read_us: int
    leads: Leads
    def __init__(self, log_stream_id: _Optional[int] = ..., uncommitted_llsn_offset: _Optional[int] = ..., uncommitted_llsn_length: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_id: _Optional[int] = ..., segment: _Optional[int] = ..., bound_llsn_offset: _Optional[int] = ..., state: _Optional[_Union[ReplicaState, str]] = ..., trimmed_glsn: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., missed_commits: _Optional[bool] = ..., trouble: _Optional[str] = ..., damage: _Optional[_Iterable[_Union[Damage, _Mapping]]] = ..., read_us: _Optional[int] = ..., leads: _Optional[_Union[Leads, str]] = ...) -> None: ...

class GetReportRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetReportResponse(_message.Message):
    __slots__ = ("storage_node_id", "uncommit_reports", "boot", "sequence", "complete", "volumes", "directory_version", "scrub")
    STORAGE_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    UNCOMMIT_REPORTS_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    storage_node_id: int
    uncommit_reports: _containers.RepeatedCompositeFieldContainer[LogStreamUncommitReport]
    boot: int
    sequence: int
    complete: bool
    volumes: _containers.RepeatedCompositeFieldContainer[Volume]
    directory_version: int
    scrub: ScrubStatus
    def __init__(self, storage_node_id: _Optional[int] = ..., uncommit_reports: _Optional[_Iterable[_Union[LogStreamUncommitReport, _Mapping]]] = ..., boot: _Optional[int] = ..., sequence: _Optional[int] = ..., complete: _Optional[bool] = ..., volumes: _Optional[_Iterable[_Union[Volume, _Mapping]]] = ..., directory_version: _Optional[int] = ..., scrub: _Optional[_Union[ScrubStatus, _Mapping]] = ...) -> None: ...

class LogStreamCommitResult(_message.Message):
    __slots__ = ("log_stream_id", "committed_glsn_offset", "committed_glsn_length", "high_watermark", "prev_high_watermark", "log_id", "segment", "committed_llsn_offset")
    LOG_STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_GLSN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_GLSN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    PREV_HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LLSN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    log_stream_id: int
    committed_glsn_offset: int
    committed_glsn_length: int
    high_watermark: int
    prev_high_watermark: int
    log_id: int
    segment: int
    committed_llsn_offset: int
    def __init__(self, log_stream_id: _Optional[int] = ..., committed_glsn_offset: _Optional[int] = ..., committed_glsn_length: _Optional[int] = ..., high_watermark: _Optional[int] = ..., prev_high_watermark: _Optional[int] = ..., log_id: _Optional[int] = ..., segment: _Optional[int] = ..., committed_llsn_offset: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("storage_node_id", "commit_results")
    STORAGE_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_RESULTS_FIELD_NUMBER: _ClassVar[int]
    storage_node_id: int
    commit_results: _containers.RepeatedCompositeFieldContainer[LogStreamCommitResult]
    def __init__(self, storage_node_id: _Optional[int] = ..., commit_results: _Optional[_Iterable[_Union[LogStreamCommitResult, _Mapping]]] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MarksRequest(_message.Message):
    __slots__ = ("replica", "time_us", "sizes")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    replica: ReplicaId
    time_us: int
    sizes: bool
    def __init__(self, replica: _Optional[_Union[ReplicaId, _Mapping]] = ..., time_us: _Optional[int] = ..., sizes: _Optional[bool] = ...) -> None: ...

class MarksReply(_message.Message):
    __slots__ = ("committed", "young_glsn", "marks")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    YOUNG_GLSN_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    committed: int
    young_glsn: int
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    def __init__(self, committed: _Optional[int] = ..., young_glsn: _Optional[int] = ..., marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("glsn", "bytes")
    GLSN_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    glsn: int
    bytes: int
    def __init__(self, glsn: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("log", "segment", "stream")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    log: int
    segment: int
    stream: int
    def __init__(self, log: _Optional[int] = ..., segment: _Optional[int] = ..., stream: _Optional[int] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("glsn", "slot", "count")
    GLSN_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    glsn: int
    slot: int
    count: int
    def __init__(self, glsn: _Optional[int] = ..., slot: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ProducerRequest(_message.Message):
    __slots__ = ("log", "segment", "stream", "producer", "begin", "begins", "leaves", "ended")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    log: int
    segment: int
    stream: int
    producer: bytes
    begin: int
    begins: bool
    leaves: bool
    ended: bool
    def __init__(self, log: _Optional[int] = ..., segment: _Optional[int] = ..., stream: _Optional[int] = ..., producer: _Optional[bytes] = ..., begin: _Optional[int] = ..., begins: _Optional[bool] = ..., leaves: _Optional[bool] = ..., ended: _Optional[bool] = ...) -> None: ...

class ProducerReply(_message.Message):
    __slots__ = ("next_sequence", "first_sequence")
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    next_sequence: int
    first_sequence: int
    def __init__(self, next_sequence: _Optional[int] = ..., first_sequence: _Optional[int] = ...) -> None: ...

class NodeAddress(_message.Message):
    __slots__ = ("node_id", "address", "zone")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    address: str
    zone: str
    def __init__(self, node_id: _Optional[int] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("cluster_id", "node_id", "incarnation", "boot", "address", "zone", "volumes")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    incarnation: str
    boot: int
    address: str
    zone: str
    volumes: _containers.RepeatedCompositeFieldContainer[Volume]
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., incarnation: _Optional[str] = ..., boot: _Optional[int] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., volumes: _Optional[_Iterable[_Union[Volume, _Mapping]]] = ...) -> None: ...

class Volume(_message.Message):
    __slots__ = ("path", "free_bytes", "total_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    free_bytes: int
    total_bytes: int
    def __init__(self, path: _Optional[str] = ..., free_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class NodeDirectory(_message.Message):
    __slots__ = ("version", "nodes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    version: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeAddress]
    def __init__(self, version: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeAddress, _Mapping]]] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("cluster_id", "node_id", "heartbeat_ms", "directory", "lease_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    heartbeat_ms: int
    directory: NodeDirectory
    lease_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., directory: _Optional[_Union[NodeDirectory, _Mapping]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaseReply(_message.Message):
    __slots__ = ("lease_ms", "gatherers", "indirect")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    GATHERERS_FIELD_NUMBER: _ClassVar[int]
    INDIRECT_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    gatherers: _containers.RepeatedScalarFieldContainer[str]
    indirect: bool
    def __init__(self, lease_ms: _Optional[int] = ..., gatherers: _Optional[_Iterable[str]] = ..., indirect: _Optional[bool] = ...) -> None: ...

class GatherRequest(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class ForwardedReports(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[GetReportResponse]
    def __init__(self, reports: _Optional[_Iterable[_Union[GetReportResponse, _Mapping]]] = ...) -> None: ...

class StreamInfo(_message.Message):
    __slots__ = ("id", "members", "state", "end_slot", "from_glsn", "until_glsn", "copy", "junk_slot", "held_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    END_SLOT_FIELD_NUMBER: _ClassVar[int]
    FROM_GLSN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_GLSN_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    JUNK_SLOT_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    id: int
    members: _containers.RepeatedScalarFieldContainer[int]
    state: StreamState
    end_slot: int
    from_glsn: int
    until_glsn: int
    copy: StreamCopy
    junk_slot: int
    held_by: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., state: _Optional[_Union[StreamState, str]] = ..., end_slot: _Optional[int] = ..., from_glsn: _Optional[int] = ..., until_glsn: _Optional[int] = ..., copy: _Optional[_Union[StreamCopy, _Mapping]] = ..., junk_slot: _Optional[int] = ..., held_by: _Optional[_Iterable[int]] = ...) -> None: ...

class StreamCopy(_message.Message):
    __slots__ = ("node", "replaces", "number")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    node: int
    replaces: int
    number: int
    def __init__(self, node: _Optional[int] = ..., replaces: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class SegmentInfo(_message.Message):
    __slots__ = ("epoch", "ordering", "state", "base", "end", "replicas", "ack", "streams", "created_us", "unit", "leader", "replication", "journal")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    CREATED_US_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    ordering: str
    state: SegmentState
    base: int
    end: int
    replicas: int
    ack: int
    streams: _containers.RepeatedCompositeFieldContainer[StreamInfo]
    created_us: int
    unit: int
    leader: JournalLeader
    replication: str
    journal: bool
    def __init__(self, epoch: _Optional[int] = ..., ordering: _Optional[str] = ..., state: _Optional[_Union[SegmentState, str]] = ..., base: _Optional[int] = ..., end: _Optional[int] = ..., replicas: _Optional[int] = ..., ack: _Optional[int] = ..., streams: _Optional[_Iterable[_Union[StreamInfo, _Mapping]]] = ..., created_us: _Optional[int] = ..., unit: _Optional[int] = ..., leader: _Optional[_Union[JournalLeader, _Mapping]] = ..., replication: _Optional[str] = ..., journal: _Optional[bool] = ...) -> None: ...

class JournalLeader(_message.Message):
    __slots__ = ("id", "ttl_ms", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    ttl_ms: int
    name: str
    def __init__(self, id: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class LogInfo(_message.Message):
    __slots__ = ("id", "name", "ordering", "replicas", "streams", "trimmed", "sealed", "chain", "version", "created_us", "nodes", "removing", "next_stream", "ack", "roll_bytes", "roll_ms", "unit", "retain_ms", "retain_bytes", "retain_archived", "journal", "pinned", "replication", "archive", "archived")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_US_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    NEXT_STREAM_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ROLL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROLL_MS_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    RETAIN_MS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    ordering: str
    replicas: int
    streams: int
    trimmed: int
    sealed: bool
    chain: _containers.RepeatedCompositeFieldContainer[SegmentInfo]
    version: int
    created_us: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeAddress]
    removing: bool
    next_stream: int
    ack: int
    roll_bytes: int
    roll_ms: int
    unit: int
    retain_ms: int
    retain_bytes: int
    retain_archived: bool
    journal: bool
    pinned: _containers.RepeatedScalarFieldContainer[str]
    replication: str
    archive: ArchiveInfo
    archived: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., ordering: _Optional[str] = ..., replicas: _Optional[int] = ..., streams: _Optional[int] = ..., trimmed: _Optional[int] = ..., sealed: _Optional[bool] = ..., chain: _Optional[_Iterable[_Union[SegmentInfo, _Mapping]]] = ..., version: _Optional[int] = ..., created_us: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeAddress, _Mapping]]] = ..., removing: _Optional[bool] = ..., next_stream: _Optional[int] = ..., ack: _Optional[int] = ..., roll_bytes: _Optional[int] = ..., roll_ms: _Optional[int] = ..., unit: _Optional[int] = ..., retain_ms: _Optional[int] = ..., retain_bytes: _Optional[int] = ..., retain_archived: _Optional[bool] = ..., journal: _Optional[bool] = ..., pinned: _Optional[_Iterable[str]] = ..., replication: _Optional[str] = ..., archive: _Optional[_Union[ArchiveInfo, _Mapping]] = ..., archived: _Optional[int] = ...) -> None: ...

class ArchiveInfo(_message.Message):
    __slots__ = ("location", "metadata", "endpoint", "region", "first")
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    location: str
    metadata: str
    endpoint: str
    region: str
    first: int
    def __init__(self, location: _Optional[str] = ..., metadata: _Optional[str] = ..., endpoint: _Optional[str] = ..., region: _Optional[str] = ..., first: _Optional[int] = ...) -> None: ...

class NodeInfo(_message.Message):
    __slots__ = ("id", "incarnation", "address", "zone", "volumes", "connected", "last_seen_us", "replicas", "troubles", "boot", "draining", "open_streams", "ended_streams", "scrub")
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_US_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TROUBLES_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    OPEN_STREAMS_FIELD_NUMBER: _ClassVar[int]
    ENDED_STREAMS_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    id: int
    incarnation: str
    address: str
    zone: str
    volumes: _containers.RepeatedCompositeFieldContainer[Volume]
    connected: bool
    last_seen_us: int
    replicas: int
    troubles: _containers.RepeatedScalarFieldContainer[str]
    boot: int
    draining: bool
    open_streams: int
    ended_streams: int
    scrub: ScrubStatus
    def __init__(self, id: _Optional[int] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., zone: _Optional[str] = ..., volumes: _Optional[_Iterable[_Union[Volume, _Mapping]]] = ..., connected: _Optional[bool] = ..., last_seen_us: _Optional[int] = ..., replicas: _Optional[int] = ..., troubles: _Optional[_Iterable[str]] = ..., boot: _Optional[int] = ..., draining: _Optional[bool] = ..., open_streams: _Optional[int] = ..., ended_streams: _Optional[int] = ..., scrub: _Optional[_Union[ScrubStatus, _Mapping]] = ...) -> None: ...

class Cut(_message.Message):
    __slots__ = ("log", "segment", "previous_high_watermark", "high_watermark", "ranges")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    log: int
    segment: int
    previous_high_watermark: int
    high_watermark: int
    ranges: _containers.RepeatedCompositeFieldContainer[CutRange]
    def __init__(self, log: _Optional[int] = ..., segment: _Optional[int] = ..., previous_high_watermark: _Optional[int] = ..., high_watermark: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[CutRange, _Mapping]]] = ...) -> None: ...

class CutRange(_message.Message):
    __slots__ = ("stream", "slot", "glsn", "count")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GLSN_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    stream: int
    slot: int
    glsn: int
    count: int
    def __init__(self, stream: _Optional[int] = ..., slot: _Optional[int] = ..., glsn: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class CutBase(_message.Message):
    __slots__ = ("high_watermark", "committed")
    class CommittedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    high_watermark: int
    committed: _containers.ScalarMap[int, int]
    def __init__(self, high_watermark: _Optional[int] = ..., committed: _Optional[_Mapping[int, int]] = ...) -> None: ...

class CreateLogRequest(_message.Message):
    __slots__ = ("name", "ordering", "replicas", "streams", "ack", "roll_bytes", "roll_ms", "unit", "retain_ms", "retain_bytes", "retain_archived", "journal", "pin", "replication")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ROLL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROLL_MS_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    RETAIN_MS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    ordering: str
    replicas: int
    streams: int
    ack: int
    roll_bytes: int
    roll_ms: int
    unit: int
    retain_ms: int
    retain_bytes: int
    retain_archived: bool
    journal: bool
    pin: _containers.RepeatedScalarFieldContainer[str]
    replication: str
    def __init__(self, name: _Optional[str] = ..., ordering: _Optional[str] = ..., replicas: _Optional[int] = ..., streams: _Optional[int] = ..., ack: _Optional[int] = ..., roll_bytes: _Optional[int] = ..., roll_ms: _Optional[int] = ..., unit: _Optional[int] = ..., retain_ms: _Optional[int] = ..., retain_bytes: _Optional[int] = ..., retain_archived: _Optional[bool] = ..., journal: _Optional[bool] = ..., pin: _Optional[_Iterable[str]] = ..., replication: _Optional[str] = ...) -> None: ...

class ReconfigureLogRequest(_message.Message):
    __slots__ = ("log", "ordering", "replicas", "streams", "ack", "members", "roll_bytes", "roll_ms", "roll", "epoch", "unit", "retain_ms", "retain_bytes", "retain_archived", "pin", "unpin", "replication", "journal")
    LOG_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ROLL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROLL_MS_FIELD_NUMBER: _ClassVar[int]
    ROLL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    RETAIN_MS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    UNPIN_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    log: int
    ordering: str
    replicas: int
    streams: int
    ack: int
    members: _containers.RepeatedScalarFieldContainer[int]
    roll_bytes: int
    roll_ms: int
    roll: bool
    epoch: int
    unit: int
    retain_ms: int
    retain_bytes: int
    retain_archived: bool
    pin: _containers.RepeatedScalarFieldContainer[str]
    unpin: _containers.RepeatedScalarFieldContainer[str]
    replication: str
    journal: bool
    def __init__(self, log: _Optional[int] = ..., ordering: _Optional[str] = ..., replicas: _Optional[int] = ..., streams: _Optional[int] = ..., ack: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., roll_bytes: _Optional[int] = ..., roll_ms: _Optional[int] = ..., roll: _Optional[bool] = ..., epoch: _Optional[int] = ..., unit: _Optional[int] = ..., retain_ms: _Optional[int] = ..., retain_bytes: _Optional[int] = ..., retain_archived: _Optional[bool] = ..., pin: _Optional[_Iterable[str]] = ..., unpin: _Optional[_Iterable[str]] = ..., replication: _Optional[str] = ..., journal: _Optional[bool] = ...) -> None: ...

class LeadLogRequest(_message.Message):
    __slots__ = ("log", "leader", "act")
    LOG_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    log: int
    leader: JournalLeader
    act: Candidature
    def __init__(self, log: _Optional[int] = ..., leader: _Optional[_Union[JournalLeader, _Mapping]] = ..., act: _Optional[_Union[Candidature, str]] = ...) -> None: ...

class LeadLogReply(_message.Message):
    __slots__ = ("elected", "log")
    ELECTED_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    elected: bool
    log: LogInfo
    def __init__(self, elected: _Optional[bool] = ..., log: _Optional[_Union[LogInfo, _Mapping]] = ...) -> None: ...

class GetLogRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListLogsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListLogsReply(_message.Message):
    __slots__ = ("logs",)
    LOGS_FIELD_NUMBER: _ClassVar[int]
    logs: _containers.RepeatedCompositeFieldContainer[LogInfo]
    def __init__(self, logs: _Optional[_Iterable[_Union[LogInfo, _Mapping]]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesReply(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node_id", "undo")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    undo: bool
    def __init__(self, node_id: _Optional[int] = ..., undo: _Optional[bool] = ...) -> None: ...

class CheckNodeRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    def __init__(self, node_id: _Optional[int] = ...) -> None: ...

class StreamCheck(_message.Message):
    __slots__ = ("log", "segment", "stream", "open", "primary", "stops", "copies_left", "copies_wanted", "empty", "stored_bytes")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    STOPS_FIELD_NUMBER: _ClassVar[int]
    COPIES_LEFT_FIELD_NUMBER: _ClassVar[int]
    COPIES_WANTED_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    log: str
    segment: int
    stream: int
    open: bool
    primary: bool
    stops: bool
    copies_left: int
    copies_wanted: int
    empty: bool
    stored_bytes: int
    def __init__(self, log: _Optional[str] = ..., segment: _Optional[int] = ..., stream: _Optional[int] = ..., open: _Optional[bool] = ..., primary: _Optional[bool] = ..., stops: _Optional[bool] = ..., copies_left: _Optional[int] = ..., copies_wanted: _Optional[int] = ..., empty: _Optional[bool] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class CheckNodeReply(_message.Message):
    __slots__ = ("node", "streams", "no_replacement", "pause_ms")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    NO_REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    node: NodeInfo
    streams: _containers.RepeatedCompositeFieldContainer[StreamCheck]
    no_replacement: str
    pause_ms: int
    def __init__(self, node: _Optional[_Union[NodeInfo, _Mapping]] = ..., streams: _Optional[_Iterable[_Union[StreamCheck, _Mapping]]] = ..., no_replacement: _Optional[str] = ..., pause_ms: _Optional[int] = ...) -> None: ...

class RemoveNodeRequest(_message.Message):
    __slots__ = ("node_id", "force")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    force: bool
    def __init__(self, node_id: _Optional[int] = ..., force: _Optional[bool] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("log",)
    LOG_FIELD_NUMBER: _ClassVar[int]
    log: int
    def __init__(self, log: _Optional[int] = ...) -> None: ...

class TailReply(_message.Message):
    __slots__ = ("tail", "trimmed", "segment", "sealed")
    TAIL_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    tail: int
    trimmed: int
    segment: int
    sealed: bool
    def __init__(self, tail: _Optional[int] = ..., trimmed: _Optional[int] = ..., segment: _Optional[int] = ..., sealed: _Optional[bool] = ...) -> None: ...

class TrimLogRequest(_message.Message):
    __slots__ = ("log", "upto")
    LOG_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    log: int
    upto: int
    def __init__(self, log: _Optional[int] = ..., upto: _Optional[int] = ...) -> None: ...

class SealLogRequest(_message.Message):
    __slots__ = ("log",)
    LOG_FIELD_NUMBER: _ClassVar[int]
    log: int
    def __init__(self, log: _Optional[int] = ...) -> None: ...

class RecordArchiveRequest(_message.Message):
    __slots__ = ("log", "archive", "expected", "archived")
    LOG_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    log: int
    archive: ArchiveInfo
    expected: int
    archived: int
    def __init__(self, log: _Optional[int] = ..., archive: _Optional[_Union[ArchiveInfo, _Mapping]] = ..., expected: _Optional[int] = ..., archived: _Optional[int] = ...) -> None: ...

class RemoveLogRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamStatus(_message.Message):
    __slots__ = ("log", "segment", "stream", "committed", "replicas", "trouble", "thin")
    LOG_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    THIN_FIELD_NUMBER: _ClassVar[int]
    log: int
    segment: int
    stream: int
    committed: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaReport]
    trouble: str
    thin: bool
    def __init__(self, log: _Optional[int] = ..., segment: _Optional[int] = ..., stream: _Optional[int] = ..., committed: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaReport, _Mapping]]] = ..., trouble: _Optional[str] = ..., thin: _Optional[bool] = ...) -> None: ...

class ReplicaReport(_message.Message):
    __slots__ = ("node", "reported", "contiguous", "state", "stored_bytes", "damage")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    CONTIGUOUS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    node: int
    reported: bool
    contiguous: int
    state: ReplicaState
    stored_bytes: int
    damage: _containers.RepeatedCompositeFieldContainer[Damage]
    def __init__(self, node: _Optional[int] = ..., reported: _Optional[bool] = ..., contiguous: _Optional[int] = ..., state: _Optional[_Union[ReplicaState, str]] = ..., stored_bytes: _Optional[int] = ..., damage: _Optional[_Iterable[_Union[Damage, _Mapping]]] = ...) -> None: ...

class LogStatus(_message.Message):
    __slots__ = ("log", "tail", "kept_cuts", "streams", "trouble")
    LOG_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    KEPT_CUTS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    log: LogInfo
    tail: int
    kept_cuts: int
    streams: _containers.RepeatedCompositeFieldContainer[StreamStatus]
    trouble: str
    def __init__(self, log: _Optional[_Union[LogInfo, _Mapping]] = ..., tail: _Optional[int] = ..., kept_cuts: _Optional[int] = ..., streams: _Optional[_Iterable[_Union[StreamStatus, _Mapping]]] = ..., trouble: _Optional[str] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("cluster_id", "nodes", "logs", "cuts", "role", "started_us")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    logs: _containers.RepeatedCompositeFieldContainer[LogStatus]
    cuts: int
    role: str
    started_us: int
    def __init__(self, cluster_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ..., logs: _Optional[_Iterable[_Union[LogStatus, _Mapping]]] = ..., cuts: _Optional[int] = ..., role: _Optional[str] = ..., started_us: _Optional[int] = ...) -> None: ...
