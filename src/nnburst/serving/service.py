"""The calls of KServe v2, `inference.GRPCInferenceService`.

What is not here is refused by its name: UNIMPLEMENTED. So are BYTES, classification and CUDA's memory.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import grpc
from tritonclient.grpc import service_pb2

import nnburst
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import (
    Closed,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.serving import descriptions
from nnburst.serving.known_requests import KnownRequests, response_for
from nnburst.serving.messages import Context, Message
from nnburst.serving.network import Network, SequenceWord
from nnburst.serving.regions import Regions
from nnburst.serving.statistics import Durations
from nnburst.serving.tensors import read_inputs, wanted_outputs

logger = logging.getLogger(__name__)

NAME: Final = "inference.GRPCInferenceService"
#: Seconds for requests without a deadline.
LONGEST: Final = 30.0
_STATUSES: Final[Mapping[ErrorStatus, grpc.StatusCode]] = {
    ErrorStatus.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorStatus.DEAD_OBJECT: grpc.StatusCode.UNAVAILABLE,
    ErrorStatus.DEVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class UnknownModel(InvalidArgument):
    """No model of this name and version is served."""


def status_of(error: NnburstError) -> grpc.StatusCode:
    """The one gRPC status for an error of ours."""
    if isinstance(error, UnknownModel):
        return grpc.StatusCode.NOT_FOUND
    if isinstance(error, Closed):  # callers close nothing: another request has replaced what died
        return grpc.StatusCode.UNAVAILABLE
    return _STATUSES.get(error.status, grpc.StatusCode.INTERNAL)


class InferenceService:
    """The protocol over the models of one driver. Thread-safe; methods have the protocol's names."""

    def __init__(
        self, networks: Mapping[str, Network], regions: Regions | None, max_streams: int
    ) -> None:
        """Serve `networks`.

        Args:
            networks: by name.
            regions: for callers on this machine; None is switched off.
            max_streams: streams at once.
        """
        self._networks = networks
        self._regions = regions
        self._streams = threading.Semaphore(max_streams)
        self._known = KnownRequests()

    def handlers(self) -> Message:
        """All calls of the protocol for a `grpc.Server`; those without a method here are refused."""
        described = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        found = {}
        for method in described.methods:
            behaviour = getattr(self, method.name, None)
            streams = method.client_streaming
            make = (
                grpc.stream_stream_rpc_method_handler
                if streams
                else grpc.unary_unary_rpc_method_handler
            )
            guarded = _stream(behaviour) if streams else _unary(method.name, behaviour)
            found[method.name] = make(
                guarded,
                request_deserializer=getattr(service_pb2, method.input_type.name).FromString,
                response_serializer=getattr(service_pb2, method.output_type.name).SerializeToString,
            )
        return grpc.method_handlers_generic_handler(NAME, found)

    def ServerLive(self, _request: Message, _context: Context) -> Message:  # noqa: N802
        """The front is there."""
        return service_pb2.ServerLiveResponse(live=True)

    def ServerReady(self, _request: Message, _context: Context) -> Message:  # noqa: N802
        """Every model is ready."""
        ready = all(network.is_ready for network in self._networks.values())
        return service_pb2.ServerReadyResponse(ready=ready)

    def ServerMetadata(self, _request: Message, _context: Context) -> Message:  # noqa: N802
        """What this is, and which extensions of the protocol it has."""
        extensions = ["model_configuration", "sequence", "statistics"]
        if self._regions is not None:
            extensions.append("system_shared_memory")
        return service_pb2.ServerMetadataResponse(
            name="nnburst", version=nnburst.__version__, extensions=extensions
        )

    def ModelReady(self, request: Message, _context: Context) -> Message:  # noqa: N802
        """Whether a model is ready; not found if no model has this name."""
        network = self._network(request.name, request.version)
        return service_pb2.ModelReadyResponse(ready=network.is_ready)

    def ModelMetadata(self, request: Message, _context: Context) -> Message:  # noqa: N802
        """Names, types and shapes."""
        return descriptions.metadata(self._network(request.name, request.version))

    def ModelConfig(self, request: Message, _context: Context) -> Message:  # noqa: N802
        """The configuration as Triton has it."""
        return descriptions.config(self._network(request.name, request.version))

    def ModelStatistics(self, request: Message, _context: Context) -> Message:  # noqa: N802
        """Counts and durations of one model, or of all if no name is given."""
        if request.name:
            return descriptions.statistics([self._network(request.name, request.version)])
        return descriptions.statistics(list(self._networks.values()))

    def ModelInfer(self, request: Message, context: Context) -> Message:  # noqa: N802
        """Execute once, by the RPC's deadline."""
        return self._infer(request, context.time_remaining(), self._regions_for(context))

    def ModelStreamInfer(self, requests: Iterator[Message], context: Context) -> Iterator[Message]:  # noqa: N802
        """Execute one after the other; what fails is answered with its error, and the stream goes on."""
        if not self._streams.acquire(blocking=False):
            raise ResourceExhausted("as many streams are open as are served at once")
        try:
            regions = self._regions_for(context)
            for request in requests:
                response = service_pb2.ModelStreamInferResponse()
                try:
                    inferred = self._infer(request, context.time_remaining(), regions)
                    response.infer_response.CopyFrom(inferred)
                except NnburstError as error:
                    response.error_message = f"[{status_of(error).name}] {error}"
                    response.infer_response.id = request.id
                    response.infer_response.model_name = request.model_name
                if "triton_enable_empty_final_response" in request.parameters:
                    response.infer_response.parameters["triton_final_response"].bool_param = True
                yield response
        finally:
            self._streams.release()

    def SystemSharedMemoryRegister(self, request: Message, context: Context) -> Message:  # noqa: N802
        """Open shared memory of this user by its name."""
        regions = self._regions_or_refuse(context)
        regions.register(request.name, request.key, request.offset, request.byte_size)
        return service_pb2.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(self, request: Message, context: Context) -> Message:  # noqa: N802
        """Close one, or all."""
        self._regions_or_refuse(context).unregister(request.name)
        return service_pb2.SystemSharedMemoryUnregisterResponse()

    def SystemSharedMemoryStatus(self, request: Message, context: Context) -> Message:  # noqa: N802
        """What is registered."""
        response = service_pb2.SystemSharedMemoryStatusResponse()
        for name, region in self._regions_or_refuse(context).listed(request.name).items():
            status = response.regions[name]
            status.name, status.key = name, region.key
            status.offset, status.byte_size = region.offset, region.size
        return response

    def CudaSharedMemoryStatus(self, _request: Message, _context: Context) -> Message:  # noqa: N802
        """No repository: what stock clients look at before they start."""
        return service_pb2.CudaSharedMemoryStatusResponse()

    def _infer(self, request: Message, remaining: float | None, regions: Regions | None) -> Message:
        began = time.monotonic_ns()
        known, key, raw = self._known.find(request)
        network = (
            known.network
            if known is not None
            else self._network(request.model_name, request.model_version)
        )
        network.statistics.begin()
        try:
            timeout = _timeout(request, remaining)
            if not network.is_ready:
                network.execute((), (), timeout, None)  # has the reason
            if known is not None:
                wanted, arrays, sequence = known.wanted, known.arrays(raw), None
            else:
                wanted = wanted_outputs(request, network.outputs, regions)
                arrays = read_inputs(request, network.inputs, regions)
                sequence = _sequence(request)
                self._known.add(key, request, network, arrays, wanted)
            reading = time.monotonic_ns() - began
            executed = network.execute(arrays, [each.index for each in wanted], timeout, sequence)
            if known is not None:
                response = known.answer(request.id, executed.values)
            else:
                response = response_for(network, request.id, wanted, executed.values, regions)
        except NnburstError as error:
            network.statistics.fail(status_of(error).name, time.monotonic_ns() - began)
            raise
        except BaseException:
            network.statistics.fail("UNKNOWN", time.monotonic_ns() - began)
            raise
        total = time.monotonic_ns() - began
        network.statistics.succeed(
            Durations(executed.queue_ns, executed.inference_ns, total, reading)
        )
        return response

    def _network(self, name: str, version: str) -> Network:
        network = self._networks.get(name)
        if network is None or version not in ("", descriptions.VERSION):
            raise UnknownModel(f"model {name!r} of version {version or 'any'} is not served")
        return network

    def _regions_for(self, context: Context) -> Regions | None:
        return self._regions if self._regions is not None and is_local(context.peer()) else None

    def _regions_or_refuse(self, context: Context) -> Regions:
        regions = self._regions_for(context)
        if regions is None:
            raise InvalidArgument(
                "shared memory is switched off (--grpc-shared-memory), or the caller is not local"
            )
        return regions


