"""What simulated clients record of what they ask for."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn

from varlog.base.errors import OutcomeUnknown
from varlog.base.ids import Glsn, ProducerToken, StreamId
from varlog.client import Ack
from varlog.sim.checkers import check_history
from varlog.sim.history import Append
from varlog.sim.loop import make_loop
from varlog.sim.record import Recorder
from varlog.sim.trace import Trace
from varlog.sim.workload import Worker


class ForgetfulLog:
    """Answers no append, and gives who asks again a position of its own choice."""

    async def append(self, payload: bytes, **_: Any) -> NoReturn:
        error = OutcomeUnknown("no answer")
        error.token = ProducerToken(b"p" * 16, 0, StreamId(1))
        raise error

    append_batch = append

    async def retry(self, token: ProducerToken, **_: Any) -> Ack:
        return Ack(Glsn(9), Glsn(9), StreamId(1))


def test_a_retry_may_get_the_expected_position_only() -> None:
    recorder = Recorder(make_loop(), Trace())
    shape = SimpleNamespace(unit=1, batch_entries=1, payload_bytes=0, journal=False, conditions=False)
    plan = SimpleNamespace(shape=shape, recorder=recorder, known={"l": 3})
    clock = SimpleNamespace(wall_us=lambda: 1)
    process = SimpleNamespace(name="c#1", alive=True, clock=clock, host=SimpleNamespace(seed="1", name="c"))
    worker = Worker(plan, process)  # type: ignore[arg-type]
    worker.random = Random(1)
    while not [each for each in recorder.history.of(Append, "l") if each.outcome == "ack" and each.expect]:
        plan.known["l"] = 3
        asyncio.run(worker._append("l", ForgetfulLog()))  # type: ignore[arg-type]
    found = [each for each in check_history(recorder.history) if each.invariant == "conditional"]
    assert found
    assert "but 4 was expected" in found[0].evidence
