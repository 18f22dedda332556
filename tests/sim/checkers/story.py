"""Short histories for the tests of checkers: operations in the order they are written, unless told otherwise."""

from typing import Any

from varlog.sim.checkers import CHECKERS
from varlog.sim.checkers.base import split
from varlog.sim.history import (
    Append,
    Chain,
    Expectation,
    FinalLog,
    Find,
    History,
    Opening,
    Read,
    Record,
    Replica,
    Seal,
    Subscription,
    Tail,
    Trim,
)


class Story:
    """Each call is one operation that begins after, and ends before, the next; `during` begins earlier."""

    def __init__(self) -> None:
        self.history = History()
        self.now = 0

    def _times(self, during: int | None) -> dict[str, Any]:
        start = during if during is not None else self._tick()
        end = self._tick()
        return {"log": "l", "client": "c", "start": start, "end": end, "start_time": start, "end_time": end}

    def _tick(self) -> int:
        self.now += 10
        return self.now

    def ack(self, payloads: str, first: int, *, stream: int = 1, during: int | None = None) -> Append:
        last = first + len(payloads) - 1
        return self._append(payloads, during, outcome="ack", first=first, last=last, stream=stream)

    def refused(self, payloads: str, error: str = "Overloaded") -> Append:
        return self._append(payloads, None, outcome="refused", error=error)

    def unknown(self, payloads: str) -> Append:
        return self._append(payloads, None, outcome="unknown", error="OutcomeUnknown")

    def _append(self, payloads: str, during: int | None, **more: Any) -> Append:
        return self.history.add(Append(payloads=list(payloads), **more, **self._times(during)))

    def read(self, glsn: int, payload: str, *, during: int | None = None) -> Read:
        return self.history.add(Read(glsn=glsn, payload=payload, **self._times(during)))

    def read_fails(self, glsn: int, error: str, value: int = 0) -> Read:
        return self.history.add(Read(glsn=glsn, error=error, value=value, **self._times(None)))

    def tail(self, tail: int, *, during: int | None = None) -> Tail:
        return self.history.add(Tail(tail=tail, **self._times(during)))

    def trim(self, upto: int, *, done: bool = True, archived: bool = False) -> Trim:
        return self.history.add(Trim(upto=upto, done=done, archived=archived, **self._times(None)))

    def seal(self, position: int) -> Seal:
        return self.history.add(Seal(position=position, **self._times(None)))

    def refused_seal(self, error: str = "NoSpace") -> Seal:
        return self.history.add(Seal(refused=True, error=error, **self._times(None)))

    def chain(self, *ends: int, changed: bool = True, base: int = 1) -> Chain:
        """One segment for each end, 0 for one that is open; each with a stream of its own, of the same number."""
        segments = [[epoch, ends[epoch - 2] if epoch > 1 else base, end] for epoch, end in enumerate(ends, 1)]
        streams = [[epoch, epoch, end - start if end else -1] for epoch, start, end in segments]
        return self.history.add(Chain(changed=changed, segments=segments, streams=streams, **self._times(None)))

    def find(self, time_us: int, glsn: int) -> Find:
        return self.history.add(Find(time_us=time_us, glsn=glsn, **self._times(None)))

    def opening(self, payloads: str) -> Opening:
        return self.history.add(Opening(payloads=list(payloads), **self._times(None)))

    def subscription(self, first: int, glsns: list[int], payloads: str, **more: Any) -> Subscription:
        times = self._times(None)
        orders = [times["start"] + 1 + index for index in range(len(glsns))]
        return self.history.add(
            Subscription(first=first, glsns=glsns, payloads=list(payloads), orders=orders, **(times | more))
        )

    def final(
        self,
        payloads: str,
        *,
        trimmed: int = 0,
        tail: int | None = None,
        glsns: list[int] | None = None,
        streams: list[int] | None = None,
        times: list[int] | None = None,
        first_slot: int = 0,
        sealed: bool | None = None,
    ) -> FinalLog:
        if sealed is None:
            sealed = any(seal.position is not None for seal in self.history.of(Seal, "l"))
        glsns = glsns or list(range(trimmed + 1, trimmed + 1 + len(payloads)))
        return self.history.add(
            FinalLog(
                log="l",
                trimmed=trimmed,
                tail=tail if tail is not None else (glsns[-1] if glsns else trimmed),
                sealed=sealed,
                glsns=glsns,
                payloads=list(payloads),
                streams=streams or [1] * len(payloads),
                slots=list(range(first_slot, first_slot + len(payloads))),
                times_us=times or [0] * len(payloads),
            )
        )

    def replica(self, payloads: str, *, node: int = 1, committed: int | None = None, **more: Any) -> Replica:
        count = len(payloads) if committed is None else committed
        content: dict[str, Any] = {
            "stream": 1,
            "position": node - 1,
            "durable": len(payloads),
            "committed": count,
            "glsns": list(range(1, count + 1)),
        }
        return self.history.add(Replica(log="l", node=node, payloads=list(payloads), **(content | more)))

    def expect(self, *, stream: int = 1, bound: float = 100.0, excuse: str = "") -> Expectation:
        healed = self._tick()
        return self.history.add(
            Expectation(log="l", stream=stream, healed=healed, healed_time=healed, bound=bound, excuse=excuse)
        )

    def violations(self, invariant: str) -> list[str]:
        """What the checker of that invariant says, and that it says so after a trip through the file format."""
        found = self._check(self.history, invariant)
        assert self._check(History.load(self.history.dump()), invariant) == found
        return found

    def _check(self, history: History, invariant: str) -> list[str]:
        return [violation.evidence for log in split(history) for violation in CHECKERS[invariant](log)]


def records(story: Story) -> list[Record]:
    return story.history.records
