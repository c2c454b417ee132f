"""Implements the calls of KServe v2, `inference.GRPCInferenceService`.

Other calls are refused by name as UNIMPLEMENTED, and so are BYTES, classification and CUDA's memory.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

import grpc
from tritonclient.grpc import service_pb2

from nnburst._version import __version__
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import (
    Closed,
    DeviceUnavailable,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.serving import descriptions
from nnburst.serving.cached_requests import KnownRequest, KnownRequests, response_for
from nnburst.serving.callers import Caller, Context, GrpcCaller
from nnburst.serving.credentials import NotAuthenticated, Tokens
from nnburst.serving.direct_calls import Answering, Receiver, Send, answer, refuse
from nnburst.serving.models import Models
from nnburst.serving.network import Inference, Network, failure_of
from nnburst.serving.queue import DEFAULT_PRIORITY
from nnburst.serving.regions import Regions, UserRegions, required
from nnburst.serving.sequences import SequenceWord
from nnburst.serving.sources import UnknownModel
from nnburst.serving.spans import RequestSpan, Spans
from nnburst.serving.statistics import Durations
from nnburst.serving.tensors import (
    Array,
    Message,
    Value,
    Wanted,
    read_inputs,
    wanted_outputs,
    whole_number,
)

NAME: Final = "inference.GRPCInferenceService"
#: Longest time of a request, also for requests without a deadline, in seconds.
LONGEST: Final = 30.0
#: Greatest number of seconds that the call to load a model takes.
_LONGEST_LOADING: Final = 3600.0
#: Greatest size of the text of an error in a gRPC status, in bytes.
_MOST_DETAILS: Final = 2000
#: Greatest difference between the caller's clock and this one's at a common deadline.
_CLOCKS_DIFFER_NS: Final = 20_000_000
_STATUSES: Final[Mapping[ErrorStatus, grpc.StatusCode]] = {
    ErrorStatus.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorStatus.DEAD_OBJECT: grpc.StatusCode.UNAVAILABLE,
    ErrorStatus.DEVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


#: Fields that may name a sequence; others could equal other numbers, or never be equal (NaN).
_KEYS: Final = ("int64_param", "uint64_param", "string_param")


#: Extensions of the protocol that every front supports, by Triton's names.
_EXTENSIONS: Final = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "sequence",
    "statistics",
)


class CallersMayNot(InvalidArgument):
    """The call is not permitted by the server's options."""


def status_of(error: NnburstError) -> grpc.StatusCode:
    """The gRPC status for an NnburstError."""
    if isinstance(error, UnknownModel):
        return grpc.StatusCode.NOT_FOUND
    if isinstance(error, NotAuthenticated):
        return grpc.StatusCode.UNAUTHENTICATED
    if isinstance(error, CallersMayNot):
        return grpc.StatusCode.PERMISSION_DENIED
    if isinstance(error, Closed):  # callers close nothing: a dead object was replaced meanwhile
        return grpc.StatusCode.UNAVAILABLE
    return _STATUSES.get(error.status, grpc.StatusCode.INTERNAL)


def _details(error: NnburstError) -> str:
    """The error's text for a gRPC status, cut off if it is longer than what clients accept in a header.

    Texts have names that callers choose. Three bytes are sent for each byte that is not ASCII, and clients
    that get a header of 8 KiB or more report another status instead.
    """
    data = str(error).encode(errors="replace")
    return (
        str(error)
        if len(data) <= _MOST_DETAILS
        else data[:_MOST_DETAILS].decode(errors="ignore") + "…"
    )


class Reply(Protocol):
    """The receiver of the answer to one request."""

    @property
    def is_wanted(self) -> bool:
        """Whether the caller still waits for the answer."""

    def succeed(self, response: Message) -> None:
        """Send a ModelInferResponse."""

    def fail(self, error: NnburstError) -> None:
        """Send an error."""


class Threads(NamedTuple):
    """Pools of threads that work for callers. Their sizes do not depend on the calls in flight.

    Attributes:
        inference: threads that read requests and execute them.
        streams: threads, one for each stream.
        control: threads for everything else, which models never block.
        loading: threads that wait for models to be loaded.
    """

    inference: ThreadPoolExecutor
    streams: ThreadPoolExecutor
    control: ThreadPoolExecutor
    loading: ThreadPoolExecutor

    def of_call(self, name: str) -> ThreadPoolExecutor:
        """The threads for a call with this name, which executes nothing."""
        loads = name in ("RepositoryModelLoad", "RepositoryModelUnload")
        return self.loading if loads else self.control


