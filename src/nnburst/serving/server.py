"""Serves gRPC: address, TLS, limits, health, and reflection, by which tools list the calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Final

import grpc

from nnburst.hal.errors import DeviceUnavailable, ResourceExhausted
from nnburst.hal.limits import INT32_MAX
from nnburst.serving.addresses import PathLock, log_plain_text, open_to, unix_path
from nnburst.serving.callers import Caller, Context
from nnburst.serving.credentials import server_credentials
from nnburst.serving.health import HEALTH, ReportedHealth
from nnburst.serving.options import Options
from nnburst.serving.pools import Pool
from nnburst.serving.service import NAME, InferenceService, Threads
from nnburst.serving.tensors import Message

#: Number of threads that read requests, besides those that execute.
_READERS: Final = 16
#: Number of threads for calls that execute nothing: health, metadata, statistics, regions.
_CONTROL: Final = 4
#: Number of threads that wait for models to be loaded.
_LOADING: Final = 2
#: Seconds for callers to notice that the server ends, and for answers to leave.
PARTING: Final = 0.2
#: Number of threads that refuse streams beyond the limit.
_REFUSING: Final = 2
#: Greatest size of what an answer has beside its outputs' bytes, which the service limits itself: the library
#: would refuse an answer that was counted as sent.
_MOST_BESIDE: Final = 1 << 20
#: Greatest number of calls that wait for a thread; grpcio refuses more before it reads their messages.
_MOST_CALLS: Final = 20_000


class Readers(Pool):
    """Threads that read requests, and those that execute them."""

    def __init__(self) -> None:
        """Start without threads that execute."""
        super().__init__(_READERS, "inference")

    def serve(self, lanes: int) -> None:
        """Allow threads for this number of executions at once; the number never becomes smaller."""
        self._max_workers = max(self._max_workers, lanes + _READERS)


def make_threads(options: Options, readers: Readers) -> Threads:
    """Make the thread pools of a front, for both protocols.

    Raises:
        ResourceExhausted: this process may have no more threads.
    """
    return Threads(
        readers,
        Pool(options.max_streams + _REFUSING, "stream"),
        Pool(_CONTROL, "control"),
        Pool(_LOADING, "loading"),
    )


#: Services of reflection. Both versions have the same messages; newer clients ask for the second one first.
_REFLECTION: Final = (
    "grpc.reflection.v1alpha.ServerReflection",
    "grpc.reflection.v1.ServerReflection",
)


def _reflection_handlers(
    services: Sequence[str], service: InferenceService, threads: ThreadPoolExecutor
) -> dict[str, dict[str, Message]]:
    """Handlers of `grpc.Server` by the names of their services; empty without the package grpcio-reflection.

    Like inference streams, a call needs a token if there are tokens, and counts for the limit of streams.

    Args:
        services: names of the services to list.
        service: checks tokens and counts streams.
        threads: threads, one for each call.
    """
    if find_spec("grpc_reflection") is None:
        return {}
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    servicer = reflection.ReflectionServicer((*services, _REFLECTION[0]))

    def answer(requests: Iterator[Message], context: Context, _caller: Caller) -> Iterator[Message]:
        answers: Iterator[Message] = servicer.ServerReflectionInfo(requests, context)
        return answers

    handler = grpc.stream_stream_rpc_method_handler(
        service.as_stream(
            "ServerReflection",
            reflection_pb2.ServerReflectionRequest.FromString,
            answer,
            threads,
        ),
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return {name: {"ServerReflectionInfo": handler} for name in _REFLECTION}


class Server:
    """A listening gRPC server; it answers nothing before `start`."""

    def __init__(self, options: Options, service: InferenceService, threads: Threads) -> None:
        """Listen at the address; `threads` will answer calls.

        Raises:
            DeviceUnavailable: the address is in use, or not this machine's.
            InvalidArgument: a file of TLS cannot be read or used.
        """
        self._service = service
        self._lock: PathLock | None = None
        self._server: Message = grpc.server(
            threads.control,
            maximum_concurrent_rpcs=_MOST_CALLS,
            options=[
                ("grpc.max_receive_message_length", options.max_message),
                (
                    "grpc.max_send_message_length",
                    min(options.max_message + _MOST_BESIDE, INT32_MAX),
                ),
                ("grpc.max_allowed_incoming_connections", options.max_connections),
                # A model's queue refuses excess requests with a reason; the library would drop the call.
                ("grpc.server.max_pending_requests", _MOST_CALLS),
                ("grpc.server.max_pending_requests_hard_limit", _MOST_CALLS),
                ("grpc.so_reuseport", 0),  # else two fronts could share an address
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
            ],
        )
        self._health = ReportedHealth(self._readiness, threads.control, options.max_connections)
        self._server.add_registered_method_handlers(HEALTH, self._health.handlers())
        # Each registered call has its own queue, so that health does not wait behind many inferences.
        self._server.add_registered_method_handlers(NAME, service.handlers(threads))
        named = (NAME, HEALTH)
        for name, handlers in _reflection_handlers(named, service, threads.streams).items():
            self._server.add_registered_method_handlers(name, handlers)
        self.report_health()
        self.address = self._listen(options)
        host, _, port = self.address.rpartition(":")
        if unix_path(self.address) is None:
            service.address = (host, int(port))

    def start(self) -> None:
        """Begin to answer.

        Raises:
            ResourceExhausted: this process may have no more threads.
        """
        try:
            self._server.start()
        except RuntimeError as error:
            raise ResourceExhausted(f"--grpc: {self.address} cannot be served: {error}") from error

    def look(self, now_ns: int) -> float:
        """End calls whose message does not arrive; return the time of the next check."""
        return min(self._health.look(now_ns), self._service.look(now_ns))

    def report_health(self) -> None:
        """Report the present readiness of the service and its models."""
        self._health.report()

    def begin_end(self, seconds: float) -> None:
        """Ask every connection to close; requests under way have `seconds`."""
        try:
            self._ended = self._server.stop(seconds)
        except RuntimeError:  # no thread could be started to wait: `close` cuts off the rest
            self._ended = threading.Event()

    def close(self) -> None:
        """End the server, after `begin_end`."""
        if not self._ended.wait(PARTING):  # streams may stay open for ever
            self._server.stop(None).wait()
        if self._lock is not None:
            self._lock.close()

    def _readiness(self) -> dict[str, bool]:
        """For each name that health is reported of, whether it is ready."""
        is_ready = self._service.is_ready
        return {"": is_ready, NAME: is_ready, **self._service.readiness}

    def _listen(self, options: Options) -> str:
        host = options.grpc.rpartition(":")[0]
        path = unix_path(options.grpc)
        if path is not None:
            self._lock = PathLock("--grpc", path)
        try:
            if options.tls is None or path is not None:
                log_plain_text("--grpc", options.grpc)
                port = self._server.add_insecure_port(options.grpc)
            else:
                credentials = server_credentials(options.tls)
                port = self._server.add_secure_port(options.grpc, credentials)
        except (RuntimeError, ValueError) as error:
            raise DeviceUnavailable(f"--grpc: {options.grpc} cannot be served: {error}") from None
        if not port:
            raise DeviceUnavailable(
                f"--grpc: {options.grpc} is taken, or its certificate is not valid"
            )
        if path is not None:
            open_to(path, any_user=options.any_user)
            return options.grpc
        return f"{host}:{port}"
