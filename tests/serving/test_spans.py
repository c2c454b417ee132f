"""Each request has one span, in its caller's trace; without --spans nothing of OpenTelemetry is there."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("aiohttp", reason="extra http is not installed")
pytest.importorskip("opentelemetry.sdk", reason="extra otel is not installed")
pytest.importorskip("opentelemetry.exporter.otlp", reason="extra otel is not installed")

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.serving.callers import HttpCaller
from nnburst.serving.spans import Spans, otlp_spans
from serving.served import PATIENCE, Served
from serving.test_http import addition, send
from serving.test_known_requests import Answer, Differing, request, serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def traceparent(trace: str = TRACE, flags: str = "01") -> str:
    return f"00-{trace}-{PARENT}-{flags}"


# -- in this process ---------------------------------------------------------------------------------


class Refused(Answer):
    """Keeps an error, too."""

    error: NnburstError | None = None

    def fail(self, error: NnburstError) -> None:
        self.error = error


def attributes(span: Any) -> dict[str, Any]:
    return {name.removeprefix("nnburst."): value for name, value in span.attributes.items()}


def ask(spans: Spans, message: Any, headers: dict[str, str], *, cancel: bool = False) -> None:
    job = serving(Differing(), spans=spans).read(
        message, None, HttpCaller(None, headers), Refused()
    )
    if job is not None and cancel:
        job.cancel()
    if job is not None:
        job.submit()


def made(*asked: tuple[Any, dict[str, str]], cancel: bool = False) -> Sequence[Any]:
    """The spans of requests."""
    exporter = InMemorySpanExporter()
    with Spans(exporter) as spans:
        for message, headers in asked:
            ask(spans, message, headers, cancel=cancel)
    return exporter.get_finished_spans()


GOOD = request({"a": [3, 4], "b": [1, 1]})


def test_span_has_model_times_and_status_and_lies_in_the_callers_trace() -> None:
    (span,) = made((GOOD, {"traceparent": traceparent(), "tracestate": "vendor=1"}))
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.context.trace_state.get("vendor") == "1"
    found = attributes(span)
    assert found["model"] == "differing"
    assert (found["version"], found["status"], found["protocol"]) == (1, "OK", "http")
    lasted = (span.end_time - span.start_time) / 1e9
    assert 0 <= found["queue_seconds"] <= lasted
    assert 0 <= found["inference_seconds"] <= lasted
    assert span.status.status_code is StatusCode.UNSET
    assert span.resource.attributes["service.name"] == "nnburst"


def test_service_has_the_name_that_opentelemetrys_variable_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "vision")
    (span,) = made((GOOD, {}))
    assert span.resource.attributes["service.name"] == "vision"


@pytest.mark.parametrize(
    "words", ["", "00", "00-x-y-01", traceparent("0" * 32), "\0\xff" * 1000, "-" * 5000]
)
def test_words_that_are_not_a_trace_begin_a_new_one(words: str) -> None:
    (span,) = made((GOOD, {"traceparent": words, "tracestate": words}))
    assert span.parent is None
    assert attributes(span)["status"] == "OK"


def test_caller_that_does_not_sample_gets_no_span() -> None:
    assert made((GOOD, {"traceparent": traceparent(flags="00")})) == ()


@pytest.mark.parametrize(
    ("message", "status", "model"),
    [
        (request({"a": [1], "c": [1]}), "INVALID_ARGUMENT", "differing"),
        (service_pb2.ModelInferRequest(model_name="x" * 5000), "NOT_FOUND", "x" * 200),
    ],
)
def test_refused_requests_have_spans_with_their_status(
    message: Any, status: str, model: str
) -> None:
    (span,) = made((message, {"traceparent": traceparent()}))
    found = attributes(span)
    assert (found["status"], found["model"]) == (status, model)
    assert span.status.status_code is StatusCode.UNSET, "the caller's fault is not an error of ours"


def test_cancelled_request_has_one_span() -> None:
    (span,) = made((GOOD, {}), cancel=True)
    assert attributes(span)["status"] == "CANCELLED"


def test_receiver_that_does_not_answer_holds_up_neither_requests_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from nnburst.serving import spans as module

    monkeypatch.setattr(module, "_PARTING", 0.05)
    answer = threading.Event()

    class Stuck(SpanExporter):
        def export(self, _spans: Sequence[Any]) -> SpanExportResult:
            answer.wait(PATIENCE)
            return SpanExportResult.SUCCESS

    spans = Spans(Stuck())
    for _ in range(100):
        ask(spans, GOOD, {})
    spans.close()
    assert not answer.is_set(), "it ended while the receiver was stuck"
    answer.set()


def test_protocol_that_is_not_there_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    with pytest.raises(InvalidArgument, match="OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json'"):
        otlp_spans()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "x"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "bogus"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1"),
    ],
)
def test_value_that_opentelemetry_refuses_is_one_line_with_the_option_and_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match=f"^--spans: .*{name}.*: .+$"):
        otlp_spans()


def test_without_spans_nothing_of_opentelemetry_is_imported() -> None:
    script = (
        "import nnburst.serving.front, nnburst.serving.servers, nnburst.serving.http_server, sys\n"
    )
    script += "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stdout.strip() == "[]"


# -- to a receiver -----------------------------------------------------------------------------------

Received = queue.SimpleQueue[Any]


@contextmanager
def over_grpc(received: Received) -> Iterator[int]:
    class Service(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
        def Export(self, asked: Any, _context: Any) -> Any:  # noqa: N802
            received.put(asked)
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@contextmanager
def over_http(received: Received) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            received.put(trace_service_pb2.ExportTraceServiceRequest.FromString(data))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def spans_of(received: Received, count: int) -> list[Any]:
    """So many spans as they come, and those beyond that came with them."""
    found: list[Any] = []
    while len(found) < count:
        asked = received.get(timeout=PATIENCE)
        for resource in asked.resource_spans:
            for scope in resource.scope_spans:
                found.extend(scope.spans)
    return found


@pytest.mark.every_day("grpc-over_grpc")
@pytest.mark.parametrize(
    ("protocol", "receiver"), [("grpc", over_grpc), ("http/protobuf", over_http)]
)
def test_a_receiver_gets_one_span_for_each_request_of_both_protocols(
    monkeypatch: pytest.MonkeyPatch, protocol: str, receiver: Any
) -> None:
    received: Received = queue.SimpleQueue()
    with receiver(received) as port:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        with Served("--spans", "--http", "127.0.0.1:0", models=("add",)) as served:
            traces = [f"{number:032x}" for number in range(1, 5)]
            message = service_pb2.ModelInferRequest(model_name="add")
            for name in "ab":
                message.inputs.add(name=name, datatype="FP32", shape=[2, 3])
                message.raw_input_contents.append(np.ones(6, "<f4").tobytes())
            with grpc.insecure_channel(served.address) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                stub.ModelInfer(
                    message, metadata=[("traceparent", traceparent(traces[0]))], timeout=PATIENCE
                )
                stream = stub.ModelStreamInfer(
                    iter([message, service_pb2.ModelInferRequest(model_name="nowhere")]),
                    metadata=[("traceparent", traceparent(traces[1]))],
                    timeout=PATIENCE,
                )
                assert len(list(stream)) == 2
            for trace, shape in ((traces[2], 1.0), (traces[3], "no number")):
                send(
                    served.http,
                    "POST",
                    "/v2/models/add/infer",
                    addition(shape),  # type: ignore[arg-type]
                    {"traceparent": traceparent(trace)},
                )
            assert send(served.http, "GET", "/v2/models/add")[0] == 200  # has no span
        spans = spans_of(received, 4)  # the front has sent what it had when it ended
    found = sorted(
        (
            span.trace_id.hex(),
            *(
                each.value.string_value
                for each in span.attributes
                if each.key in ("nnburst.protocol", "nnburst.status")
            ),
        )
        for span in spans
    )
    assert found == [
        (traces[0], "grpc", "OK"),
        (traces[1], "grpc", "NOT_FOUND"),
        (traces[1], "grpc", "OK"),
        (traces[2], "http", "OK"),
    ]
    assert {span.parent_span_id.hex() for span in spans} == {PARENT}
    assert received.empty()