def is_local(peer: str) -> bool:
    """Whether gRPC's name of a caller is one on this machine: `ipv4:127.0.0.1:5`, `ipv6:[::1]:5`."""
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    if kind == "unix":
        return True
    host = rest.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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


def _sequence(request: Message) -> SequenceWord | None:
    parameters = request.parameters
    if "sequence_id" not in parameters:
        return None
    word = parameters["sequence_id"]
    key = getattr(word, word.WhichOneof("parameter_choice") or "int64_param")
    if not key:  # 0 and "" are the protocol's words for none
        return None
    starts, ends = (
        name in parameters and parameters[name].bool_param
        for name in ("sequence_start", "sequence_end")
    )
    return SequenceWord(key, starts, ends)


def _unary(
    name: str, behaviour: Callable[[Message, Message], Message] | None
) -> Callable[[Message, Message], Message]:
    def call(request: Message, context: Context) -> Message:
        if behaviour is None:
            context.abort(
                grpc.StatusCode.UNIMPLEMENTED, f"{name} is not part of what nnburst serves"
            )
        try:
            return behaviour(request, context)  # type: ignore[misc] # abort does not return
        except NnburstError as error:
            context.abort(status_of(error), str(error))

    return call


def _stream(
    behaviour: Callable[[Iterator[Message], Message], Iterator[Message]] | None,
) -> Callable[[Iterator[Message], Message], Iterator[Message]]:
    def call(requests: Iterator[Message], context: Context) -> Iterator[Message]:
        try:
            if behaviour is not None:
                yield from behaviour(requests, context)
        except NnburstError as error:
            context.abort(status_of(error), str(error))

    return call
