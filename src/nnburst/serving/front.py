"""The process: listens, prepares its models on the driver, and ends with the process that started it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from nnburst.client.connect import connect
from nnburst.client.resilient.resilient_device import ResilientDevice
from nnburst.hal.environment import LOG
from nnburst.hal.errors import DeadObject, DeviceUnavailable, MissedDeadline, NnburstError
from nnburst.serving.metrics.driver_counts import DriverCounts
from nnburst.serving.metrics.endpoint import serve_metrics
from nnburst.serving.network import Network
from nnburst.serving.options import Options, parse

logger = logging.getLogger(__name__)

#: Seconds between tries to reach a driver that is not there.
_PAUSE: Final = 0.2
#: Seconds for requests under way at the end.
_GRACE: Final = 0.5


class Listening(Protocol):
    """A server, which may need libraries that are not there.

    Attributes:
        address: where it listens.
    """

    address: str

    def start(self) -> None:
        """Answer from here on."""

    def be_ready(self, *, ready: bool) -> None:
        """Whether all models are served."""

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
            threading.Thread(target=_obey_supervisor, args=(word,), daemon=True).start()
        else:
            word.set()
        make_server = _import_server(options) if options.grpc else None
        word.wait()
        if stopped.is_set():
            return 0
        networks = {
            name: Network(name, source, options.lanes, options.max_sequences)
            for name, source in options.models.items()
        }
        driver = DriverCounts(options.counts_fd) if options.counts_fd >= 0 else None
        server = make_server(networks) if make_server is not None else None
        if options.metrics:
            metrics = serve_metrics(options.metrics, networks, driver)
            print(f"metrics at {metrics}", flush=True)  # noqa: T201
    except (NnburstError, OSError) as error:
        logger.error("%s", error)  # noqa: TRY400 - the reader needs no traceback
        return 1
    if server is not None:
        server.start()
        print(f"gRPC at {server.address}", flush=True)  # noqa: T201 - who has asked for port 0 needs it
        preparing = (options, networks, server, stopped)
        threading.Thread(target=_prepare, args=preparing, daemon=True).start()
    stopped.wait()
    if server is not None:
        server.close(_GRACE)
    for network in networks.values():
        network.close()
    return 0


def _import_server(options: Options) -> Callable[[Mapping[str, Network]], Listening]:
    """What makes a server; its libraries, which metrics alone do not need, are imported here."""
    from nnburst.serving.regions import Regions
    from nnburst.serving.server import Server
    from nnburst.serving.service import InferenceService

    def make(networks: Mapping[str, Network]) -> Listening:
        regions = Regions() if options.shared_memory else None
        return Server(options, InferenceService(networks, regions, options.max_streams))

    return make


def _obey_supervisor(word: threading.Event) -> None:
    """A byte is the word to serve; the end of the pipe is the supervisor's end, however it ended."""
    while os.read(sys.stdin.fileno(), 4096):
        word.set()
    os._exit(1)


def _prepare(
    options: Options, networks: Mapping[str, Network], server: Listening, stopped: threading.Event
) -> None:
    """Prepare one model after the other; the driver may come late, and die meanwhile."""
    device = None
    for network in networks.values():
        while not network.is_ready and not network.failure and not stopped.is_set():
            try:
                device = device or ResilientDevice(lambda: connect(options.connect))
                network.prepare(device)
            except (DeadObject, DeviceUnavailable, MissedDeadline) as error:
                logger.warning("model %s is prepared again: %s", network.name, error)
                time.sleep(_PAUSE)
            except NnburstError as error:
                logger.error("model %s is not served: %s", network.name, error)  # noqa: TRY400
                network.failure = str(error)
    server.be_ready(ready=all(network.is_ready for network in networks.values()))
