"""A worker's side: it hands the bytes of a model over and gets what was packed of the same bytes."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from nnburst.driver.weights.offer import constant_bytes, write_offer
from nnburst.executor.base import PrepareOptions
from nnburst.executor.sharing import MAX_FILES
from nnburst.hal.closing import Closing
from nnburst.hal.model import Model

logger = logging.getLogger(__name__)

#: Number of a request, and of its answer. A request carries one descriptor, an answer those of the files.
MESSAGE: Final = struct.Struct("<Q")
#: Constants of so many bytes are worth a second process's work.
SMALLEST: Final = 1 << 20
#: Seconds that a preparation waits for another process; then it packs for itself.
_PATIENCE: Final = 20.0


class Borrower(Closing):
    """The only one of a worker. Thread-safe: preparations take turns."""

    def __init__(self, pair: socket.socket) -> None:
        """Own `pair`, whose other end the keeper has."""
        self._pair: socket.socket | None = pair
        pair.settimeout(_PATIENCE)
        self._turn = threading.Lock()
        self._number = 0

    def close(self) -> None:
        """Borrow nothing any more; what is borrowed stays. Twice is fine."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()

    @contextlib.contextmanager
    def borrow(
        self, model: Model, pools: Sequence[memoryview], options: PrepareOptions
    ) -> Iterator[Sequence[int]]:
        """Memory files of packed weights while the context lasts; empty if nothing is to be had.

        Args:
            model: checked.
            pools: its pools; what they hold now is what counts.
            options: that it is prepared with.
        """
        files: list[int] = []
        if constant_bytes(model, pools) >= SMALLEST:
            with self._turn:
                files = self._ask(model, pools, options)
        try:
            yield files
        finally:
            for fd in files:
                os.close(fd)

    def _ask(self, model: Model, pools: Sequence[memoryview], options: PrepareOptions) -> list[int]:
        if self._pair is None:
            return []
        self._number += 1
        try:
            offer = write_offer(model, pools, options)
            try:
                socket.send_fds(self._pair, [MESSAGE.pack(self._number)], [offer])
            finally:
                os.close(offer)
            return self._answer(self._pair)
        except TimeoutError:
            logger.info("packed weights are not there in time; the model is prepared without them")
        except OSError as error:
            logger.info("packed weights cannot be borrowed any more: %s", error)
            self.close()
        return []

    def _answer(self, pair: socket.socket) -> list[int]:
        """The files of the newest request; those of one that took too long are dropped."""
        while True:
            data, files, _, _ = socket.recv_fds(
                pair, MESSAGE.size, MAX_FILES, socket.MSG_CMSG_CLOEXEC
            )
            if data == MESSAGE.pack(self._number):
                return files
            for fd in files:
                os.close(fd)
            if not data:
                raise ConnectionResetError("the keeper has ended")
