"""The process: listens, prepares its models on the driver, and ends with the process that started it."""

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

#: Seconds between two looks at the repository. What has changed is loaded when two looks find the same.
_POLL: Final = 1.0
#: Seconds between two looks at models and their workers.
_PERIOD: Final = 0.5


class Front(Protocol):
    """Servers, which may need libraries that are not there."""

    @property
    def addresses(self) -> dict[str, str]:
        """Where each protocol is served, by its name."""

    def start(self) -> None:
        """Answer from here on."""

    def close(self, seconds: float) -> None:
        """End; requests under way have `seconds`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or, if supervised, the end of standard input.

    A supervised front begins with a byte of standard input: until then it is a spare.
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
        os._exit(0)  # its thread waits for a result that may never come
    clock.close()
    models.close()
    return 0


def _import_servers() -> Callable[..., Front]:
    """The class of the servers; its libraries, which metrics alone do not need, are imported here."""
    from nnburst.serving.servers import Servers

    return Servers


def _obey_supervisor(word: threading.Event) -> None:
    """A byte is the word to serve; the end of the pipe is the supervisor's end, however it ended."""
    while os.read(sys.stdin.fileno(), 4096):
        word.set()
    os._exit(1)


def _follow(models: Models, stopped: threading.Event) -> None:
    """Look at the folder of models again and again."""
    while not stopped.wait(_POLL):
        try:
            models.follow()
        except Exception:
            logger.exception("the repository could not be looked at, it is tried again")
