"""The calls of KServe v2, `inference.GRPCInferenceService`.

What is not here is refused by its name: UNIMPLEMENTED. So are BYTES, classification and CUDA's memory.
"""

from __future__ import annotations

import logging
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
from nnburst.serving.models import Models
from nnburst.serving.network import Inference, Network
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
)

logger = logging.getLogger(__name__)

NAME: Final = "inference.GRPCInferenceService"
#: Seconds for requests without a deadline.
LONGEST: Final = 30.0
#: Seconds that the call to load a model takes at most.
_LONGEST_LOADING: Final = 3600.0
#: Seconds that a message may take from its first byte to its last one.
READING: Final = 30.0
#: A caller's deadline and ours are the same moment by clocks that differ by less.
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


#: Fields that a sequence may be named by; others compare like numbers that they are not, or like none (NaN).
_KEYS: Final = ("int64_param", "uint64_param", "string_param")


class CallersMayNot(InvalidArgument):
    """A call that this server's owner has not permitted."""


def status_of(error: NnburstError) -> grpc.StatusCode:
    """The one gRPC status for an error of ours."""
    if isinstance(error, UnknownModel):
        return grpc.StatusCode.NOT_FOUND
    if isinstance(error, NotAuthenticated):
        return grpc.StatusCode.UNAUTHENTICATED
    if isinstance(error, CallersMayNot):
        return grpc.StatusCode.PERMISSION_DENIED
    if isinstance(error, Closed):  # callers close nothing: another request has replaced what died
        return grpc.StatusCode.UNAVAILABLE
    return _STATUSES.get(error.status, grpc.StatusCode.INTERNAL)


class Reply(Protocol):
    """Where the answer to one request goes."""

    @property
    def is_wanted(self) -> bool:
        """Whether anyone waits for it."""

    def succeed(self, response: Message) -> None:
        """Send a ModelInferResponse."""

    def fail(self, error: NnburstError) -> None:
        """Send an error."""


class Threads(NamedTuple):
    """Pools of threads that work for callers. None of them grows with the calls that are in flight.

    Attributes:
        inference: reads requests and executes them.
        streams: each has one of these.
        control: everything else: whatever the models do, these are free.
        loading: wait for models that are loaded.
    """

    inference: ThreadPoolExecutor
    streams: ThreadPoolExecutor
    control: ThreadPoolExecutor
    loading: ThreadPoolExecutor

    def of_call(self, name: str) -> ThreadPoolExecutor:
        """Those that do a call with this name, which executes nothing."""
        loads = name in ("RepositoryModelLoad", "RepositoryModelUnload")
        return self.loading if loads else self.control


