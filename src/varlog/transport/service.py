"""The serving half of a connection: what the other end asked for and this end works on."""

import asyncio
from math import inf
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError, Message

from varlog.base.errors import InvalidArgument, Overloaded, Unavailable, Unsupported, VarlogError
from varlog.base.invariant import InvariantBroken
from varlog.transport import limits
from varlog.transport.errors import internal_error
from varlog.transport.request import Request
from varlog.wire.frame import CREDIT, FRAME_HEADER_BYTES, PROBE, Frame
from varlog.wire.methods import MESSAGES, PUSHES, Method

if TYPE_CHECKING:
    from varlog.transport.peer import Handlers, Peer

_METHODS: dict[int, Method] = {int(method): method for method in Method}
_QUESTIONS: dict[int, type[Message]] = {int(method): question for method, (question, _) in MESSAGES.items()}
_PUSHES: dict[int, type[Message]] = {int(method): message for method, message in PUSHES.items()}
_NAMES: dict[int, str] = {int(method): method.name for method in Method}


class Service:
    """Requests by id; one that its handler answers at once is never listed. What is pushed has no id.

    What is being handled is counted, until it is answered or, of a stream, until its first part: a
    stream may live for ever, and is paid for by credit.
    """

    def __init__(self, peer: "Peer", handlers: "Handlers") -> None:
        self.peer = peer
        self._clock = peer._clock
        self._handlers = handlers
        self._requests: dict[int, Request] = {}
        self._running: dict[asyncio.Future[None], Request] = {}
        """Async handlers."""
        self._refused: dict[int, float] = {}
        """Requests that were answered with an error lately, and when."""
        self._streams = 0
        self._handling = 0
        self._handling_bytes = 0
        self.overloaded = False

    # ------------------------------------------------------------ what comes in

    def receive_request(self, frame: Frame) -> None:
        if frame.request_id in self._requests:
            return  # the same again, and it is being handled
        if frame.request_id in self._refused and self._is_refused(frame.request_id):
            return  # the same again: its caller may rely on the error, so it must not be taken after all
        request = self._handle(frame, _QUESTIONS)
        if request is not None and not request.done:
            self._list(request)

    def receive_notify(self, frame: Frame) -> None:
        request = self._handle(frame, _PUSHES)
        if request is not None and request.task is not None:
            self._count(request)

    def receive_credit(self, frame: Frame) -> None:
        request = self._requests.get(frame.request_id)
        if request is None or len(frame.header) != CREDIT.size:
            if frame.flags & PROBE:
                self.peer._answer_error(frame.method, frame.request_id, Unavailable("there is no such stream"))
            return
        request.credit(CREDIT.unpack(frame.header)[0], frame.timeout_ms, bool(frame.flags & PROBE))

    def receive_cancel(self, frame: Frame) -> None:
        request = self._requests.get(frame.request_id)
        if request is not None:
            request.cancel()

    # ------------------------------------------------------------ handlers

    def _handle(self, frame: Frame, kinds: dict[int, type[Message]]) -> Request | None:
        """Have the frame's request handled; None when it could not even be understood."""
        method = frame.method
        kind = kinds.get(method)
        handler = self._handlers.get(method)  # type: ignore[call-overload]  # a Method is its number
        if kind is None or handler is None:
            return self._refuse(frame, Unsupported(f"{_NAMES.get(method) or f'method {method}'} is not served here"))
        if frame.flags and self._streams >= limits.STREAMS_PER_CONNECTION:
            return self._refuse(frame, Overloaded(f"{self._streams} streams are open on this connection", 1000))
        try:
            message = kind.FromString(frame.header)
        except DecodeError:
            return self._refuse(frame, InvalidArgument(f"the message of {_NAMES[method]} cannot be read"))
        request = Request(self, _METHODS[method], message, frame)
        try:
            work = handler(request)
        except VarlogError as error:
            self._failed(request, error)
        except Exception as defect:  # noqa: BLE001 - sent to the caller and reported, see _broke
            self._broke(request, defect)
        else:
            if work is not None:
                request.task = asyncio.ensure_future(work)
                request.task.add_done_callback(self._ran)
                self._running[request.task] = request
        return request

    def _refuse(self, frame: Frame, error: VarlogError) -> Request | None:
        self.peer._answer_error(frame.method, frame.request_id, error)
        return None

    def _ran(self, task: "asyncio.Future[None]") -> None:
        """An async handler has ended."""
        request = self._running.pop(task)
        if request.pushed and request.listed:
            self.finished(request)
        if task.cancelled():
            if not request.done:
                request.fail(Unavailable("the work on this request was given up"))
        elif (error := task.exception()) is not None:
            if isinstance(error, VarlogError):
                self._failed(request, error)
            else:
                self._broke(request, error)
        elif request.streamed and not request.done:
            self._broke(request, InvariantBroken(f"the stream of {request.method.name} was left without an end"))

    def _failed(self, request: Request, error: VarlogError) -> None:
        if request.pushed:
            self.peer._on_defect(error)
        elif not request.done:
            request.fail(error)
        elif not request.cancelled:
            self.peer._on_defect(error)

    def _broke(self, request: Request, defect: BaseException) -> None:
        self.peer._on_defect(defect)
        if not request.done:
            request.fail(internal_error(defect))

    def refused(self, request: Request) -> None:
        """It was answered with an error."""
        refused = self._refused
        refused.pop(request.request_id, None)
        refused[request.request_id] = self._clock.now()
        if len(refused) > limits.REFUSED_REQUESTS:
            del refused[next(iter(refused))]

    def _is_refused(self, request_id: int) -> bool:
        """Ids begin again some day: one that was refused long ago is now another request's."""
        return self._clock.now() - self._refused[request_id] < limits.REFUSED_SECONDS

    # ------------------------------------------------------------ what is being handled

    def _list(self, request: Request) -> None:
        """The answer will come later."""
        if self.peer.closed_error is not None:
            request.cancel()
            return
        now = self._clock.now()
        request.deadline = deadline = now + request._frame.timeout_ms / 1000
        self._requests[request.request_id] = request
        self._count(request)
        if deadline < self.peer._deadlines.at:
            self.peer._deadlines.announce(deadline, now)

    def _count(self, request: Request) -> None:
        request.listed = True
        request.counted_bytes = size = FRAME_HEADER_BYTES + len(request._frame.header) + len(request.body)
        self._handling += 1
        self._handling_bytes += size
        self._streams += request.streamed
        if self._handling >= limits.REQUESTS_IN_HANDLING or self._handling_bytes >= limits.BYTES_IN_HANDLING:
            self.overloaded = True
            self.peer._pause_or_resume()

    def _release(self, request: Request) -> None:
        self._handling -= 1
        self._handling_bytes -= request.counted_bytes
        request.counted_bytes = 0
        if (
            self.overloaded
            and self._handling <= limits.REQUESTS_IN_HANDLING // 2
            and self._handling_bytes <= limits.BYTES_IN_HANDLING // 2
        ):
            self.overloaded = False
            self.peer._pause_or_resume()

    def streaming(self, request: Request) -> None:
        """The first part of a stream was sent: its deadline is met."""
        request.deadline = inf
        self._release(request)

    def finished(self, request: Request) -> None:
        """What was counted is answered or given up."""
        request.listed = False
        if not request.pushed:
            del self._requests[request.request_id]
        if request.counted_bytes:
            self._release(request)
        self._streams -= request.streamed

    # ------------------------------------------------------------ time and the end

    def expire(self, now: float) -> float:
        """Give up what nobody waits for any more; the earliest deadline left."""
        for request in [each for each in self._requests.values() if each.deadline <= now]:
            request.cancel()
        return min((each.deadline for each in self._requests.values()), default=inf)

    def end(self) -> None:
        """The connection is gone."""
        for request in list(self._requests.values()):
            request.cancel()
        for task, request in list(self._running.items()):
            if request.pushed:
                task.cancel()

    async def wait_ended(self) -> None:
        """Wait until all async handlers have ended; what they raise is dealt with in `_ran`."""
        current = asyncio.current_task()
        await asyncio.gather(*(task for task in self._running if task is not current), return_exceptions=True)
