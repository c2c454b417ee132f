"""Burst: repeated computations of one compilation, a burst of each device that has any."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from nnburst.hal.errors import BadState
from nnburst.runtime.argument import BurstController
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.runtime_object import RuntimeObject


class Burst(RuntimeObject):
    """A burst (NNAPI: ANeuralNetworksBurst). One execution at a time; a second one gets BadState.

    Made by `Compilation.burst`. Steps whose devices have no bursts execute the ordinary way.

    NNAPI: RT:B1, B2.

    Attributes:
        executable: what it executes.
    """

    def __init__(self, executable: Executable) -> None:
        """Open a burst for each part."""
        super().__init__()
        self.executable: Final = executable
        self._controllers = executable.open_bursts()
        self._busy = threading.Lock()

    @contextmanager
    def alone(self) -> Iterator[Sequence[BurstController | None]]:
        """The bursts of the parts, for one execution at a time.

        Raises:
            BadState: another execution computes on it.
        """
        self.check_open()
        if not self._busy.acquire(blocking=False):
            raise BadState("burst: another execution computes on it")
        try:
            yield self._controllers
        finally:
            self._busy.release()

    @property
    def controllers(self) -> Sequence[BurstController | None]:
        """The burst of each part; None for those that have none."""
        return tuple(self._controllers)

    def _release(self) -> None:
        for controller in self._controllers:
            if controller is not None:
                controller.close()
