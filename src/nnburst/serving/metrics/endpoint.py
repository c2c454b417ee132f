"""Prometheus' text of what the front has counted, over HTTP, for programs of this user on this host.

Series: models that are served × statuses of gRPC, and three histograms of each model, whatever clients send;
beside them what the driver's workers have counted of all executions (`executions`).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from nnburst.hal.errors import DeviceUnavailable
from nnburst.serving.metrics.driver_counts import DriverCounts
from nnburst.serving.metrics.executions import execution_metrics
from nnburst.serving.network import Network
from nnburst.serving.statistics import BOUNDS, Histogram

#: Seconds that a scraper has to send its request.
_PATIENCE: Final = 5.0
_LABELS: Final = ("model",)


class _Collector:
    """Reads the counters when it is asked."""

    def __init__(self, networks: Mapping[str, Network], driver: DriverCounts | None) -> None:
        self._networks = networks
        self._driver = driver

    def collect(self) -> Iterator[Any]:
        yield from self._requests()
        counts = self._driver.ask() if self._driver is not None else None
        if counts is not None:
            names = {network.model_id: name for name, network in self._networks.items()}
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
        for name, network in self._networks.items():
            statuses, now, histograms = network.statistics.snapshot()
            for status, count in statuses.items():
                requests.add_metric((name, status), count)
            in_flight.add_metric((name,), now)
            ready.add_metric((name,), network.is_ready)
            sequences.add_metric((name,), network.sequences)
            deaths.add_metric((name,), network.recoveries)
            for which, family in durations.items():
                family.add_metric((name,), *_in_seconds(histograms[which]))
        yield from (requests, in_flight, ready, sequences, deaths, *durations.values())


def _in_seconds(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Cumulative buckets and the sum, as Prometheus has them."""
    found, below = [], 0
    for bound, count in zip((*BOUNDS, None), histogram.counts, strict=True):
        below += count
        found.append(("+Inf" if bound is None else repr(bound / 1e9), float(below)))
    return found, histogram.total / 1e9


def serve_metrics(
    address: str, networks: Mapping[str, Network], driver: DriverCounts | None
) -> str:
    """Answer scrapers at `address` from a thread of their own; the address as it is.

    Args:
        address: "HOST:PORT".
        networks: those that the front serves, by name.
        driver: what is asked for the counts of the driver; None without a supervisor.

    Raises:
        DeviceUnavailable: the address is taken.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(networks, driver))

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def do_GET(self) -> None:
            if not _is_ours(self.client_address[1], self.connection.getsockname()[1]):
                self.send_error(403, "for the user of the service only")
                return
            if self.path not in ("/metrics", "/"):
                self.send_error(404)
                return
            text = generate_latest(registry)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Scrapes are no news."""

    host, _, port = address.rpartition(":")
    server_class = type("Server", (ThreadingHTTPServer,), {"address_family": _family(host)})
    try:
        server = server_class((host.strip("[]"), int(port)), Handler)
    except OSError as error:
        raise DeviceUnavailable(f"--metrics: {address} cannot be served: {error}") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return f"{host}:{server.server_address[1]}"


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_ours(client_port: int, server_port: int) -> bool:
    """Whether the client's end of a connection on this host is a socket of this user or root's."""
    wanted = (f":{client_port:04X}", f":{server_port:04X}")
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted[0]) and fields[2].endswith(wanted[1]):
                return int(fields[7]) in (0, os.getuid())
    return False
