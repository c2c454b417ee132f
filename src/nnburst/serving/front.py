"""Runs the front's process: listens, prepares models on the driver, and ends with its parent process."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from nnburst.control.counts import LISTENING
from nnburst.hal.environment import LOG
from nnburst.hal.errors import NnburstError
from nnburst.hal.utils import REFUSED, start_thread
from nnburst.serving.credentials import Tokens
from nnburst.serving.forking import ENDING, Forking
from nnburst.serving.metrics import DriverCounts, metrics_text
from nnburst.serving.metrics_server import serve_metrics
from nnburst.serving.models import Models
from nnburst.serving.options import Options, parse
from nnburst.serving.queue import Clock
from nnburst.serving.sources import GivenModels, Repository, Sources
from nnburst.serving.spans import otlp_spans
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

    A supervised process serves nothing itself: it imports what serving needs, and forks the front, and the
    next one when a front ends. A fork takes milliseconds, those imports take a second.
    """
    logging.basicConfig(format="nnburst front: %(levelname)s: %(message)s")
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)  # without a traceback for Ctrl-C during the imports
    try:
        logging.getLogger().setLevel(LOG.read())
        options = parse(argv)
        make_servers = _import_servers(options) if options.grpc or options.http else None
    except (NnburstError, OSError) as error:
        logger.error("%s", error)  # noqa: TRY400 - the reader needs no traceback
        return REFUSED
    driver = DriverCounts(options.counts_fd) if options.counts_fd >= 0 else None
    if options.supervised:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a terminal: the supervisor then ends this
        return Forking(lambda: _serve(options, make_servers, driver), driver).run()
    return _serve(options, make_servers, driver)


def _serve(
    options: Options, make_servers: Callable[..., Front] | None, driver: DriverCounts | None
) -> int:
    """Serve until SIGTERM or SIGINT; the exit status of the process."""
    stopped = threading.Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # by all threads: `sigwait` takes them
    try:
        clock = Clock(_PERIOD)
        sources: list[Sources] = [GivenModels(options.models)]
        if options.repository is not None:
            sources.append(Repository(options.repository))
        models = Models(sources, options, Workers(options.connect), clock)
        with_metrics = options.metrics or options.http_metrics
        text = metrics_text(models, driver) if with_metrics else None
        tokens = Tokens(options.token_file) if options.token_file is not None else None
        spans = otlp_spans() if options.spans else None
        servers: Front | None = None
        if make_servers is not None:
            over_http = text if options.http_metrics else None
            servers = make_servers(options, models, clock, tokens, spans, over_http)
        if options.metrics and text is not None:
            _announce("metrics", serve_metrics(options, text, tokens))
        if servers is not None:
            if options.model_control == "poll":
                start_thread(threading.Thread(target=_follow, args=(models, stopped), daemon=True))
            servers.start()
    except (NnburstError, OSError) as error:
        logger.error("%s", error)  # noqa: TRY400 - the reader needs no traceback
        return REFUSED
    if servers is not None:
        for protocol, address in servers.addresses.items():
            _announce(protocol, address)
    if driver is not None:
        driver.tell(LISTENING)
    signal.sigwait(ENDING)
    stopped.set()
    if servers is not None:
        servers.close(options.drain)
    if spans is not None:
        spans.close()
    networks = models.served.networks()
    busy = [each.name for each in networks if not each.queue.wait_until_idle(0)]
    if busy:
        logger.warning("ending although %s still executes: --drain has passed", ", ".join(busy))
        os._exit(0)  # a thread may wait for a result that never comes
    if models.preparing:
        logger.warning("ending although model %s is being prepared", models.preparing)
        os._exit(0)  # which may take any time, and no request waits for it
    clock.close()
    models.close()
    return 0


def _announce(protocol: str, address: str) -> None:
    """Print an address, whose port the kernel may have chosen; without room or a reader serving goes on."""
    try:
        print(f"{protocol} at {address}", flush=True)  # noqa: T201
    except OSError as error:
        logger.warning(
            "cannot print that %s is at %s: %s; serving goes on", protocol, address, error
        )


def _import_servers(options: Options) -> Callable[..., Front]:
    """Import the class of the servers, whose libraries are not needed for metrics alone."""
    from nnburst.serving.servers import Servers

    if options.http:
        import nnburst.serving.http_server  # noqa: F401 - for the processes that are forked
    return Servers


def _follow(models: Models, stopped: threading.Event) -> None:
    """Scan the folder of models again and again; a folder that cannot be read is logged once."""
    reason = ""
    while not stopped.wait(_POLL):
        try:
            models.follow()
            reason = ""
        except NnburstError as error:
            if str(error) != reason:
                reason = str(error)
                logger.error("%s; it is tried again each second", reason)  # noqa: TRY400
        except Exception:
            logger.exception("the repository could not be looked at, it is tried again")
