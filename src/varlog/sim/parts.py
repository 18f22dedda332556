"""What can be read of a log that cannot be read as a whole: wherever a copy is whole, all of it."""

from typing import NamedTuple

from varlog.base.errors import VarlogError
from varlog.client import Log
from varlog.runtime.timeout import within
from varlog.sim.checkers import Violation
from varlog.sim.excuses import Excuses
from varlog.sim.history import Subscription
from varlog.sim.host import Process
from varlog.sim.record import Recorder
from varlog.wire.proto import varlog_pb2 as pb


class Part(NamedTuple):
    """Positions `[first, stop)` of one stream, or of all (0)."""

    first: int
    stop: int
    stream: int = 0


def whole_parts(info: pb.LogInfo, excuses: Excuses) -> list[Part]:
    """Segments that have ended, where every stream has a copy; of others, the streams that have ended and have one."""
    parts: list[Part] = []
    for segment in info.chain:
        ended = [stream for stream in segment.streams if stream.state == pb.STREAM_FINALIZED]
        whole = [stream for stream in ended if excuses.is_whole(info, stream)]
        if segment.end and len(whole) == len(segment.streams):
            parts.append(Part(segment.base, segment.end))
        else:
            parts += [Part(stream.from_glsn, stream.until_glsn, stream.id) for stream in whole]
    trimmed = int(info.trimmed)
    kept = [part._replace(first=max(part.first, trimmed + 1)) for part in parts]
    return [part for part in kept if part.first < part.stop]


async def read_part(admin: Process, log: Log, part: Part, recorder: Recorder, seconds: float) -> list[Violation]:
    """As anybody would; what it gives is judged as that of every subscriber. What is wrong, if it does not end well."""
    record = Subscription(log=log.name, first=part.first, stop=part.stop, stream=part.stream)
    subscription = recorder.begin(admin, record)

    async def read() -> None:
        async for entry in log.subscribe(start=part.first, stop=part.stop, stream=part.stream or None):
            recorder.deliver(admin, subscription, entry)

    try:
        await within(admin.clock, seconds, read())
    except VarlogError as error:
        recorder.end(admin, subscription, error)
        where = f"stream {part.stream}" if part.stream else "a segment"
        evidence = f"{where} from {part.first} to {part.stop} has whole copies, and cannot be read: {error!r}"
        return [Violation("I14", log.name, evidence)]
    recorder.end(admin, subscription)
    return []
