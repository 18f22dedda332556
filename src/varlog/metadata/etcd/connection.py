"""Calls to an etcd of several members: one gRPC channel each, used one at a time, the next when one fails.

    POST /etcdserverpb.KV/Range            Txn           Compact
         /etcdserverpb.Lease/LeaseGrant    LeaseRevoke   LeaseKeepAlive (stream)
         /etcdserverpb.Watch/Watch         (stream)
         /etcdserverpb.Maintenance/Status

Every call goes to the member that answered last. One that does not take a connection, or does not answer in time, is
passed over, and stays so until the others fail too. Calls carry `hasleader`, so that a member cut off from the
others refuses at once instead of keeping us waiting. Retries inside gRPC are off: whether a request was sent twice
must be known here.

A channel that has failed for some time is made anew, with certificates read anew: gRPC goes on with those it was given,
and waits for up to two minutes before it asks for the address of a name again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import grpc
import grpc.aio

from varlog.base.errors import ConnectionLost, InvalidArgument, Unavailable, VarlogError, WrongCluster
from varlog.metadata.etcd.config import EtcdConfig
from varlog.metadata.etcd.errors import translate
from varlog.wire.proto import etcd_pb2 as pb

RECEIVE_BYTES = 32 << 20
"""Largest answer taken."""
POLL_S = 0.002
"""How often to look whether a connection stands; they take about this long."""
PAUSE_S = 0.05
"""Before the first retry after all members failed; doubled each time, up to `PAUSE_MAX_S`."""
PAUSE_MAX_S = 0.5
CHANNEL_S = 3.0
"""How long a channel may fail before another takes its place."""
REASON_S = 0.1
"""How long gRPC may take to say why a channel fails, which it knows."""

OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", RECEIVE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
)
METADATA = (("hasleader", "true"),)


class Answer(Protocol):
    """Every message that etcd answers with."""

    @property
    def header(self) -> pb.ResponseHeader: ...


Result = TypeVar("Result")
Request = TypeVar("Request")
Response = TypeVar("Response", bound=Answer)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """One method of etcd's, and how its messages become bytes."""

    path: str
    encode: Callable[[Request], bytes]
    decode: Callable[[bytes], Response]
    linearizable: bool
    """Its answer is of a moment after the question."""


def _method(
    path: str, request: type[Request], response: type[Response], *, linearizable: bool = False
) -> Method[Request, Response]:
    encode: Any = request
    decode: Any = response
    return Method(f"/etcdserverpb.{path}", encode.SerializeToString, decode.FromString, linearizable)


