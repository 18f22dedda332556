"""Grants the positions of one segment under the `sequencer` ordering: a counter, on the node of its first stream.

It lives as long as its node and never continues a segment after that was started again: what it had granted is known
to nobody then, so a new sequencer is a new segment, whose counter begins where the old one was sealed. It need
not be told that it is deposed: positions it grants after that cannot be written, as members are sealed.
"""

from collections import OrderedDict

from varlog.base import limits
from varlog.base.errors import Conflict, Fenced, InvalidArgument, Sealed, Unavailable
from varlog.base.ids import Glsn
from varlog.core.ordering.sequencer import Stripes
from varlog.node.replica import Replica
from varlog.wire.proto import varlog_pb2 as pb

REMEMBERED = 1024
"""Of the batches that were granted the position they expected the last so many are known. The answer to one may have
been lost: asked again, it must not hear that the position is taken, by itself."""
CLAIM_BYTES = 16


class Sequencer:
    """Of one segment."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._stripes: Stripes | None = None
        self._next = Glsn(0)
        self._granted: OrderedDict[tuple[bytes, int, int, int], tuple[Glsn, int]] = OrderedDict()
        """By producer and sequence, and what was asked for: the next with that number may want another place."""
        self._claims: OrderedDict[bytes, bytes] = OrderedDict()
        """Who has the name of a producer. Of one that is forgotten nobody is granted anything until it is claimed."""

    def begin(self, base: Glsn) -> None:
        """The segment is part of the log, and begins here."""
        if self._stripes is None:
            spec = self._replica.spec
            self._stripes = Stripes(base, spec.unit, spec.streams)
            self._next = base
            self._replica.leads = pb.LEADS

    def ended(self) -> None:
        """Its segment has: nothing is granted, and nobody's name counts any more."""
        self._granted.clear()
        self._claims.clear()

    @property
    def granted(self) -> Glsn:
        """One past the last position that was granted."""
        return self._next

    def claim(self, producer: bytes, claim: bytes) -> bytes:
        """The highest claim of a producer's name so far, this one included: it has the name."""
        self._stripes_if_open()
        if len(claim) != CLAIM_BYTES:
            raise InvalidArgument(f"a claim has {CLAIM_BYTES} bytes, not {len(claim)}")
        held = self._claims[producer] = max(claim, self._claims.pop(producer, b""))
        if len(self._claims) > limits.PRODUCERS_PER_STREAM:
            self._claims.popitem(last=False)
        return held

    def check_claim(self, producer: bytes, claim: bytes) -> None:
        """Raises `Fenced` unless it has the name."""
        self._stripes_if_open()
        if self._claims.get(producer) != claim:
            raise Fenced("another producer of this name was opened since: open it again", self._replica.id.segment)
        self._claims.move_to_end(producer)  # others are forgotten before one that sends

    def grant_expected(self, count: int, expect: int, producer: bytes, sequence: int) -> tuple[Glsn, int]:
        """The same for a batch that may get one position only; as often as it asks."""
        batch = (producer, sequence, count, expect)
        granted = self._granted.get(batch)
        if granted is None or self._replica.log.sealed:
            granted = self._granted[batch] = self.grant(count, expect)
            if len(self._granted) > REMEMBERED:
                self._granted.popitem(last=False)
        return granted

    def grant(self, count: int, expect: int | None) -> tuple[Glsn, int]:
        """Positions for a batch: the first, and how many before it are left to the caller to fill.

        The first is 0 if the batch was expected where it does not fit before the edge of a stripe: it is granted
        nothing, and what is left there is for the caller to fill. Where the log ends then, it fits.
        """
        stripes = self._stripes_if_open()
        if not 0 < count <= limits.BATCH_ENTRIES:
            raise InvalidArgument(f"a batch has 1 to {limits.BATCH_ENTRIES} entries, not {count}")
        room = stripes.room(self._next)
        if room is not None and count > stripes.unit:
            raise InvalidArgument(
                f"a batch of {count} entries is larger than a stripe, which has {stripes.unit}: "
                "send fewer at once, or give the log a larger unit"
            )
        skipped = room if room is not None and room < count else 0
        first = Glsn(self._next + skipped)
        if skipped and expect == self._next:
            self._next = first
            return Glsn(0), skipped
        if expect not in (None, first):
            raise Conflict(f"position {expect} was expected, the next one is {first}", first - 1)
        self._next = Glsn(first + count)
        return first, skipped

    def _stripes_if_open(self) -> Stripes:
        if self._stripes is None:
            raise Unavailable(f"where the segment of {self._replica.id} begins is not known yet")
        if self._replica.log.sealed:
            raise Sealed("the segment takes no more", self._next)
        return self._stripes
