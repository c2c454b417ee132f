"""Computations that need no interpreter: what C may run by itself is offered to the library, run by run.

After a reusable execution has computed well over a driver's burst, its bound request is offered under its
handle (csrc/capi/fast.h). The library runs it until a run ends in any other way than the one before; `finish`
then makes of that what the framework makes of it: shapes, fallback, a code.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from nnburst._native import ffi, lib
from nnburst.hal.errors import NnburstError
from nnburst.runtime.devices.bound_computation import BoundComputation
from nnburst.runtime.devices.driver_device import DriverBurst
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.execution import Execution

logger = logging.getLogger("nnburst.capi")

_RUN: Final = ffi.addressof(lib, "nnb_capi_run")


class _Offer:
    """What the library holds of an execution; lives as long as the handle, since C may be looking at it."""

    def __init__(self, execution: Execution, computation: BoundComputation, burst: int) -> None:
        self.execution: Final = execution
        self.computation: Final = computation
        self._copies = [_copies(computation, into=True), _copies(computation, into=False)]
        self.run: Any = ffi.new(
            "struct nnb_fast_run *",
            {
                "run": _RUN,
                "bound": computation.request.native,
                "burst": burst,
                "copies_in": self._copies[0],
                "copies_out": self._copies[1],
                "copies_in_count": len(self._copies[0]),
                "copies_out_count": len(self._copies[1]),
            },
        )


def _copies(computation: BoundComputation, *, into: bool) -> Any:  # noqa: ANN401 - of cffi's
    copies = computation.inputs if into else computation.outputs
    rows = []
    for copy in copies:
        given, pooled = copy.given.ctypes.data, copy.pooled.ctypes.data
        to, source = (pooled, given) if into else (given, pooled)
        rows.append((ffi.cast("void *", to), ffi.cast("void *", source), copy.given.nbytes))
    return ffi.new("struct nnb_copy[]", rows)


class FastPath:
    """Offers by execution. Thread-safe: calls for one execution come one at a time."""

    def __init__(self) -> None:
        """Offer nothing, and nothing before `exchange` is set."""
        self.exchange: Any = None
        self._offers: dict[int, list[_Offer]] = {}
        self._latest: dict[int, _Offer] = {}
        self._bursts: dict[int, Burst] = {}

    def offer(self, handle: int, execution: Execution, burst: Burst, burst_handle: int) -> None:
        """Offer an execution that has computed over `burst`, if C can compute it again.

        Args:
            handle: of the execution.
            execution: which has completed.
            burst: that it ran on.
            burst_handle: 0 for the execution's own.
        """
        arguments = execution.repeated_arguments
        controllers = burst.controllers
        controller = controllers[0] if len(controllers) == 1 else None
        if arguments is None or not isinstance(controller, DriverBurst):
            return
        try:
            offer = self._known(handle, controller, burst_handle)
            if offer is None:
                computation = controller.bind(*arguments, execution.timeout)
                if computation is None:
                    return
                offer = _Offer(execution, computation, burst_handle)
                self._offers.setdefault(handle, []).append(offer)
        except NnburstError as error:
            logger.info("an execution goes on by Python: %s", error)
            return
        self._latest[handle] = offer
        self.exchange.offer(handle, offer.run)

    def _known(self, handle: int, controller: DriverBurst, burst: int) -> _Offer | None:
        for offer in self._offers.get(handle, ()):
            if offer.run.burst == burst and controller.holds(offer.computation):
                return offer
        return None

    def own_burst(self, handle: int, execution: Execution) -> Burst | None:
        """The burst that C computes an execution on which the program gave none; None if it is no use."""
        if execution.repeated_arguments is None:
            return None
        if handle not in self._bursts:
            self._bursts[handle] = execution.open_burst()
        return self._bursts[handle]

    def finish(self, handle: int, code: int) -> bool:
        """Make the outcome of a run from C that ended with `code` the execution's.

        Returns:
            Whether the offer stands.

        Raises:
            NnburstError: what came of it.
        """
        offer = self._latest[handle]
        offer.execution.compute_by(offer.computation.concluded(code))
        return not offer.computation.request.closed and offer.computation.burst.is_alive

    def disable(self, handle: int) -> None:
        """The next computation is Python's."""
        if handle in self._latest:
            self.exchange.offer(handle, ffi.NULL)

    def release(self, handle: int) -> None:
        """The handle has ended, and with it the library's hold."""
        self._offers.pop(handle, None)
        self._latest.pop(handle, None)
        burst = self._bursts.pop(handle, None)
        if burst is not None:
            burst.close()


FAST_PATH: Final = FastPath()
