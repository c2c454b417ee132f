"""Runs the bound requests of a plan's steps in order, by one C call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, cast

from nnburst._native import ffi, lib
from nnburst.client.arguments import ExecutionResult
from nnburst.client.burst.bound_request import RingRequest
from nnburst.client.burst.core import BUSY_CODE
from nnburst.client.session.gate import Gate
from nnburst.hal.errors import BurstBusy, MissedDeadline

#: The message of BurstBusy from a plan's bursts: what was submitted keeps their gate until it has ended.
IN_USE: Final = (
    "this burst is in use: another thread is using it, or a request that was submitted is under way"
)
#: Longer deadlines are cut to this, about 146 years.
_LONGEST_NS: Final = 2**62
#: Runs all steps of a `BoundSteps.struct`. Returns 0 if each step ended as before, `BUSY_CODE` if another
#: thread is inside the gate, else the status of step `at`, which is passed to `BoundSteps.conclude`. It is a
#: plain function, since a `partial` would cost 20 ns more.
run_steps: Final[Callable[[Any], int]] = lib.nnb_steps_run


class InProcess(Protocol):
    """A step that this process computes itself, bound to its arguments."""

    @property
    def closed(self) -> bool:
        """Whether the step can no longer run."""

    def compute(self, seconds: float) -> bool:
        """Compute, and return whether that succeeded. An exception reaches the Python code that called C."""

    def run(self, timeout: float) -> Any:  # noqa: ANN401 - as its maker has it
        """Compute and return the outcome."""

    def result(self) -> Any:  # noqa: ANN401 - as its maker has it
        """The outcome of the latest `compute` that returned."""


class _InProcessSteps:
    """The context that C passes to Python: the steps in this process, and the latest exception of one."""

    __slots__ = ("raised", "requests")

    def __init__(self, requests: tuple[InProcess | None, ...]) -> None:
        self.requests: Final = requests
        self.raised: BaseException | None = None


class BoundSteps:
    """The bound requests of a plan's steps, in order. Usable by one thread at a time.

    Steps on bursts run without Python between them; for a step in this process, the C call enters Python.
    If a step ends otherwise than before, the C call returns its status, and `conclude` finishes the run.

    Attributes:
        requests: the request of each step.
        in_process: whether this process computes any step itself.
        struct: the struct nnb_steps for `run_steps`, valid as long as this object.
        abandon: gives up the calling thread's run, if it has one. Must not be called after `BUSY_CODE`.
    """

    __slots__ = (
        "__weakref__",
        "_gate",
        "_handle",
        "_own",
        "_rows",
        "abandon",
        "in_process",
        "requests",
        "struct",
    )

    def __init__(
        self, requests: Sequence[RingRequest | InProcess], gate: Gate, timeout: float
    ) -> None:
        """Fill in the struct for `requests`, in order.

        Args:
            requests: one for each step: of an open burst, or computed in this process.
            gate: the gate that a run enters.
            timeout: seconds for all steps together.
        """
        self.requests: Final = tuple(requests)
        self._gate: Final = gate
        rows = [r.native if isinstance(r, RingRequest) else ffi.NULL for r in requests]
        self._rows: Final = ffi.new("struct nnb_bound *[]", rows)
        own = tuple(None if isinstance(r, RingRequest) else r for r in requests)
        self.in_process: Final = any(own)
        self._own: Final = _InProcessSteps(own)
        self._handle: Final = ffi.new_handle(self._own)
        self.struct: Final[Any] = ffi.new(
            "struct nnb_steps *",
            {
                "requests": self._rows,
                "compute": ffi.addressof(lib, "nnb_steps_compute"),
                "context": self._handle,
                "gate": gate.struct,
                "count": len(self.requests),
            },
        )
        self.set_timeout(int(timeout * 1e9))
        self.abandon: Final[Callable[[], None]] = partial(lib.nnb_steps_abandon, self.struct)

    @property
    def at(self) -> int:
        """The number of the step whose status the latest run returned."""
        return int(self.struct.at)

    @property
    def closed(self) -> bool:
        """Whether a pool of a request was closed."""
        return any(request.closed for request in self.requests)

    def set_timeout(self, timeout_ns: int) -> None:
        """Set the nanoseconds that all steps of a run may take together."""
        self.struct.timeout_ns = min(timeout_ns, _LONGEST_NS)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline of the latest run whose result changed."""
        only = self.requests[0] if len(self.requests) == 1 else None
        timed = only.native if isinstance(only, RingRequest) else self.struct
        return max(int(timed.deadline_ns) - time.monotonic_ns(), 0) * 1e-9

    def conclude(self, code: int, accept: Callable[[int, Any], bool]) -> bool:
        """Finish a run that ended with `code`; runs the next steps after each result that is accepted.

        Args:
            code: the status that `run_steps` returned.
            accept: gets number and result of each step that ended otherwise than before; returns whether the
                following steps are to run.

        Returns:
            Whether all steps have run; if not, step `at` was not accepted, and no later step was sent.

        Raises:
            BurstBusy: another caller is inside the gate; nothing was sent.
            NnburstError: the error of step `at`, as from `RingRequest.run`; no later step was sent.
        """
        if code == BUSY_CODE:
            for request in self.requests:
                if isinstance(request, RingRequest):
                    request._check_running()
            raise BurstBusy(IN_USE)
        try:
            while code:
                at = self.at
                if not accept(at, self._concluded(self.requests[at], code)):
                    self.abandon()
                    return False
                code = lib.nnb_steps_go_on(self.struct)
        except BaseException:
            self.abandon()
            raise
        return True

    def _concluded(self, request: RingRequest | InProcess, code: int) -> ExecutionResult | Any:  # noqa: ANN401
        """The outcome of a step that ended otherwise than before."""
        if isinstance(request, RingRequest):
            return request.conclude(code)
        if code == lib.NNB_CLIENT_TIMED_OUT:
            raise MissedDeadline("the deadline passed before the step began")
        raised, self._own.raised = self._own.raised, None
        if raised is not None:
            raise raised
        return request.result()


def _keep(_kind: object, error: BaseException, traceback: TracebackType) -> None:
    """Keep an exception of `_compute`, also one that a signal handler raised right at its beginning."""
    context = traceback.tb_frame.f_locals["context"]
    cast("_InProcessSteps", ffi.from_handle(context)).raised = error


@ffi.def_extern(name="nnb_steps_compute", error=lib.NNB_CLIENT_RESULT, onerror=_keep)
def _compute(context: Any, step: int, timeout_ns: int) -> int:  # noqa: ANN401 - a pointer of cffi's
    """Compute a step in this process; returns SAME if it succeeded, else RESULT."""
    own = cast("_InProcessSteps", ffi.from_handle(context))
    own.raised = None  # of a run that was given up
    request = cast("InProcess", own.requests[step])
    return int(lib.NNB_CLIENT_SAME if request.compute(timeout_ns * 1e-9) else lib.NNB_CLIENT_RESULT)
