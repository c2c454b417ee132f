"""Series of the driver's own counts: executions by bursts and by the socket, of all clients.

As many as a supervisor tells models apart, whatever clients prepare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from nnburst.control.counts import BUCKET_ENDS, DurationCounts, ModelCounts, ServiceCounts
from nnburst.hal.enums import ErrorStatus

_ENDS: Final = (*(repr(end) for end in BUCKET_ENDS), "+Inf")
#: The label of all models that are not told apart.
OTHERS: Final = "other"


def execution_metrics(counts: ServiceCounts, names: Mapping[int, str]) -> Iterator[Any]:
    """Prometheus' families of `counts`; models have those of `names`, or their numbers."""
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
    in_flight = GaugeMetricFamily(
        "nnburst_executions_in_flight", "executions now", labels=("model",)
    )
    queue_full = CounterMetricFamily(
        "nnburst_queue_full", "results that waited for room in their queue", labels=("model",)
    )
    device = HistogramMetricFamily(
        "nnburst_device_seconds", "time in the executor, sampled", labels=("model",)
    )
    driver = HistogramMetricFamily(
        "nnburst_driver_seconds",
        "from a request's arrival to its result, sampled",
        labels=("model",),
    )
    for label, each in models:
        for status, count in enumerate(each.statuses):
            if count or status == ErrorStatus.NONE:
                executions.add_metric((label, ErrorStatus(status).name), count)
        in_flight.add_metric((label,), each.in_flight)
        queue_full.add_metric((label,), each.queue_full)
        device.add_metric((label,), *_in_seconds(each.device))
        driver.add_metric((label,), *_in_seconds(each.driver))
    yield from (executions, in_flight, queue_full, device, driver)


def _label(counts: ModelCounts, names: Mapping[int, str]) -> str:
    if counts.model == 0:
        return OTHERS
    return names.get(counts.model, f"{counts.model:016x}")


def _in_seconds(durations: DurationCounts) -> tuple[list[tuple[str, float]], float]:
    """Cumulative buckets and the sum, as Prometheus has them."""
    below = accumulate(float(count) for count in durations.counts)
    return list(zip(_ENDS, below, strict=True)), durations.total_ns / 1e9
