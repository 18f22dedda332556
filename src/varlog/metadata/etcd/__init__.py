"""`MetadataStore` on etcd, over its v3 protocol: what several repositories share. Needs the extra `varlog[etcd]`.

    store       the port: get, scan, commit, watch, elect, fenced
    markers     how a commit learns its outcome when the answer got lost
    watch       changes, through breaks and compaction
    leases      keys that go with their owner
    messages    transactions as etcd's messages, and its limits
    reads       ranges in pages of one revision
    space       how much of the past etcd is to keep
    trouble     telling people that etcd cannot be used
    connection  the only file that calls gRPC: members, deadlines, streams
    errors      what etcd's errors mean

What holds:

- A version is etcd's mod revision: it grows over deletions, and one number orders all changes of the store.
- Reads are linearizable. A scan is of one revision, in however many pages.
- A commit is one transaction of etcd. It ends with True, False, or an error that says whether it may have been
  applied; it is never applied twice, and never after an error that says it was not.
- Commits that overlap are sent at once on one connection, and etcd applies them in any order (it handles each in a
  goroutine of its own). Who needs an order writes down what each continues, as the repository's cuts do.
- A commit has at most 1.5 MiB, 127 conditions and about 4,000 changes (a range deleted counts as one): beyond,
  `TooLarge`. It cannot be split, for it is all or nothing.
- Users and passwords of etcd are not supported; certificates are.
"""

from varlog.base.errors import Unsupported

try:
    import grpc  # noqa: F401 - to say what is missing, before anything else does
except ImportError as missing:
    raise Unsupported("metadata on etcd needs grpcio; install it with: pip install 'varlog[etcd]'") from missing

from varlog.metadata.etcd.config import EtcdConfig
from varlog.metadata.etcd.store import EtcdStore

__all__ = ["EtcdConfig", "EtcdStore"]
