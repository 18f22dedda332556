"""The public names are a list; changing it is a decision."""

import subprocess
import sys

import varlog

LISTED = """
Ack AlreadyExists ArchiveDescription Cluster ClusterStatus Conflict ConnectionLost Corrupt DamagedRange Entry Fenced
InvalidArgument Journal JournalLeader Junk Log LogDescription LogStatus NoSpace NodeCheck NodeDescription NotFound
NotWritten OutcomeUnknown Overloaded Producer ProducerToken ReadBatch ReplicaFailed ReplicaStatus ScrubDescription
Sealed SegmentDescription StreamCheck StreamDescription StreamStatus Subscription Timeout TooLarge Trimmed
Unauthorized Unavailable Unsupported VarlogError VolumeDescription __version__ connect local_cluster sync
tune_process
"""
NAMES = LISTED.split()

METHODS = {
    "Cluster": "check_node close create_log drain_node journal log logs nodes remove_log remove_node scrub_node status",
    "Log": "append append_batch capabilities find info name producer read reconfigure record_archive retry "
    "seal subscribe tail trim",
    "Journal": "lead",
    "JournalLeader": "append append_batch epoch",
    "Producer": "abort close flush next_sequence open send send_batch",
    "Subscription": "aclose batches runs",
    "ReadBatch": "count entries first headers junk keys last nbytes payloads slot stream time time_us to_arrow",
}


def public(kind: type) -> list[str]:
    return sorted(name for name in vars(kind) if not name.startswith("_"))


def test_the_list_of_names() -> None:
    assert sorted(varlog.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(varlog, name) is not None
    assert set(NAMES) <= set(dir(varlog))


def test_the_methods_of_the_classes() -> None:
    for name, methods in METHODS.items():
        assert public(getattr(varlog, name)) == sorted(methods.split()), name
    assert varlog.Ack._fields == ("first", "last", "stream")
    assert varlog.Entry._fields == ("glsn", "stream", "slot", "payload", "key", "headers", "time")


def test_the_sync_twin_has_the_same_names() -> None:
    for name in ("Cluster", "Journal", "JournalLeader", "Log", "Producer"):
        assert public(getattr(varlog.sync, name)) == public(getattr(varlog, name)), name
    assert public(varlog.sync.Subscription) == ["batches", "close"]


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, varlog; print([name for name in sys.modules if name.startswith(('varlog.', 'google'))])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
