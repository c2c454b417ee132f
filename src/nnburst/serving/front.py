"""Runs the front's process: listens, prepares models on the driver, and ends with its parent process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from nnburst.hal.environment import LOG
from nnburst.hal.errors import NnburstError
from nnburst.hal.utils import start_thread
from nnburst.serving.credentials import Tokens
from nnburst.serving.metrics import DriverCounts, metrics_text
from nnburst.serving.metrics_server import serve_metrics
from nnburst.serving.models import Models
from nnburst.serving.options import parse
from nnburst.serving.queue import Clock
from nnburst.serving.sources import GivenModels, Repository, Sources
from nnburst.serving.spans import Spans, otlp_exporter
from nnburst.serving.workers import Workers

logger = logging.getLogger(__name__)

#: Seconds between two scans of the repository. A change is loaded when two scans find the same files.
_POLL: Final = 1.0
#: Seconds between two checks of models and their workers.
_PERIOD: Final = 0.5


class Front(Protocol):
    """The servers of a front. Their libraries may be missing."""

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each protocol, by the protocol's name."""

    def start(self) -> None:
        """Begin to answer."""

    def close(self, seconds: float) -> None:
        """Stop serving; requests under way have `seconds` to finish."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or, if supervised, the end of standard input.

    A supervised front waits as a spare until it reads a byte from standard input.
    """
    logging.basicConfig(format="nnburst front: %(levelname)s: %(message)s")
    stopped = threading.Event()
    word = threading.Event()

    def stop(*_: object) -> None:
        stopped.set()
        word.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        logging.getLogger().setLevel(LOG.read())
        options = parse(argv)
        if options.supervised:
            start_thread(threading.Thread(target=_obey_supervisor, args=(word,), daemon=True))
        else:
            word.set()
        make_servers = _import_servers() if options.grpc or options.http else None
        word.wait()
        if stopped.is_set():
            return 0
        clock = Clock(_PERIOD)
        sources: list[Sources] = [GivenModels(options.models)]
        if options.repository is not None:
            sources.append(Repository(options.repository))
        models = Models(sources, options, Workers(options.connect), clock)
        driver = DriverCounts(options.counts_fd) if options.counts_fd >= 0 else None
        with_metrics = options.metrics or options.http_metrics
        text = metrics_text(models, driver) if with_metrics else None
        tokens = Tokens(options.token_file) if options.token_file is not None else None
        spans = Spans(otlp_exporter()) if options.spans else None
        servers: Front | None = None
        if make_servers is not None:
            over_http = text if options.http_metrics else None
            servers = make_servers(options, models, clock, tokens, spans, over_http)
        if options.metrics and text is not None:
            print(f"metrics at {serve_metrics(options, text, tokens)}", flush=True)  # noqa: T201
        if servers is not None:
            if options.model_control == "poll":
                start_thread(threading.Thread(target=_follow, args=(models, stopped), daemon=True))
            servers.start()
    except (NnburstError, OSError) as error:
        logger.error("%s", error)  # noqa: TRY400 - the reader needs no traceback
        return 1
    if servers is not None:
        for protocol, address in servers.addresses.items():
            print(f"{protocol} at {address}", flush=True)  # noqa: T201 - port 0 is any
    if driver is not None:
        driver.tell_listening()
    stopped.wait()
    if servers is not None:
        servers.close(options.drain)
    if spans is not None:
        spans.close()
    networks = models.served.networks()
    busy = [each.name for each in networks if not each.queue.wait_until_idle(0)]
    if busy:
        logger.warning("ending although %s still executes: --drain has passed", ", ".join(busy))
        os._exit(0)  # a thread may wait for a result that never comes
    clock.close()
    models.close()
    return 0


def _import_servers() -> Callable[..., Front]:
    """Import the class of the servers; its libraries are not needed for metrics alone."""
    from nnburst.serving.servers import Servers

    return Servers


def _obey_supervisor(word: threading.Event) -> None:
    """Read standard input: a byte starts serving; its end shows that the supervisor has ended."""
    while os.read(sys.stdin.fileno(), 4096):
        word.set()
    os._exit(1)


def _follow(models: Models, stopped: threading.Event) -> None:
    """Scan the folder of models again and again."""
    while not stopped.wait(_POLL):
        try:
            models.follow()
        except Exception:
            logger.exception("the repository could not be looked at, it is tried again")