class InferenceService:
    """The protocol over the models of one front. Thread-safe; methods have the protocol's names.

    Attributes:
        address: host and port at which it is served, by which callers' connections are known; else ("", 0).
        is_ending: whether it is not ready because it ends.
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
            models: by name and version.
            regions: for callers whose user is known; None is switched off.
            max_streams: streams at once.
            callers_load: whether callers may load and unload models.
            tokens: one of which every call by gRPC needs; None asks for none.
            spans: has one made for each request; None makes none.
        """
        self._models = models
        self._callers_load = callers_load
        self._tokens, self._spans = tokens, spans
        self._regions = regions
        self._streams = threading.Semaphore(max_streams)
        self._known = KnownRequests(models.served)
        #: Calls whose message has not come yet, and since when.
        self._reading: dict[Context, float] = {}
        self._inference: ThreadPoolExecutor | None = None
        self.address = ("", 0)
        self.is_ending = False

    def handlers(self, threads: Threads) -> dict[str, Message]:
        """A handler of `grpc.Server` for each call of the protocol; those without a method here refuse."""
        self._inference = threads.inference
        described = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        found = {}
        for method in described.methods:
            behaviour = getattr(self, method.name, None)
            reads = getattr(service_pb2, method.input_type.name).FromString
            writes = getattr(service_pb2, method.output_type.name).SerializeToString
            make = grpc.unary_unary_rpc_method_handler
            if behaviour == self.ModelInfer:
                # On the wire a call with one message is a stream of one. Only handlers of streams may return
                # before they have answered, and messages are read by threads that wait for nothing else.
                make, reads, writes = grpc.stream_stream_rpc_method_handler, None, None
                guarded = _with(behaviour, threads.inference, answers_later=True)
            elif behaviour == self.ModelStreamInfer:
                make = grpc.stream_stream_rpc_method_handler
                guarded = self.as_stream(behaviour, threads.streams)
            else:
                guarded = _with(self._unary(method.name, behaviour), threads.of_call(method.name))
            found[method.name] = make(
                guarded, request_deserializer=reads, response_serializer=writes
            )
        return found

    def caller(self, context: Context) -> GrpcCaller:
        """The caller of a call.

        Raises:
            NotAuthenticated: it has no token, and needs one.
        """
        if self._tokens is not None:
            words = dict(context.invocation_metadata())
            self._tokens.check(str(words.get("authorization", "")))
        return GrpcCaller(context, self.address)

    def _unary(
        self, name: str, behaviour: Callable[[Message, Caller], Message] | None
    ) -> Callable[[Message, Context], Message]:
        def call(request: Message, context: Context) -> Message:
            if behaviour is None:
                context.abort(
                    grpc.StatusCode.UNIMPLEMENTED, f"{name} is not part of what nnburst serves"
                )
            try:
                return behaviour(request, self.caller(context))  # type: ignore[misc] # abort does not return
            except NnburstError as error:
                context.abort(status_of(error), str(error))

        return call

    def as_stream(
        self,
        behaviour: Callable[[Iterator[Message], Context, Caller], Iterator[Message]],
        threads: ThreadPoolExecutor,
    ) -> Callable[..., object]:
        """A behaviour of streams with what all have: tokens, the limit of streams, and errors by status.

        Args:
            behaviour: answers one stream.
            threads: by whom it is done.
        """

        def call(requests: Iterator[Message], context: Context) -> Iterator[Message]:
            try:
                caller = self.caller(context)
                if not self._streams.acquire(blocking=False):
                    raise ResourceExhausted("as many streams are open as are served at once")
                try:
                    yield from behaviour(requests, context, caller)
                finally:
                    self._streams.release()
            except NnburstError as error:
                context.abort(status_of(error), str(error))

        return _with(call, threads)

    def park(self) -> None:
        """Be not ready; finish what is here, and begin nothing that comes. `release` refuses that."""
        self.is_ending = True
        self._models.load_no_more()
        for network in self._models.served.networks():
            network.queue.park()

    def release(self) -> None:
        """Refuse what has come since `park`, and whatever comes."""
        for network in self._models.served.networks():
            network.queue.release()

    def wait_until_idle(self, seconds: float) -> None:
        """Until no model has anything to do, at most so long."""
        deadline = time.monotonic() + seconds
        for network in self._models.served.networks():
            network.queue.wait_until_idle(max(0.0, deadline - time.monotonic()))

    def ServerLive(self, _request: Message, _caller: Caller) -> Message:  # noqa: N802
        """The front is there."""
        return service_pb2.ServerLiveResponse(live=True)

    def ServerReady(self, _request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Every model is ready."""
        return service_pb2.ServerReadyResponse(ready=self.is_ready)

    @property
    def is_ready(self) -> bool:
        """Whether every model is ready, and the server does not end."""
        return not self.is_ending and self._models.is_ready

    @property
    def model_count(self) -> int:
        """Versions of models that are served."""
        return len(self._models.served.networks())

    @property
    def readiness(self) -> dict[str, bool]:
        """Whether each model that is there is ready, by its name."""
        models = self._models.served.models
        return {name: each.is_ready and not self.is_ending for name, each in models.items()}

    def ServerMetadata(self, _request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Name and version of this server, and the extensions of the protocol that it has."""
        extensions = ["model_configuration", "model_repository", "sequence", "statistics"]
        if self._regions is not None:
            extensions.append("system_shared_memory")
        return service_pb2.ServerMetadataResponse(
            name="nnburst", version=__version__, extensions=extensions
        )

    def ModelReady(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Whether a model is ready; not found if no model has this name."""
        try:
            network = self._models.served.find(request.name, request.version)
        except DeviceUnavailable:  # it is there, and could not be read
            return service_pb2.ModelReadyResponse(ready=False)
        return service_pb2.ModelReadyResponse(ready=network.is_ready and not self.is_ending)

    def ModelMetadata(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Names, types and shapes."""
        served = self._models.served
        network = served.find(request.name, request.version)
        return descriptions.metadata(network, list(served.models[request.name].versions))

    def ModelConfig(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """The configuration as Triton has it."""
        return descriptions.config(self._models.served.find(request.name, request.version))

    def ModelStatistics(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Counts and durations of one model, or of all if no name is given."""
        served = self._models.served
        if request.name and request.version:
            return descriptions.statistics([served.find(request.name, request.version)])
        if request.name:
            served.find(request.name, "")  # or it is not found
            return descriptions.statistics(list(served.models[request.name].versions.values()))
        return descriptions.statistics(served.networks())

    def RepositoryIndex(self, request: Message, _caller: Caller) -> Message:  # noqa: N802
        """Every model that is there, with its state and the reason for it."""
        response = service_pb2.RepositoryIndexResponse()
        for name, version, state, reason in self._models.index(ready=request.ready):
            response.models.add(name=name, version=version, state=state, reason=reason)
        return response

    def RepositoryModelLoad(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """Load a model, or what has changed of it; answered when it is ready."""
        self._check_callers_load()
        if request.parameters:
            raise InvalidArgument(
                f"parameters: {sorted(request.parameters)}, expected none: models and their configuration"
                " are those of the repository"
            )
        self._models.load(request.model_name, _loading_time(caller))
        return service_pb2.RepositoryModelLoadResponse()

    def RepositoryModelUnload(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """Serve a model no more; what was taken is answered."""
        self._check_callers_load()
        self._models.unload(request.model_name, _loading_time(caller))
        return service_pb2.RepositoryModelUnloadResponse()

    def _check_callers_load(self) -> None:
        if not self._callers_load:
            raise CallersMayNot(
                "callers may load and unload models with --model-control explicit only"
            )

    def ModelInfer(  # noqa: N802
        self, messages: Iterator[bytes], context: Context, send: Callable[[bytes | None], None]
    ) -> None:
        """Execute once, by the RPC's deadline; the answer comes later."""
        reply = _Call(context, send)
        self._reading[context] = time.monotonic()
        try:
            data = next(messages, b"")
        except grpc.RpcError:
            return  # the caller is gone
        finally:
            del self._reading[context]
        try:
            request = service_pb2.ModelInferRequest.FromString(data)
        except Exception:
            reply.fail(InvalidArgument("the call has no message that is a ModelInferRequest"))
            return
        try:
            caller = self.caller(context)
        except NnburstError as error:
            reply.fail(error)
            return
        job = self.read(request, caller.time_remaining(), caller, reply)
        if job is not None:
            if not context.add_callback(job.cancel):
                job.cancel()  # it has ended already, and no callback comes
            job.submit()

    def ModelStreamInfer(  # noqa: N802
        self, requests: Iterator[Message], context: Context, caller: Caller
    ) -> Iterator[Message]:
        """Execute one after the other; what fails is answered with its error, and the stream goes on."""
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

    def look(self, _now_ns: int) -> float:
        """Give up calls whose message does not come; the moment of the next look."""
        oldest = time.monotonic() - READING
        for context, since in list(self._reading.items()):
            if since < oldest:
                context.cancel()
        return float("inf")

    def SystemSharedMemoryRegister(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """Open shared memory by its name, if the caller's user and this process's may both write it."""
        regions = self._regions_or_refuse(caller)
        regions.register(request.name, request.key, request.offset, request.byte_size)
        return service_pb2.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(self, request: Message, caller: Caller) -> Message:  # noqa: N802
        """Close one of this user, or all of this user."""
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
        """No repository: what stock clients look at before they start."""
        return service_pb2.CudaSharedMemoryStatusResponse()

    def read(
        self, request: Message, remaining: float | None, caller: Caller | None, reply: Reply
    ) -> InferRequest | None:
        """Read a ModelInferRequest; None if it is refused, which its caller is told.

        Args:
            request: as it came; what is put aside of it is put back.
            remaining: seconds until the caller's deadline; None without one.
            caller: who may use regions; None for none.
            reply: where the answer goes.
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
        except NnburstError as error:
            _count(network, span, status_of(error).name, began)
            reply.fail(error)
            return None
        except BaseException:
            _count(network, span, "UNKNOWN", began)
            raise
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
        """The model of a request, which has admitted it, and what is known of its like."""
        while True:
            requests = self._known
            if requests.served is not self._models.served:  # models have come or gone
                requests = self._known = KnownRequests(self._models.served)
            known, key, raw = requests.find(request)
            network = (
                known.network
                if known is not None
                else requests.served.find(request.model_name, request.model_version)
            )
            if network.admit():
                return network, requests, known, key, raw
            if known is not None:  # another model has taken its place since
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
        began_ns: when it came, on CLOCK_MONOTONIC.
        identity: its id.
        known: what is remembered of one like it.
        regions: where its outputs may go.
        span: of OpenTelemetry; None makes none.
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
        """For `network`, answered by `reply`; see `Inference`."""
        indexes = [each.index for each in outputs]
        super().__init__(arrays, indexes, sequence, deadline_ns, priority)
        self._outputs = outputs
        self._network = network
        self._reply = reply
        self._reading_ns = 0

    def submit(self, threads: ThreadPoolExecutor | None = None) -> None:
        """Execute it now or when its turn comes.

        Args:
            threads: by whom others' requests are executed that wait behind it; None is the caller's.
        """
        self._reading_ns = time.monotonic_ns() - self.began_ns
        try:
            self._network.queue.submit(self, None if threads is None else threads.submit)
        except NnburstError as error:
            self.refuse(error)

    def succeed(self, values: dict[int, Value]) -> None:
        """Answer with outputs; see `Inference`."""
        try:
            if self.known is not None:
                response = self.known.answer(self.identity, values)
            else:
                response = response_for(
                    self._network, self.identity, self._outputs, values, self.regions
                )
        except NnburstError as error:
            self._fail(error)
            return
        except Exception as error:
            logger.exception("an answer could not be made")
            self._fail(GeneralFailure(f"the server failed: {type(error).__name__}: {error}"))
            return
        network, total = self._network, time.monotonic_ns() - self.began_ns
        if not self._reply.is_wanted:
            self._count(self._abandoned())
            return
        network.answered(Durations(self.queue_ns, self.inference_ns, total, self._reading_ns))
        self._reply.succeed(response)
        if self.span is not None:
            self.span.record("OK", network.version, self.queue_ns, self.inference_ns)

    def refuse(self, error: NnburstError) -> None:
        """Answer with an error, unless it was answered."""
        if self.settle():
            self._fail(error)

    def cancel(self) -> None:
        """Its caller is gone: it does not wait any longer, and no answer is sent."""
        if self.settle():
            self._network.queue.abandon(self)
            self._count(self._abandoned())
            self._reply.fail(Closed("the caller is gone"))

    def _fail(self, error: NnburstError) -> None:
        self._count(status_of(error).name)
        self._reply.fail(error)

    def _count(self, status: str) -> None:
        _count(self._network, self.span, status, self.began_ns, self.queue_ns, self.inference_ns)

    def _abandoned(self) -> str:
        """The status of one whose caller is gone: callers go when their deadline passes, too."""
        late = time.monotonic_ns() >= self.deadline_ns - _CLOCKS_DIFFER_NS
        code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
        return str(code.name)


class _Call:
    """The answer to a call with one message, from whatever thread and without waiting for its reader."""

    def __init__(self, context: Context, send: Callable[[bytes | None], None]) -> None:
        self._context = context
        self._send = send

    @property
    def is_wanted(self) -> bool:
        return bool(self._context.is_active())

    def succeed(self, response: Message) -> None:
        data = response.SerializeToString()
        if _send_at_once is not None:
            _send_at_once(self._context._rpc_event, self._context._state, data)
        else:
            self._send(data)
            self._send(None)

    def fail(self, error: NnburstError) -> None:
        self._context.set_code(status_of(error))
        self._context.set_details(str(error))
        self._send(None)


#: Sends message and status in one step: grpcio's own function for calls with one message. What it gives
#: handlers of streams sends the message first, waits until its reader has taken it in, and then sends the
#: status. A version without it costs time, nothing else.
try:
    from grpc._server import _status as _send_at_once
except ImportError:
    _send_at_once = None


class _Awaited:
    """The answer to a request of a stream, whose thread waits for it."""

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
        if not self._done.wait(2 * LONGEST):  # its queue has answered it by its deadline
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
    """Count a request that was not answered, for its model if that is known, and in its trace."""
    if network is not None:
        network.refused(status, time.monotonic_ns() - began_ns)
    if span is not None:
        version = network.version if network is not None else 0
        span.record(status, version, queue_ns, inference_ns)


def _loading_time(caller: Caller) -> float:
    """Seconds until the RPC's deadline, an hour without one."""
    remaining = caller.time_remaining()
    return _LONGEST_LOADING if remaining is None else min(remaining, _LONGEST_LOADING)


def _timeout(request: Message, remaining: float | None) -> float:
    """Seconds: the RPC's deadline, the request's own `timeout` in microseconds, or the longest."""
    seconds = LONGEST if remaining is None else min(remaining, LONGEST)
    if "timeout" in request.parameters:
        wanted = request.parameters["timeout"].int64_param
        if wanted < 0:
            raise InvalidArgument(f"timeout: {wanted} microseconds, expected 0 (none) or more")
        seconds = min(seconds, wanted / 1e6) if wanted else seconds
    if seconds <= 0:
        raise MissedDeadline("timeout: the deadline has passed")
    return seconds


def _priority(request: Message) -> int:
    """KServe's: 1 is served first; 0 or none is the usual one."""
    if "priority" not in request.parameters:
        return DEFAULT_PRIORITY
    word = request.parameters["priority"]
    kind = word.WhichOneof("parameter_choice")
    if kind not in ("int64_param", "uint64_param") or getattr(word, kind) < 0:
        raise InvalidArgument(
            f"priority: {word}, expected an integer of 0 or more".replace("\n", "")
        )
    return int(getattr(word, kind)) or DEFAULT_PRIORITY


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
    if not key:  # 0 and "" are the protocol's words for none
        return None
    return SequenceWord(key, _flag(parameters, "sequence_start"), _flag(parameters, "sequence_end"))


def _flag(parameters: Message, name: str) -> bool:
    if name not in parameters:
        return False
    kind = parameters[name].WhichOneof("parameter_choice")
    if kind != "bool_param":
        raise InvalidArgument(f"{name}: expected a boolean, is a {kind}")
    return bool(parameters[name].bool_param)


def _with(
    behaviour: Callable[..., object], threads: ThreadPoolExecutor, *, answers_later: bool = False
) -> Callable[..., object]:
    """A behaviour that a `grpc.Server` has done by `threads`."""

    def call(*arguments: Message, **more: Message) -> object:
        return behaviour(*arguments, **more)

    call.experimental_thread_pool = threads  # type: ignore[attr-defined]
    call.experimental_non_blocking = answers_later  # type: ignore[attr-defined]
    return call
