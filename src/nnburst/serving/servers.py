"""Both protocols over one service: they begin together, share threads, and end in one order."""

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
    """The servers of both protocols; nothing is answered before `start`."""

    def __init__(
        self,
        options: Options,
        models: Models,
        clock: Clock,
        tokens: Tokens | None,
        spans: Spans | None,
        metrics: Callable[[], bytes] | None,
    ) -> None:
        """Take the addresses.

        Args:
            options: which protocols, where, and how much at once.
            models: that are served.
            clock: is started; it looks at them.
            tokens: one of which every call needs that is not about health; None asks for none.
            spans: has one made for each request; None makes none.
            metrics: makes what /metrics answers; None is not found.

        Raises:
            DeviceUnavailable: an address is taken, or not this machine's.
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
            from nnburst.serving.http_server import HttpServer  # a library that gRPC does not need

            try:
                self._http = HttpServer(options, self._service, threads, tokens, metrics)
            except NnburstError:
                self._end_grpc()
                raise
        clock.start([self._service.look, models.look])

    @property
    def addresses(self) -> dict[str, str]:
        """Where each protocol is served, by its name."""
        servers = {"gRPC": self._grpc, "HTTP": self._http}
        return {name: each.address for name, each in servers.items() if each is not None}

    def start(self) -> None:
        """Answer from here on, and load the models."""
        self._models.on_change = self._report_health
        self._report_health()
        for each in (self._grpc, self._http):
            if each is not None:
                each.start()
        self._models.start()

    def close(self, seconds: float) -> None:
        """Be not ready and begin nothing more; what is here has `seconds`.

        grpcio cuts calls off as CANCELLED that come while it ends. So those that come are held for a moment,
        which callers that wait for answers spend waiting; then every connection is told to go, and only then
        are those calls refused: who tries them again does so elsewhere.
        """
        self._service.park()
        if self._grpc is not None:
            self._grpc.part()
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
