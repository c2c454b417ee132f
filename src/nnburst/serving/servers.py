"""Serves both protocols over one service: they start together, share threads, and end in a fixed order."""

from __future__ import annotations

import time
from collections.abc import Callable

from nnburst.hal.errors import NnburstError
from nnburst.serving.credentials import Tokens
from nnburst.serving.models import Models
from nnburst.serving.options import Options
from nnburst.serving.queue import Clock
from nnburst.serving.regions import Regions
from nnburst.serving.server import PARTING, Readers, Server, make_threads
from nnburst.serving.service import InferenceService
from nnburst.serving.spans import Spans


class Servers:
    """The servers of both protocols; they answer nothing before `start`."""

    def __init__(
        self,
        options: Options,
        models: Models,
        clock: Clock,
        tokens: Tokens | None,
        spans: Spans | None,
        metrics: Callable[[], bytes] | None,
    ) -> None:
        """Listen at the addresses.

        Args:
            options: addresses and limits of the protocols.
            models: the served models.
            clock: clock that is started and checks the service and the models.
            tokens: tokens, one of which every call needs except health calls; None requires none.
            spans: makes a span for each request; None for no spans.
            metrics: makes the text for /metrics; None for "not found".

        Raises:
            DeviceUnavailable: an address is in use, or not this machine's.
            InvalidArgument: a file of TLS cannot be read or used.
        """
        regions = Regions(options.trusted_regions, options.max_message)
        self._models, self._lanes = models, options.lanes
        self._service = InferenceService(
            models,
            regions if options.shared_memory else None,
            options.max_streams,
            callers_load=options.model_control == "explicit",
            tokens=tokens,
            spans=spans,
        )
        self._readers = Readers()
        threads = make_threads(options, self._readers)
        self._grpc = Server(options, self._service, threads) if options.grpc else None
        self._http = None
        if options.http:
            from nnburst.serving.http_server import HttpServer  # its library is not needed for gRPC

            try:
                self._http = HttpServer(options, self._service, threads, tokens, metrics)
            except NnburstError:
                self._end_grpc()
                raise
        looks = [self._grpc.look] if self._grpc is not None else []
        clock.start([*looks, models.look])

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each protocol, by the protocol's name."""
        servers = {"gRPC": self._grpc, "HTTP": self._http}
        return {name: each.address for name, each in servers.items() if each is not None}

    def start(self) -> None:
        """Begin to answer, and load the models."""
        self._models.on_change = self._report_health
        self._report_health()
        for each in (self._grpc, self._http):
            if each is not None:
                each.start()
        self._models.start()

    def close(self, seconds: float) -> None:
        """Report "not ready" and begin no new requests; requests under way have `seconds`.

        grpcio ends calls that arrive while it stops with CANCELLED. So new calls are held for a moment; then
        every connection is asked to close, and only then are the held calls refused. Clients then retry them
        at another server.
        """
        self._service.park()
        if self._grpc is not None:
            self._grpc.report_health()
        if self._http is not None:
            self._http.part()
        time.sleep(PARTING)
        if self._grpc is not None:
            self._grpc.begin_end(seconds)
        self._service.release()
        self._service.wait_until_idle(seconds)
        if self._grpc is not None:
            self._grpc.close()
        if self._http is not None:
            self._http.close(PARTING)

    def _end_grpc(self) -> None:
        if self._grpc is not None:
            self._grpc.begin_end(0)
            self._grpc.close()

    def _report_health(self) -> None:
        self._readers.serve(self._lanes * self._service.model_count)
        if self._grpc is not None:
            self._grpc.report_health()