class InferenceService:
    """Answers the protocol's calls for one front's models. Thread-safe; methods have the protocol's names.

    Attributes:
        address: host and port of the server, for finding callers' connections; ("", 0) if unknown.
        is_ending: whether the service is not ready because it ends.
    """

    def __init__(
        self,
        models: Models,
        regions: Regions | None,
        max_streams: int,
        *,
        callers_load: bool = False,
        tokens: Tokens | None = None,
        spans: Spans | None = None,
    ) -> None:
        """Serve `models`.

        Args:
            models: the models by name and version.
            regions: shared memory of callers whose user is known; None if switched off.
            max_streams: greatest number of streams at once.
            callers_load: whether callers may load and unload models.
            tokens: tokens, one of which every gRPC call needs; None requires none.
            spans: makes a span for each request; None for no spans.
        """
        self._models = models
        self._callers_load = callers_load
        self._tokens, self._spans = tokens, spans
        self._regions = regions
        self._streams = threading.Semaphore(max_streams)
        self._known = KnownRequests(models.served)
        self._receivers: list[Receiver] = []
        self._inference: ThreadPoolExecutor | None = None
        self.address = ("", 0)
        self.is_ending = False

    def handlers(self, threads: Threads) -> dict[str, Message]:
        """A handler of `grpc.Server` for each call of the protocol; calls without a method are refused."""
        self._inference = threads.inference
        pools = (threads.inference, threads.control, threads.loading)
        receivers = {pool: Receiver(pool) for pool in pools}
        self._receivers = [*receivers.values()]
        described = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        found = {}
        for method in described.methods:
            behaviour = getattr(self, method.name, None)
            reads = getattr(service_pb2, method.input_type.name).FromString
            if behaviour == self.ModelInfer:
                handler = receivers[threads.inference].handler(behaviour)
            elif behaviour == self.ModelStreamInfer:
                handler = grpc.stream_stream_rpc_method_handler(
                    self.as_stream("ModelInfer", reads, behaviour, threads.streams),
                    response_serializer=service_pb2.ModelStreamInferResponse.SerializeToString,
                )
            else:
                receiver = receivers[threads.of_call(method.name)]
                handler = receiver.handler(self._unary(method.name, reads, behaviour))
            found[method.name] = handler
        return found

    def caller(self, context: Context) -> GrpcCaller:
        """The caller of a call.

        Raises:
            NotAuthenticated: the caller needs a token and has none.
        """
        if self._tokens is not None:
            words = dict(context.invocation_metadata())
            self._tokens.check(str(words.get("authorization", "")))
        return GrpcCaller(context, self.address)

    def _unary(
        self,
        name: str,
        reads: Callable[[bytes], Message],
        behaviour: Callable[[Message, Caller], Message] | None,
    ) -> Answering:
        def call(data: bytes | None, context: Context, send: Send) -> None:
            reply = _Call(context, send)
            if behaviour is None:
                reply.refuse(
                    grpc.StatusCode.UNIMPLEMENTED, f"{name} is not part of what nnburst serves"
                )
                return
            try:
                caller = self.caller(context)
                reply.succeed(behaviour(_message(reads, data, name), caller))
            except Exception as error:
                reply.fail(failure_of(error, name))

        return call

    def as_stream(
        self,
        name: str,
        reads: Callable[[bytes], Message],
        behaviour: Callable[[Iterator[Message], Context, Caller], Iterator[Message]],
        threads: ThreadPoolExecutor,
    ) -> Callable[..., object]:
        """Wrap a behaviour of streams: check tokens and the limit of streams, and turn errors into statuses.

        Args:
            name: name of the requests' message without "Request".
            reads: parses such a message; grpcio would log a traceback for one of another form.
            behaviour: answers one stream.
            threads: threads that run the behaviour.
        """

        def call(messages: Iterator[bytes], context: Context) -> Iterator[Message]:
            requests = (_message(reads, each, name) for each in messages)
            try:
                caller = self.caller(context)
                if not self._streams.acquire(blocking=False):
                    raise ResourceExhausted("as many streams are open as are served at once")
                try:
                    yield from behaviour(requests, context, caller)
                finally:
                    self._streams.release()
            except NnburstError as error:
                context.abort(status_of(error), _details(error))

        call.experimental_thread_pool = threads  # type: ignore[attr-defined]
        return call

    def park(self) -> None:
        """Report "not ready", finish present requests, and hold new ones until `release` refuses them."""
        self.is_ending = True
        self._models.load_no_more()
        for network in self._models.served.networks():
            network.queue.park()

    def release(self) -> None:
        """Refuse the requests since `park`, and all new ones."""
        for network in self._models.served.networks():
            network.queue.release()

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until no model has a request, at most `seconds`."""
        deadline = time.monotonic() + seconds
        for network in self._models.served.networks():
            network.queue.wait_until_idle(max(0.0, deadline - time.monotonic()))

    def ServerLive(self, _request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Answer that the front is live."""
        return service_pb2.ServerLiveResponse(live=True)

    def ServerReady(self, _request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Every model is ready."""
        return service_pb2.ServerReadyResponse(ready=self.is_ready)

    @property
    def is_ready(self) -> bool:
        """Whether every model is ready and the server is not ending."""
        return not self.is_ending and self._models.is_ready

    @property
    def model_count(self) -> int:
        """The number of served model versions."""
        return len(self._models.served.networks())

    @property
    def readiness(self) -> dict[str, bool]:
        """For each model, by name, whether it is ready."""
        models = self._models.served.models
        return {name: each.is_ready and not self.is_ending for name, each in models.items()}

    def ServerMetadata(self, _request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Name and version of this server, and the extensions of the protocol that it supports."""
        extensions = list(_EXTENSIONS)
        if self._regions is not None:
            extensions.append("system_shared_memory")
        return service_pb2.ServerMetadataResponse(
            name="nnburst", version=__version__, extensions=extensions
        )

    def ModelReady(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Whether a model is ready; NOT_FOUND if no model has this name."""
        try:
            network = self._models.served.find(request.name, request.version)
        except DeviceUnavailable:  # the model exists, but could not be read
            return service_pb2.ModelReadyResponse(ready=False)
        return service_pb2.ModelReadyResponse(ready=network.is_ready and not self.is_ending)

    def ModelMetadata(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Names, types and shapes of a model's inputs and outputs."""
        served = self._models.served
        network = served.find(request.name, request.version)
        network.check_served()
        return descriptions.metadata(network, list(served.models[request.name].versions))

    def ModelConfig(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """The configuration of a model in Triton's form."""
        network = self._models.served.find(request.name, request.version)
        network.check_served()
        return descriptions.config(network)

    def ModelStatistics(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Counts and durations of one model, or of all if no name is given."""
        served = self._models.served
        if request.name and request.version:
            return descriptions.statistics([served.find(request.name, request.version)])
        if request.name:
            served.find(request.name, "")  # raises if the model is not found
            return descriptions.statistics(list(served.models[request.name].versions.values()))
        return descriptions.statistics(served.networks())

    def RepositoryIndex(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """All models, each with its state and the reason for it."""
        response = service_pb2.RepositoryIndexResponse()
        for name, version, state, reason in self._models.index(ready=request.ready):
            response.models.add(name=name, version=version, state=state, reason=reason)
        return response

    def RepositoryModelLoad(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """Load a model, or its changed versions; the answer comes when they are ready."""
        self._check_callers_load()
        if request.parameters:
            raise InvalidArgument(
                f"parameters: {sorted(request.parameters)}, expected none: models and their configuration"
                " are those of the repository"
            )
        self._models.load(request.model_name, _loading_time(caller))
        return service_pb2.RepositoryModelLoadResponse()

    def RepositoryModelUnload(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """Stop serving a model; requests that were admitted are answered."""
        self._check_callers_load()
        self._models.unload(request.model_name, _loading_time(caller))
        return service_pb2.RepositoryModelUnloadResponse()

    def _check_callers_load(self) -> None:
        if not self._callers_load:
            raise CallersMayNot(
                "callers may load and unload models with --model-control explicit only"
            )

    def ModelInfer(self, data: bytes | None, context: Context, send: Send) -> None:  # noqa: N802
        """Execute once, by the RPC's deadline; the answer is sent later."""
        reply = _Call(context, send)
        try:
            request = _message(service_pb2.ModelInferRequest.FromString, data, "ModelInfer")
            caller = self.caller(context)
        except NnburstError as error:
            reply.fail(error)
            return
        job = self.read(request, caller.time_remaining(), caller, reply)
        if job is not None:
            if not context.add_callback(job.cancel):
                job.cancel()  # the call has ended, so there is no callback
            job.submit()

    def ModelStreamInfer(  # noqa: N802
        self, requests: Iterator[Message], context: Context, caller: Caller
    ) -> Iterator[Message]:
        """Execute the requests one by one; a failure is answered with its error, and the stream goes on."""
        now: list[InferRequest] = []

        def end() -> None:
            for job in now:
                job.cancel()

        context.add_callback(end)
        for request in requests:
            response = service_pb2.ModelStreamInferResponse()
            try:
                reply = _Awaited()
                job = self.read(request, caller.time_remaining(), caller, reply)
                if job is not None:
                    now[:] = [job]
                    job.submit(self._inference)
                response.infer_response.CopyFrom(reply.wait())
            except NnburstError as error:
                response.error_message = f"[{status_of(error).name}] {error}"
                response.infer_response.id = request.id
                response.infer_response.model_name = request.model_name
            if "triton_enable_empty_final_response" in request.parameters:
                response.infer_response.parameters["triton_final_response"].bool_param = True
            yield response

    def look(self, now_ns: int) -> float:
        """End calls whose message does not arrive; return the time of the next check."""
        return min((each.look(now_ns) for each in self._receivers), default=math.inf)

    def SystemSharedMemoryRegister(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """Open shared memory by name, if the caller's user and this process's user may both write it."""
        regions = self._regions_or_refuse(caller)
        regions.register(request.name, request.key, request.offset, request.byte_size)
        return service_pb2.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """Close a region of this user, or all of them."""
        self._regions_or_refuse(caller).unregister(request.name)
        return service_pb2.SystemSharedMemoryUnregisterResponse()

    def SystemSharedMemoryStatus(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """The regions that this user has registered."""
        response = service_pb2.SystemSharedMemoryStatusResponse()
        for name, region in self._regions_or_refuse(caller).listed(request.name).items():
            status = response.regions[name]
            status.name, status.key = name, region.key
            status.offset, status.byte_size = region.offset, region.size
        return response

    def CudaSharedMemoryStatus(self, _request: Message, _caller: Caller) -> Message:  # noqa: N802
        """An empty list; standard clients ask for it before they start."""
        return service_pb2.CudaSharedMemoryStatusResponse()

    def read(
        self, request: Message, remaining: float | None, caller: Caller | None, reply: Reply
    ) -> InferRequest | None:
        """Read a ModelInferRequest; None if it is refused, which `reply` reports.

        Args:
            request: the received message; fields that are taken out are put back.
            remaining: seconds until the caller's deadline; None without a deadline.
            caller: caller whose regions may be used; None for none.
            reply: receiver of the answer.
        """
        began = time.monotonic_ns()
        span = self._spans.begin(caller, request.model_name, began) if self._spans else None
        network: Network | None = None
        try:
            network, requests, known, key, raw = self._found(request)
            timeout = _timeout(request, remaining)
            network.check_served()
            regions = None
            if known is not None:
                wanted, arrays, sequence = known.wanted, known.arrays(raw), None
                priority = DEFAULT_PRIORITY
            else:
                regions = self._regions_for(caller)
                wanted = wanted_outputs(request, network.outputs, regions)
                arrays = read_inputs(request, network.inputs, regions)
                sequence = _sequence(request) if network.has_state else None
                priority = _priority(request)
                requests.add(key, request, network, arrays, wanted)
        except Exception as error:
            failure = failure_of(error, "reading a request")
            _count(network, span, status_of(failure).name, began)
            reply.fail(failure)
            return None
        found = InferRequest(
            arrays, wanted, sequence, began + int(timeout * 1e9), priority, network, reply
        )
        found.began_ns, found.identity = began, request.id
        found.form, found.rows = network.form(arrays)
        found.known, found.regions, found.span = known, regions, span
        return found

    def _found(
        self, request: Message
    ) -> tuple[Network, KnownRequests, KnownRequest | None, bytes, list[bytes]]:
        """Find the model of a request, which admits it, and the cached analysis of an equal request."""
        while True:
            requests = self._known
            if requests.served is not self._models.served:  # the served models have changed
                requests = self._known = KnownRequests(self._models.served)
            known, key, raw = requests.find(request)
            network = (
                known.network
                if known is not None
                else requests.served.find(request.model_name, request.model_version)
            )
            if network.admit():
                return network, requests, known, key, raw
            if known is not None:  # the model was replaced meanwhile
                request.raw_input_contents.extend(raw)

    def _regions_for(self, caller: Caller | None) -> UserRegions | None:
        if self._regions is None or caller is None:
            return None
        return self._regions.of(caller.user())

    def _regions_or_refuse(self, caller: Caller) -> UserRegions:
        return required(self._regions_for(caller))


class InferRequest(Inference):
    """A ModelInferRequest that was read. Thread-safe.

    Attributes:
        began_ns: time of arrival on CLOCK_MONOTONIC.
        identity: the request's id.
        known: cached analysis of an equal request, or None.
        regions: regions for the outputs.
        span: span of OpenTelemetry, or None.
    """

    span: RequestSpan | None = None
    began_ns = 0
    identity = ""
    known: KnownRequest | None = None
    regions: UserRegions | None = None

    def __init__(
        self,
        arrays: Sequence[Array],
        outputs: Sequence[Wanted],
        sequence: SequenceWord | None,
        deadline_ns: int,
        priority: int,
        network: Network,
        reply: Reply,
    ) -> None:
        """Make a request for `network`, which `reply` answers; see `Inference`."""
        indexes = [each.index for each in outputs]
        super().__init__(arrays, indexes, sequence, deadline_ns, priority)
        self._outputs = outputs
        self._network = network
        self._reply = reply
        self._reading_ns = 0

    def submit(self, threads: ThreadPoolExecutor | None = None) -> None:
        """Execute the request now, or when its turn comes.

        Args:
            threads: threads that execute others' requests after this one; None for the caller's thread.
        """
        self._reading_ns = time.monotonic_ns() - self.began_ns
        try:
            self._network.queue.submit(self, None if threads is None else threads.submit)
        except NnburstError as error:
            self.refuse(error)

    def succeed(self, values: dict[int, Value]) -> None:
        """Answer with outputs; see `Inference`."""
        try:
            self._check_size(values)
            if self.known is not None:
                response = self.known.answer(self.identity, values)
            else:
                response = response_for(
                    self._network, self.identity, self._outputs, values, self.regions
                )
        except Exception as error:
            self._fail(failure_of(error, "making an answer"))
            return
        network, total = self._network, time.monotonic_ns() - self.began_ns
        if not self._reply.is_wanted:
            self._count(self._abandoned())
            return
        durations = Durations(self.queue_ns, self.inference_ns, total, self._reading_ns)
        network.answered(durations, self.rows)
        self._reply.succeed(response)
        if self.span is not None:
            self.span.record("OK", network.version, self.queue_ns, self.inference_ns)

    def refuse(self, error: NnburstError) -> None:
        """Answer with an error, unless the request was answered."""
        if self.settle():
            self._fail(error)

    def cancel(self) -> None:
        """Remove the request from the queue without an answer, because the caller is gone."""
        if self.settle():
            self._network.queue.abandon(self)
            self._count(self._abandoned())
            self._reply.fail(Closed("the caller is gone"))

    def _check_size(self, values: dict[int, Value]) -> None:
        size = sum(len(values[each.index][1]) for each in self._outputs if not each.region)
        if size > self._network.max_message:
            raise ResourceExhausted(
                f"outputs: {size} bytes, expected at most {self._network.max_message} (--max-message)"
            )

    def _fail(self, error: NnburstError) -> None:
        self._count(status_of(error).name)
        self._reply.fail(error)

    def _count(self, status: str) -> None:
        _count(self._network, self.span, status, self.began_ns, self.queue_ns, self.inference_ns)

    def _abandoned(self) -> str:
        """The status of a request whose caller is gone, perhaps because its deadline has passed."""
        late = time.monotonic_ns() >= self.deadline_ns - _CLOCKS_DIFFER_NS
        code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
        return str(code.name)


class _Call:
    """Answers a call with one message, from any thread and without waiting for the receiver."""

    def __init__(self, context: Context, send: Send) -> None:
        self._context = context
        self._send = send

    @property
    def is_wanted(self) -> bool:
        return bool(self._context.is_active())

    def succeed(self, response: Message) -> None:
        answer(self._context, self._send, response.SerializeToString())

    def fail(self, error: NnburstError) -> None:
        self.refuse(status_of(error), _details(error))

    def refuse(self, code: grpc.StatusCode, details: str) -> None:
        refuse(self._context, self._send, code, details)


class _Awaited:
    """Keeps the answer to a request of a stream, whose thread waits for it."""

    is_wanted = True

    def __init__(self) -> None:
        self._done = threading.Event()
        self._response: Message = None
        self._error: NnburstError | None = None

    def succeed(self, response: Message) -> None:
        self._response = response
        self._done.set()

    def fail(self, error: NnburstError) -> None:
        self._error = error
        self._done.set()

    def wait(self) -> Message:
        if not self._done.wait(2 * LONGEST):  # the queue answers at the deadline
            raise GeneralFailure("the request was not answered by its deadline")
        if self._error is not None:
            raise self._error
        return self._response


def _count(
    network: Network | None,
    span: RequestSpan | None,
    status: str,
    began_ns: int,
    queue_ns: int = 0,
    inference_ns: int = 0,
) -> None:
    """Count a request that was not answered, for its model if known, and record its span."""
    if network is not None:
        network.refused(status, time.monotonic_ns() - began_ns)
    if span is not None:
        version = network.version if network is not None else 0
        span.record(status, version, queue_ns, inference_ns)


def _loading_time(caller: Caller) -> float:
    """Seconds until the RPC's deadline; an hour without one."""
    remaining = caller.time_remaining()
    return _LONGEST_LOADING if remaining is None else min(remaining, _LONGEST_LOADING)


def _timeout(request: Message, remaining: float | None) -> float:
    """Seconds that a request has: by the RPC's deadline, its own `timeout` (microseconds), or the default."""
    seconds = LONGEST if remaining is None else min(remaining, LONGEST)
    wanted = whole_number(request.parameters, "timeout")
    if wanted < 0:
        raise InvalidArgument(f"timeout: {wanted} microseconds, expected 0 (none) or more")
    seconds = min(seconds, wanted / 1e6) if wanted else seconds
    if seconds <= 0:
        raise MissedDeadline("timeout: the deadline has passed")
    return seconds


def _priority(request: Message) -> int:
    """The priority by KServe: 1 is served first; 0 or none is the default."""
    wanted = whole_number(request.parameters, "priority")
    if wanted < 0:
        raise InvalidArgument(f"priority: {wanted}, expected an integer of 0 or more")
    return wanted or DEFAULT_PRIORITY


def _sequence(request: Message) -> SequenceWord | None:
    parameters = request.parameters
    if "sequence_id" not in parameters:
        return None
    word = parameters["sequence_id"]
    kind = word.WhichOneof("parameter_choice")
    if kind not in _KEYS:
        raise InvalidArgument(
            f"sequence_id: {getattr(word, kind) if kind else None!r}, expected an integer or a string"
        )
    key = getattr(word, kind)
    if not key:  # 0 and "" stand for none in the protocol
        return None
    return SequenceWord(key, _flag(parameters, "sequence_start"), _flag(parameters, "sequence_end"))


def _flag(parameters: Message, name: str) -> bool:
    if name not in parameters:
        return False
    kind = parameters[name].WhichOneof("parameter_choice")
    if kind != "bool_param":
        raise InvalidArgument(f"{name}: expected a boolean, is a {kind}")
    return bool(parameters[name].bool_param)


def _message(reads: Callable[[bytes], Message], data: bytes | None, name: str) -> Message:
    """Read the message of a call.

    Raises:
        InvalidArgument: the call has no message, or one of another form.
    """
    try:
        return reads(data)  # type: ignore[arg-type] # None is refused by the library
    except Exception:
        raise InvalidArgument(f"the call has no message that is a {name}Request") from None
