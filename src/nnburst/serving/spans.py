"""Makes an OpenTelemetry span for each request that is read, in the trace of its caller if there is one.

OpenTelemetry's own variables configure the receiver (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, …). The
SDK's thread sends spans and drops those that exceed its buffer, so no request waits. Only `Spans` imports the
library, and so only `--spans` needs it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any, Final

from nnburst._version import __version__
from nnburst.hal.errors import InvalidArgument, NnburstError, ResourceExhausted
from nnburst.hal.utils import Closing, start_thread
from nnburst.serving.callers import Caller

logger = logging.getLogger(__name__)

#: gRPC statuses that count as errors of the server by OpenTelemetry's conventions.
_FAULTS: Final = frozenset(
    ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
)
#: Greatest length of a model's name, which the caller chooses.
_LONGEST: Final = 200
#: Seconds that the process waits at its end for unsent spans.
_PARTING: Final = 2.0


class Spans(Closing):
    """Makes spans. Thread-safe."""

    def __init__(self, exporter: Any) -> None:  # noqa: ANN401 - a SpanExporter of the SDK
        """Send spans by `exporter`, which is closed with this object."""
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "nnburst"}))
        resource = Resource({SERVICE_VERSION: __version__}).merge(resource)
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("nnburst.serving", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._nowhere = Context()
        self._server, self._error = trace.SpanKind.SERVER, trace.StatusCode.ERROR

    def begin(self, caller: Caller | None, model: str, began_ns: int) -> RequestSpan:
        """Begin the span of a request, which must call `record` once.

        Args:
            caller: caller with the trace.
            model: name of the requested model.
            began_ns: time of arrival on CLOCK_MONOTONIC.
        """
        return RequestSpan(self, caller, model, began_ns)

    def close(self) -> None:
        """Send the remaining spans, for at most `_PARTING` seconds; twice is fine."""
        ending = threading.Thread(target=self._provider.shutdown, name="spans end", daemon=True)
        try:
            start_thread(ending)
        except ResourceExhausted as error:
            logger.warning("spans are lost: %s", error)
            return
        ending.join(_PARTING)  # a receiver that does not answer must not delay the end

    def _record(
        self, trace: dict[str, str], attributes: dict[str, Any], status: str, took_ns: int
    ) -> None:
        now_ns = time.time_ns()
        span = self._tracer.start_span(
            "ModelInfer",
            # TRUST: the caller's headers; if they are not a valid W3C trace, a new trace begins.
            self._propagator.extract(trace, self._nowhere),
            self._server,
            {f"nnburst.{name}": value for name, value in attributes.items()},
            start_time=now_ns - took_ns,
        )
        if status in _FAULTS:
            span.set_status(self._error, status)
        span.end(now_ns)


class RequestSpan:
    """The span of one request. It is made when the request is answered, so it costs nothing until then."""

    def __init__(self, spans: Spans, caller: Caller | None, model: str, began_ns: int) -> None:
        """Use `Spans.begin`."""
        self._spans, self._model, self._began_ns = spans, model, began_ns
        self._protocol = caller.protocol if caller is not None else ""
        self._trace = caller.trace() if caller is not None else {}

    def record(self, status: str, version: int, queue_ns: int, inference_ns: int) -> None:
        """Make the span.

        Args:
            status: gRPC's name of the status.
            version: version of the model; 0 if not known.
            queue_ns: nanoseconds until a lane was free; 0 if it never was.
            inference_ns: nanoseconds of the execution; 0 without one.
        """
        attributes = {
            "protocol": self._protocol,
            "model": self._model[:_LONGEST],
            "version": version,
            "status": status,
            "queue_seconds": queue_ns / 1e9,
            "inference_seconds": inference_ns / 1e9,
        }
        took_ns = time.monotonic_ns() - self._began_ns
        self._spans._record(self._trace, attributes, status, took_ns)


def otlp_spans() -> Spans:
    """Make spans that are sent by OTLP, over gRPC unless OpenTelemetry's variables choose HTTP.

    Raises:
        InvalidArgument: the library does not take a variable's value.
    """
    try:
        return Spans(_otlp_exporter())
    except (ImportError, NnburstError):
        raise
    except Exception as error:  # the library has errors of several kinds for its variables
        names = ", ".join(sorted(name for name in os.environ if name.startswith("OTEL_")))
        raise InvalidArgument(
            f"--spans: OpenTelemetry does not start with its variables ({names or 'none is set'}): {error}"
        ) from error


def _otlp_exporter() -> Any:  # noqa: ANN401 - a SpanExporter of the SDK
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter as OverHttp,
        )

        return OverHttp()
    if protocol != "grpc":
        raise InvalidArgument(
            f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol!r}, expected grpc or http/protobuf"
        )
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

    return OverGrpc()
