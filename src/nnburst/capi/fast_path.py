"""Computations that need no interpreter: what C may run by itself is offered to the library, run by run.

After a reusable execution has computed well over a driver's burst, its bound request is offered under its
handle (csrc/capi/fast.h). The library runs it until a run ends in any other way than the one before; `finish`
then makes of that what the framework makes of it: shapes, fallback, a code.
"""

from __future__ import annotations

from typing import Any, Final

from nnburst._native import ffi, lib
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.execution import Execution

_RUN: Final = ffi.addressof(lib, "nnb_capi_run")


class _Offer:
    """What the library holds of an execution; lives as long as the handle, since C may be looking at it."""

    def __init__(self, execution: Execution, bound: BoundPlan, burst: Burst, handle: int) -> None:
        self.execution: Final = execution
        self.bound: Final = bound
        self.burst: Final = burst
        self._copies = [_copies(bound, into=True), _copies(bound, into=False)]
        self.run: Any = ffi.new(
            "struct nnb_fast_run *",
            {
                "run": _RUN,
                "bound": bound.steps.struct,
                "burst": handle,
                "copies_in": self._copies[0],
                "copies_out": self._copies[1],
                "copies_in_count": len(self._copies[0]),
                "copies_out_count": len(self._copies[1]),
            },
        )


def _copies(bound: BoundPlan, *, into: bool) -> Any:  # noqa: ANN401 - of cffi's
    copies = bound.inputs if into else bound.outputs
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

    def offer(self, handle: int, execution: Execution, burst: Burst, burst_handle: int) -> None:
        """Offer an execution that has computed over `burst`, if C can compute it again.

        Args:
            handle: of the execution.
            execution: which has completed.
            burst: that it ran on.
            burst_handle: 0 for the execution's own.
        """
        bound = execution._bound_to(burst)
        if bound is None or bound.needs_python:
            return
        offer = self._known(handle, bound)
        if offer is None:
            offer = _Offer(execution, bound, burst, burst_handle)
            self._offers.setdefault(handle, []).append(offer)
        self._latest[handle] = offer
        self.exchange.offer(handle, offer.run)

    def _known(self, handle: int, bound: BoundPlan) -> _Offer | None:
        return next((offer for offer in self._offers.get(handle, ()) if offer.bound is bound), None)

    def finish(self, handle: int, code: int) -> bool:
        """Make the outcome of a run from C that ended with `code` the execution's.

        Returns:
            Whether the offer stands.

        Raises:
            NnburstError: what came of it.
        """
        offer = self._latest[handle]
        offer.execution._finish_bound(offer.bound, offer.burst, code)
        return offer.bound.is_current

    def disable(self, handle: int) -> None:
        """The next computation is Python's."""
        if handle in self._latest:
            self.exchange.offer(handle, ffi.NULL)

    def release(self, handle: int) -> None:
        """The handle has ended, and with it the library's hold."""
        self._offers.pop(handle, None)
        self._latest.pop(handle, None)

    def close(self) -> None:
        """Give all offers up, which the library does not look at any more."""
        self._offers.clear()
        self._latest.clear()


FAST_PATH: Final = FastPath()
