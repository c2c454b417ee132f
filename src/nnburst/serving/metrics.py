"""Publishes counters of the front and of its driver in Prometheus' format.

The number of series is bounded, whatever clients send: served models × gRPC statuses, and three histograms
of each model. The driver's counters count executions over bursts and over the socket, of all clients, for as
many models as the supervisor counts separately.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec

from nnburst.control.counts import (
    BUCKET_ENDS,
    MAX_ANSWER,
    QUESTION_BYTES,
    ModelCounts,
    ServiceCounts,
)
from nnburst.hal.enums import ErrorStatus
from nnburst.serving.models import Models
from nnburst.serving.statistics import BOUNDS, totals

#: Seconds within which the supervisor must answer.
_PATIENCE: Final = 5.0
_decode: Final = msgspec.msgpack.Decoder(ServiceCounts).decode


class DriverCounts:
    """Asks the supervisor for its counters over a socket. Thread-safe."""

    def __init__(self, fd: int) -> None:
        """Own descriptor `fd`."""
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()

    def tell(self, news: bytes) -> None:
        """Tell the supervisor `STARTING` or `LISTENING`."""
        with self._lock, contextlib.suppress(OSError):  # the supervisor is ending
            self._socket.settimeout(_PATIENCE)
            self._socket.send(news)

    def ask(self) -> ServiceCounts | None:
        """Ask for all present counters; None if the supervisor does not answer in time."""
        with self._lock:
            question = os.urandom(QUESTION_BYTES)
            deadline = time.monotonic() + _PATIENCE
            try:
                self._socket.settimeout(_PATIENCE)
                self._socket.send(question)
                while (left := deadline - time.monotonic()) > 0:
                    self._socket.settimeout(left)
                    answer = self._socket.recv(MAX_ANSWER)
                    # A late answer belongs to an earlier question.
                    if answer[:QUESTION_BYTES] == question:
                        return _decode(answer[QUESTION_BYTES:])
            except (OSError, msgspec.MsgspecError):
                pass  # the scrape lacks these counters
            return None


#: Upper ends of the buckets in seconds, as labels: for the driver's histograms, and for the front's.
_DRIVER_ENDS: Final = (*map(repr, BUCKET_ENDS), "+Inf")
_FRONT_ENDS: Final = (*(repr(bound / 1e9) for bound in BOUNDS), "+Inf")
_LABELS: Final = ("model",)
#: The label of all models that are not counted separately.
OTHERS: Final = "other"


def execution_metrics(counts: ServiceCounts, names: Mapping[int, str]) -> Iterator[Any]:
    """Make Prometheus' families of `counts`; models are labelled by `names`, else by their numbers."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, what, value in (
        ("worker_deaths", "workers that have failed", counts.deaths),
        ("front_restarts", "times that the front was started again", counts.restarts),
        ("cache_hits", "models prepared from files of a compilation cache", counts.cache_hits),
        ("cache_misses", "files of a compilation cache that were refused", counts.cache_misses),
    ):
        yield CounterMetricFamily(f"nnburst_{name}", what, value=value)
    yield GaugeMetricFamily("nnburst_clients", "connected now", value=counts.clients)
    yield from _by_model([(_label(each, names), each) for each in counts.models])


def _by_model(models: list[tuple[str, ModelCounts]]) -> Iterator[Any]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    executions = CounterMetricFamily(
        "nnburst_executions", "executions by status", labels=("model", "status")
    )
    in_flight = GaugeMetricFamily("nnburst_executions_in_flight", "executions now", labels=_LABELS)
    queue_full = CounterMetricFamily(
        "nnburst_queue_full", "results that waited for room in their queue", labels=_LABELS
    )
    device = HistogramMetricFamily(
        "nnburst_device_seconds", "time in the executor, sampled", labels=_LABELS
    )
    driver = HistogramMetricFamily(
        "nnburst_driver_seconds", "from a request's arrival to its result, sampled", labels=_LABELS
    )
    for label, each in models:
        for status, count in enumerate(each.statuses):
            if count or status == ErrorStatus.NONE:
                executions.add_metric((label, ErrorStatus(status).name), count)
        in_flight.add_metric((label,), each.in_flight)
        queue_full.add_metric((label,), each.queue_full)
        for durations, family in ((each.device, device), (each.driver, driver)):
            found = _in_seconds(_DRIVER_ENDS, durations.counts, durations.total_ns)
            family.add_metric((label,), *found)
    yield from (executions, in_flight, queue_full, device, driver)


def _label(counts: ModelCounts, names: Mapping[int, str]) -> str:
    if counts.model == 0:
        return OTHERS
    return names.get(counts.model, f"{counts.model:016x}")


def _in_seconds(
    ends: Sequence[str], counts: Sequence[int], total_ns: int
) -> tuple[list[tuple[str, float]], float]:
    """Cumulative buckets and the sum, in Prometheus' form."""
    below = accumulate(float(count) for count in counts)
    return list(zip(ends, below, strict=True)), total_ns / 1e9


class _Collector:
    """Reads the counters at each scrape."""

    def __init__(self, models: Models, driver: DriverCounts | None) -> None:
        self._models = models
        self._driver = driver

    def collect(self) -> Iterator[Any]:
        yield from self._requests()
        counts = self._driver.ask() if self._driver is not None else None
        if counts is not None:
            networks = self._models.served.networks()
            names = {network.model_id: network.name for network in networks}
            yield from execution_metrics(counts, names)

    def _requests(self) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        requests = CounterMetricFamily(
            "nnburst_requests", "requests by status", labels=("model", "status")
        )
        in_flight = GaugeMetricFamily("nnburst_in_flight", "requests now", labels=_LABELS)
        waiting = GaugeMetricFamily("nnburst_waiting", "requests in the queue now", labels=_LABELS)
        ready = GaugeMetricFamily("nnburst_ready", "1 if the model is served", labels=_LABELS)
        sequences = GaugeMetricFamily("nnburst_sequences", "states held now", labels=_LABELS)
        deaths = CounterMetricFamily(
            "nnburst_recoveries", "times that the model was prepared again", labels=_LABELS
        )
        durations = {
            name: HistogramMetricFamily(f"nnburst_{name}_seconds", what, labels=_LABELS)
            for name, what in (
                ("queue", "from the request's arrival until its execution begins"),
                ("inference", "of the execution, as the front sees it"),
                ("total", "from the request's arrival to its answer"),
            )
        }
        for name, versions in self._models.statistics().items():
            counted = totals(versions)
            for status, count in counted.statuses.items():
                requests.add_metric((name, status), count)
            in_flight.add_metric((name,), counted.in_flight)
            for which, family in durations.items():
                histogram = counted.histograms[which]
                found = _in_seconds(_FRONT_ENDS, histogram.counts, histogram.total)
                family.add_metric((name,), *found)
        for name, model in self._models.served.models.items():
            networks = model.versions.values()
            waiting.add_metric((name,), sum(len(each.queue) for each in networks))
            ready.add_metric((name,), model.is_ready)
            sequences.add_metric((name,), sum(each.sequences for each in networks))
            deaths.add_metric((name,), sum(each.recoveries for each in networks))
        yield from (requests, in_flight, waiting, ready, sequences, deaths, *durations.values())


def metrics_text(models: Models, driver: DriverCounts | None) -> Callable[[], bytes]:
    """Return a function that makes the text of all present metrics.

    Args:
        models: the models of the front; versions of a model are counted together.
        driver: gives the counters of the driver; None without a supervisor.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(models, driver))
    return lambda: bytes(generate_latest(registry))