RANGE = _method("KV/Range", pb.RangeRequest, pb.RangeResponse, linearizable=True)
TXN = _method("KV/Txn", pb.TxnRequest, pb.TxnResponse, linearizable=True)
COMPACT = _method("KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
GRANT = _method("Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE = _method("Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
KEEP_ALIVE = _method("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse)
WATCH = _method("Watch/Watch", pb.WatchRequest, pb.WatchResponse)
STATUS = _method("Maintenance/Status", pb.StatusRequest, pb.StatusResponse)


class Endpoint:
    """One member: its channel, and the callables that gRPC makes per method."""

    def __init__(self, address: str, make: Callable[[], Any]) -> None:
        """`make` makes a channel to it."""
        self.address = address
        self._make = make
        self._channel = make()
        self._unary: dict[str, Any] = {}
        self._failing_since: float | None = None
        self._reason = ""
        """Of that, where it is known."""
        self._closed = False

    def unary(self, method: Method[Any, Any]) -> Any:
        found = self._unary.get(method.path)
        if found is None:
            found = self._unary[method.path] = self._channel.unary_unary(
                method.path, request_serializer=method.encode, response_deserializer=method.decode
            )
        return found

    def stream(self, method: Method[Any, Any]) -> Any:
        return self._channel.stream_stream(
            method.path, request_serializer=method.encode, response_deserializer=method.decode
        )

    async def connected(self, seconds: float) -> None:
        """Returns when the connection stands; raises `Unavailable` when it does not come about: nothing was sent."""
        end = time.monotonic() + seconds
        while (state := self._channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            refused = state is grpc.ChannelConnectivity.TRANSIENT_FAILURE
            if refused or time.monotonic() > end:
                await self._fail(refused=refused)
                raise Unavailable(f"no connection to the etcd at {self.address}{self._reason and ': '}{self._reason}")
            await asyncio.sleep(POLL_S)
        self._failing_since = None

    async def _fail(self, *, refused: bool) -> None:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            self._reason = await self._told_reason() if refused else "it does not answer"
        elif now - self._failing_since > CHANNEL_S:
            self._failing_since = None
            await self._begin_anew()

    async def _told_reason(self) -> str:
        """A call that is made now fails at once, and with the reason."""
        try:
            await self.unary(STATUS)(pb.StatusRequest(), timeout=REASON_S)
        except grpc.aio.AioRpcError as error:
            return str(error.details() or error.code().name)
        except grpc.aio.UsageError:
            pass  # the channel was closed meanwhile
        except asyncio.CancelledError:
            if _meant():
                raise
        return ""

    async def _begin_anew(self) -> None:
        if self._closed:
            return
        try:
            made = self._make()
        except InvalidArgument as error:  # a certificate that is just being replaced: the channel stays as it is
            self._reason = error.message
            return
        failed, self._channel = self._channel, made
        self._unary.clear()
        await failed.close()

    async def close(self) -> None:
        self._closed = True
        await self._channel.close()


class Stream(Generic[Request, Response]):
    """A call with messages in both directions."""

    def __init__(self, connection: "Connection", endpoint: Endpoint, call: Any) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._call = call

    async def send(self, message: Request) -> None:
        await self._translated(self._call.write(message))

    async def receive(self) -> Response:
        """The next message; `ConnectionLost` when the stream has ended. If cancelled, the stream ends."""
        message = await self._translated(self._call.read())
        if message is grpc.aio.EOF:
            raise ConnectionLost(f"the etcd at {self._endpoint.address} ended a stream")
        response: Response = message
        self._connection.check(response.header, self._endpoint)
        return response

    async def _translated(self, work: Any) -> Any:
        try:
            return await work
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._endpoint.address) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise ConnectionLost(f"the stream from {self._endpoint.address} was closed") from error
        except asyncio.CancelledError:
            if _meant():
                raise
            raise ConnectionLost(f"the stream from {self._endpoint.address} was cancelled") from None

    def failed(self) -> None:
        """The member behind it is not to be used for the next call."""
        self._connection.passed_over(self._endpoint)

    def cancel(self) -> None:
        self._call.cancel()


class Connection:
    """See the module. `close` it."""

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self._endpoints = [Endpoint(address, partial(self._channel, config, address)) for address in config.endpoints]
        self._current = 0
        self._closed = False
        self._cluster = 0
        self.revision = 0
        """Highest that any answer named."""

    @staticmethod
    def _credentials(config: EtcdConfig) -> Any:
        if not config.ca:
            return None
        files = config.read(config.ca), config.read(config.key), config.read(config.certificate)
        config.check_files()
        return grpc.ssl_channel_credentials(*files)

    @classmethod
    def _channel(cls, config: EtcdConfig, address: str) -> Any:
        credentials = cls._credentials(config)
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=OPTIONS)
        return grpc.aio.secure_channel(address, credentials, options=OPTIONS)

    # ------------------------------------------------------------ calls

    async def once(self, method: Method[Request, Response], request: Request) -> Response:
        """One attempt at one member. An error whose outcome is known: nothing was done."""
        endpoint = await self._usable()
        known = self.revision
        try:
            response: Response = await endpoint.unary(method)(
                request, timeout=self._config.attempt_s, metadata=METADATA
            )
        except grpc.aio.AioRpcError as error:
            translated = translate(error, endpoint.address)
            if isinstance(translated, Unavailable):
                self.passed_over(endpoint)
            raise translated from error
        except grpc.aio.UsageError as error:
            raise Unavailable("the metadata store is closed") from error
        except asyncio.CancelledError:
            if _meant():
                raise
            raise ConnectionLost(f"the call to the etcd at {endpoint.address} was given up") from None
        self.check(response.header, endpoint)
        if method.linearizable and response.header.revision < known:
            raise WrongCluster(
                f"the etcd at {endpoint.address} went back from revision {known} to {response.header.revision}: "
                "it lost its data, or an old state was restored. Start the repositories anew once that is settled"
            )
        return response

    async def ask(self, method: Method[Request, Response], request: Request) -> Response:
        """Try member after member until one answers. For requests that may be repeated without harm."""
        return await self.retried(lambda: self.once(method, request))

    async def retried(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """What `attempt` returns, tried until it raises nothing that a retry can help against, or time is up."""
        end = time.monotonic() + self._config.timeout_s
        pause, tries = PAUSE_S, 0
        while True:
            try:
                return await attempt()
            except VarlogError as error:
                tries += 1
                if not error.retryable or self._closed:
                    raise
                if time.monotonic() > end:
                    raise Unavailable(f"etcd cannot be used: {error.message}") from error
            if tries % len(self._endpoints) == 0:
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX_S)

    async def stream(self, method: Method[Request, Response]) -> Stream[Request, Response]:
        """Begin a stream at the present member."""
        endpoint = await self._usable()
        try:
            return Stream(self, endpoint, endpoint.stream(method)(metadata=METADATA))
        except grpc.aio.UsageError as error:
            raise Unavailable("the metadata store is closed") from error

    # ------------------------------------------------------------ members

    async def introduced(self) -> list[pb.StatusResponse]:
        """What each member says of itself that answers at once; raises `WrongCluster` if one is of another etcd.

        Whoever had only one of those that are right away would else begin a second cluster in the wrong one.
        """
        answers = await asyncio.gather(*map(self._introduce, self._endpoints))
        for endpoint, answer in zip(self._endpoints, answers, strict=True):
            if answer is not None:
                self.check(answer.header, endpoint)
        return [answer for answer in answers if answer is not None]

    async def _introduce(self, endpoint: Endpoint) -> pb.StatusResponse | None:
        try:
            await endpoint.connected(self._config.connect_s)
            answer: pb.StatusResponse = await endpoint.unary(STATUS)(pb.StatusRequest(), timeout=self._config.connect_s)
        except (Unavailable, grpc.aio.AioRpcError):
            return None  # it is away: what it says is looked at whenever it is used
        return answer

    async def _usable(self) -> Endpoint:
        if self._closed:
            raise Unavailable("the metadata store is closed")
        endpoint = self._endpoints[self._current]
        try:
            await endpoint.connected(self._config.connect_s)
        except Unavailable:
            self.passed_over(endpoint)
            raise
        return endpoint

    def passed_over(self, endpoint: Endpoint) -> None:
        """It failed: the next call goes to the next member. Calls that failed together count once."""
        if self._endpoints[self._current] is endpoint:
            self._current = (self._current + 1) % len(self._endpoints)

    def check(self, header: pb.ResponseHeader, endpoint: Endpoint) -> None:
        """Every answer: of the same etcd as all others, and how far that is."""
        if header.cluster_id != self._cluster:
            if self._cluster:
                raise WrongCluster(f"the etcd at {endpoint.address} is another than that of the other endpoints")
            self._cluster = header.cluster_id
        self.revision = max(self.revision, header.revision)

    async def close(self) -> None:
        self._closed = True
        for endpoint in self._endpoints:
            await endpoint.close()


def _meant() -> bool:
    """Whether a cancellation is of the running task, and not gRPC's way to say that a call was."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
