"""The process that packs one model: forked for it, and gone when it is done.

It parses bytes that a client chose and runs an engine on them, so it may be taken over by them. Then it can
spoil what is kept for exactly these bytes, and nothing else: their hash was computed before it was forked,
and it has no descriptor but the offer's and the one that its result goes to.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
from typing import Final, NoReturn

from nnburst._native import lib
from nnburst.driver.limits.sandbox import enter_sandbox
from nnburst.driver.weights.offer import read_offer
from nnburst.executor.base import Executor
from nnburst.executor.sharing import PackingExecutor
from nnburst.hal.errors import InvalidArgument, NnburstError

logger = logging.getLogger(__name__)

#: Seconds of computing that a model may take.
SECONDS: Final = 60
_STDERR: Final = 2


def pack(executor: Executor, offer: int, result: socket.socket) -> NoReturn:
    """Pack what is offered, send its memory files, end the process.

    Args:
        executor: loaded, not used before.
        offer: sealed memory file.
        result: where the files go.
    """
    status = 1
    try:
        lib.nnb_set_thread_name(b"nnburst packing")
        _close_others({offer, result.fileno()})
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(SECONDS)
        enter_sandbox()  # the keeper's lets it signal the keeper
        files = _packed(executor, offer)
        socket.send_fds(result, [b"packed"], list(files))
        status = 0
    except NnburstError as error:
        logger.info("a model's weights are not shared, its workers pack for themselves: %s", error)
        status = 0
    except BaseException:
        logger.exception("packing a model's weights failed: its workers pack for themselves")
    finally:
        os._exit(status)


def _packed(executor: Executor, offer: int) -> tuple[int, ...]:
    model, pools, options = read_offer(offer)
    if not isinstance(executor, PackingExecutor) or not all(executor.supported(model)):
        raise InvalidArgument(f"executor {executor.name} packs no such model")
    return executor.pack(model, pools, options)


def _close_others(kept: set[int]) -> None:
    """Close every descriptor above stderr but `kept`: those of the keeper lead to other clients."""
    start = _STDERR + 1
    for fd in sorted(kept):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
