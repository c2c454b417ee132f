"""The threads of a worker that receive its client's calls, one at a time, in the order of coming (ADR 15).

The one that receives a quick execution runs it itself; another one, which waits for that, receives meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from nnburst._native import ffi, lib
from nnburst.control.channel import Channel, Disconnected
from nnburst.control.messages.message import Message
from nnburst.control.service import Service
from nnburst.hal.errors import ResourceExhausted

if TYPE_CHECKING:
    from nnburst._native import nnb_turn

logger = logging.getLogger(__name__)

#: Executions that may run on threads that receive, whatever the number of cores.
_MOST_AT_ONCE: Final = 4


class Receivers:
    """Starts with the thread that calls `receive`; others start when they are first needed, and stay."""

    def __init__(
        self,
        service: Service[Message],
        channel: Channel,
        ended: Callable[[BaseException | None], NoReturn],
    ) -> None:
        """Receive for `service` from `channel`.

        Args:
            service: answers the calls.
            channel: of the service.
            ended: ends the process: the client is gone, or this exception came.
        """
        self._service = service
        self._channel = channel
        self._ended = ended
        self._most = 1 + min(len(os.sched_getaffinity(0)), _MOST_AT_ONCE)
        self._threads = 1
        self._standing_by: set[int] = set()
        self._turn: nnb_turn = ffi.new("struct nnb_turn *")

    def have_another(self) -> bool:
        """Whether another thread receives as soon as this one, whose turn it is, does not."""
        if not self._standing_by and self._threads < self._most:
            self._start()
        return bool(self._standing_by)

    def _start(self) -> None:
        """Start one, for the executions to come."""
        try:
            threading.Thread(target=self._receive, name="nnburst receiver", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            logger.warning(
                "cannot start a second receiver, so executions go through the scheduler: %s", error
            )
            self._most = self._threads
        else:
            self._threads += 1

    def receive(self) -> NoReturn:
        """Receive until the process ends. Once, by the first thread, when the client is known."""
        failed = lib.nnb_turn_open(self._turn, self._channel.fileno(), self._channel.peer_process)
        if failed:
            why = f"cannot wait for calls: {os.strerror(failed)}"
            self._ended(ResourceExhausted(why))
        self._receive()

    def _receive(self) -> NoReturn:
        try:
            while True:
                job = self._take_turn()
                try:
                    job()
                except BaseException:  # as on the scheduler's lanes
                    logger.exception("a job raised; the receiver goes on with the next")
                del job  # with all that it holds, before the next one comes
        except Disconnected:
            self._ended(None)
        except BaseException as error:
            self._ended(error)

    def _take_turn(self) -> Callable[[], None]:
        """Wait for the turn and keep it until there is something to do here."""
        me = threading.get_ident()
        self._standing_by.add(me)
        lib.nnb_turn_take_unlocked(self._turn)
        self._standing_by.discard(me)
        while (job := self._service.accept()) is None:
            pass  # another thread does it
        lib.nnb_turn_pass(self._turn)
        return job
