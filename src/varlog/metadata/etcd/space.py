"""How much of the past etcd is to keep: whatever we write stays in it, deleted or not, until it is compacted away.

A count of revisions alone is no limit: one may be a hundred bytes or more than a megabyte, and an etcd that is full
(2 GiB unless it was told otherwise) takes nothing more until somebody compacts and defragments it by hand.
"""

KEPT_REVISIONS = 100_000
"""How many are left when old ones are compacted away: what a watcher may miss without reading all anew, and more than
etcd makes in `SESSION_RENEWAL_S`, from which on a watch may begin."""
KEPT_BYTES = 256 << 20
"""What may have been written in them, if that makes fewer. In etcd it takes up to twice as much."""
COMPACT_EVERY = 10_000
COMPACT_BYTES = 16 << 20
"""Revisions, or bytes written, between two compactions."""


class Past:
    """What one store has written since it last had old revisions compacted away."""

    def __init__(self) -> None:
        self._since = 0
        """The revision of that."""
        self._bytes = 0

    def grown(self, revision: int, size: int) -> int:
        """So many bytes were written: the revision up to which all may go now; 0: it is not time for it.

        How many revisions make `KEPT_BYTES` is told by those since the last time: what was written before, by this
        process or by one that led before it, is taken to be alike.
        """
        self._bytes += size
        made = max(1, revision - self._since)  # commits that overlap come in any order
        if made <= COMPACT_EVERY and self._bytes <= COMPACT_BYTES:
            return 0
        kept = min(KEPT_REVISIONS, KEPT_BYTES * made // self._bytes)
        self._since, self._bytes = revision, 0
        return max(0, revision - kept)
