"""CompiledBurst: repeated executions of a compiled model over bursts."""

from __future__ import annotations

import contextlib
import logging
import math
import time
import weakref
from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from nnburst.client.burst.core import BUSY_CODE
from nnburst.client.burst.last_request import LastRequest
from nnburst.client.burst.steps import run_steps
from nnburst.client.execution.remembered_requests import request_key
from nnburst.client.memory.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    boottime_deadline_ns,
    check_count,
    check_timeout,
)
from nnburst.client.memory.memory import Memory as Pool
from nnburst.client.memory.staging import Layout
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import BurstBusy, NnburstError, error_for_code
from nnburst.hal.process.of_one_process import OfOneProcess
from nnburst.runtime.argument import Options
from nnburst.runtime.array_execution import arguments_of, execute_arrays, result_of
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.execution.pipeline import Pipeline, PlanInFlight
from nnburst.runtime.runtime_object import RuntimeObject
from nnburst.runtime.submitted_plan import SubmittedPlan

logger = logging.getLogger("nnburst.runtime")

_DEFAULT_TIMEOUT_NS: Final = 30_000_000_000
#: Stands for a run that Python is to make, since the plan is not bound.
_BY_PYTHON: Final = -1


class CompiledBurst(RuntimeObject):
    """Bursts for all steps of a plan; made by `CompiledModel.open_burst`. A context manager.

    One thread at a time; a second one gets BurstBusy.

    Attributes:
        inputs: what each input must look like.
        outputs: what each output must look like.
    """

    _instead = "open one in the other process; arrays and results can be pickled"

    def __init__(
        self,
        executable: Executable,
        inputs: Sequence[Parameter],
        outputs: Sequence[Parameter],
        max_in_flight: int = 1,
    ) -> None:
        """Use `CompiledModel.open_burst`."""
        super().__init__()
        self.inputs: Final = inputs
        self.outputs: Final = outputs
        self._executable: Final = executable
        self._bursts: Final = executable.open_bursts()
        self._pipeline: Final = Pipeline(self._bursts, max_in_flight, executable.go_on)
        self._executing: Final = Gate()
        self._can_bind: Final = executable.can_bind(self._bursts) and all(p.known for p in outputs)
        self._last: LastRequest | None = None
        self._last_key: Hashable | None = None
        self._seen: Hashable | None = None
        end = weakref.finalize(self, self._pipeline.close_soon)
        end.atexit = False

    def execute(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
    ) -> ExecutionResult:
        """Execute once; arguments, results and errors are those of `CompiledModel.execute`.

        From the third execution on arrays of the same shapes it is one C call for all steps, with a copy of
        the arrays before and behind it, if the plan can be bound and nothing is measured or recorded.

        Raises:
            BurstBusy: another thread is using the burst.
        """
        self._check_open()
        # The last request's memory is written before its run can find out that another thread's run of it is
        # under way, and read after that run.
        executing, me = self._executing, next(entries)
        try:
            executing.enter(me)
            binds = self._can_bind and not measure and not self._executable.recorder.is_on
            last = self._last if binds else None
            if last is not None:
                result = last.execute(inputs, outputs, check_timeout(timeout), True)
                if result is not None:
                    return result
            result = self._execute_anew(inputs, outputs, measure, timeout)
            if binds:
                self._remember(inputs, outputs)
            return result
        finally:
            leave(executing.struct, me)

    def _remember(
        self, inputs: Sequence[Array | None], outputs: Sequence[Array | None] | None
    ) -> None:
        """Bind such arrays if they came twice in a row; once, until others were bound."""
        key = request_key(inputs, outputs, False)
        if key is not None and key == self._seen and key != self._last_key:
            self._last_key = key
            self._last = self._like(inputs, outputs)
        self._seen = key

    def _like(
        self, inputs: Sequence[Array | None], outputs: Sequence[Array | None] | None
    ) -> LastRequest | None:
        """A request of its own for such arrays; None if there can be none."""
        arrays = [array for array in inputs if array is not None and array.nbytes]
        if len(arrays) < len(inputs):
            return None
        wanted = [(array.dtype, array.shape) for array in arrays]
        wanted += [(parameter.dtype, parameter.dimensions) for parameter in self.outputs]
        taken = [None] * len(self.outputs) if outputs is None else outputs
        try:
            places = _in_new_pool(wanted)
            ins, outs = places[: len(arrays)], places[len(arrays) :]
            bound = CompiledRequest(weakref.proxy(self), ins, outs)  # a proxy: this burst holds it
        except NnburstError as error:
            logger.info("arrays are not bound, they are executed step by step: %s", error)
            return None
        return LastRequest.of(self.outputs, bound, inputs, taken)

    def _execute_anew(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None,
        measure: bool,
        timeout: float,
    ) -> ExecutionResult:
        """Execute once, step by step."""
        gate, me = self._bursts.gate, next(entries)
        try:
            gate.enter(me)
            return execute_arrays(
                self._executable,
                self.inputs,
                self.outputs,
                inputs,
                outputs,
                measure=measure,
                timeout=timeout,
                bursts=self._bursts.of_parts,
            )
        finally:
            leave(gate.struct, me)

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
    ) -> CompiledRequest:
        """Bind arrays once, for many runs.

        Args:
            inputs: an array for each input, None for an omitted one; new arrays in a new pool unless given.
                Arrays in a pool are used where they are, others are copied by each run.
            outputs: an array for each output, None for a new one; likewise.

        Raises:
            InvalidArgument: an array does not fit the model, or is not given for an unknown shape.
            ResourceExhausted: there is not so much memory.
            Closed: the burst is closed. A dead driver shows in the first run.
        """
        self._check_open()
        given = [*([None] * len(self.inputs) if inputs is None else inputs)]
        taken = [*([None] * len(self.outputs) if outputs is None else outputs)]
        check_count("inputs", given, self.inputs)
        check_count("outputs", taken, self.outputs)
        new = [p for p, a in zip(self.inputs, given, strict=True) if a is None and inputs is None]
        wanted = [*new, *(p for p, a in zip(self.outputs, taken, strict=True) if a is None)]
        made = iter(_in_new_pool([_fixed(parameter) for parameter in wanted]))
        ins = [next(made) if a is None and inputs is None else a for a in given]
        outs = [next(made) if a is None else a for a in taken]
        return CompiledRequest(self, ins, outs)

    def _release(self) -> None:
        self._last = None
        self._bursts.close()
        self._pipeline.close()


class CompiledRequest(OfOneProcess):
    """A request that is bound to a plan; made by `CompiledBurst.bind`.

    Usable by the thread that uses the burst.

    If each step's device has bursts and all shapes are known, a run is one C call for all steps: what a
    step writes lies where the next one reads it.

    Attributes:
        inputs: arrays that every run reads; write them before a run, not during it. None if omitted.
        outputs: arrays that every run writes.
        in_flight: whether it was submitted and has not ended yet.
    """

    _instead = "bind one in the other process; results can be pickled"

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_bound",
        "_burst",
        "_last",
        "_steps",
        "_timeout_ns",
        "in_flight",
        "inputs",
        "outputs",
    )

    def __init__(
        self, burst: CompiledBurst, inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> None:
        """Bind now; a driver that is dead already shows in the first run."""
        self._burst = burst
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.in_flight = False
        self._arguments = arguments_of(burst.inputs, burst.outputs, inputs, outputs)
        self._bound: BoundPlan | None = None
        self._last: ExecutionResult | None = None
        self._timeout_ns = 0
        self._steps: Any = None  # a pointer of cffi's, if nothing is to be copied
        try:
            self._bind()
        except NnburstError as error:
            if error.code != ResultCode.DEAD_OBJECT:
                raise

    def _bind(self) -> None:
        """Bind to the bursts as they are now."""
        burst, before = self._burst, self._bound
        self._steps = self._bound = None
        if before is not None:
            before.close()
        bound = burst._executable.bind(*self._arguments, burst._bursts)
        if bound is not None:
            weakref.finalize(self, bound.close).atexit = False
            self._bound = bound
            if not bound.inputs and not bound.outputs:
                self._steps = bound.steps.struct

    @property
    def is_bound(self) -> bool:
        """Whether a run is one C call. It is not if a driver is dead or only Python can execute the plan."""
        return self._bound is not None

    @property
    def closed(self) -> bool:
        """Whether its burst was closed, so that it cannot be run any more."""
        return self._burst.closed

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result.

        Args:
            timeout: seconds for all steps together, 30 unless given.

        Returns:
            The outputs, overwritten by the next run, shapes and timing.

        Raises:
            OutputInsufficientSize: an array is too small; `output_shapes` has what is needed.
            BurstBusy: it was submitted and has not ended, or another thread is using the burst.
            MissedDeadline: it took too long.
            DeadObject: a driver of an explicit list has died; the next run prepares again.
            NnburstError: what another device of an explicit list answers.
            Closed: the burst is closed.
        """
        timeout_ns = _DEFAULT_TIMEOUT_NS if timeout is None else int(check_timeout(timeout) * 1e9)
        if timeout_ns != self._timeout_ns:
            self._set_timeout(timeout_ns)
        code = 0
        try:
            steps = self._steps
            code = self._run_staged() if steps is None else run_steps(steps)
            if not code:
                return self._last  # type: ignore[return-value]
            return self._conclude(code, timeout_ns)
        except BaseException:  # also KeyboardInterrupt, which can come right after the C call
            if self._bound is not None and code != BUSY_CODE:
                self._bound.steps.abandon()
                self._timeout_ns = 0  # so that the next run looks whether it is to be bound anew
            raise

    def _run_staged(self) -> int:
        """Run with the copies that arrays outside of pools need, if it is bound; its status."""
        bound = self._bound
        if bound is None:
            return _BY_PYTHON
        code = bound.run()
        if not code:
            bound.copy_out()
        return code

    def submit(self, timeout: float = 30.0) -> SubmittedPlan:
        """Begin an execution without waiting for it; `outputs` hold its result once it has ended.

        Executions end in the order of their submission. While one is on its second step, the next one is on
        its first. A plan that cannot be bound is executed now.

        Args:
            timeout: seconds that it may take.

        Raises:
            BurstBusy: `max_in_flight` executions are under way, this request is, or another execution uses
                the burst.
            Closed: the burst is closed.
            NnburstError: a driver of an explicit list cannot be reached, or a plan that was executed now
                failed.
        """
        seconds = check_timeout(timeout)
        self._burst._check_open()
        if self.in_flight:
            raise BurstBusy("this request is under way: its memory is in use")
        if self._bound is None or self._timeout_ns == 0:
            self._set_timeout(_DEFAULT_TIMEOUT_NS)
        bound = self._bound
        if bound is None:
            return SubmittedPlan(self._burst.outputs, self.outputs, self.run(seconds))
        request = PlanInFlight(bound, seconds, self._settled)
        self.in_flight = True
        try:
            self._burst._pipeline.submit(request)
        except BaseException:
            self.in_flight = False
            raise
        return SubmittedPlan(self._burst.outputs, self.outputs, request)

    def _settled(self) -> None:
        """Called by the pipeline: what a run that ends like this one gives, and whether there can be one."""
        bound = self._bound
        if bound is None or not bound.is_current:
            self._timeout_ns = 0
        else:
            with contextlib.suppress(NnburstError):  # too little room for a shape that is not known
                self._last = result_of(self._burst.outputs, self.outputs, bound.outcome)
        self.in_flight = False

    def _set_timeout(self, timeout_ns: int) -> None:
        """Prepare the next run, which has so many nanoseconds and begins now."""
        began_ns = time.monotonic_ns()
        self._burst._check_open()
        if self.in_flight:
            raise BurstBusy("this request is under way: its memory is in use")
        if self._bound is None or not self._bound.is_current:
            deadline_ns = boottime_deadline_ns(timeout_ns * 1e-9)
            self._burst._executable.revive(deadline_ns, began_ns, self._burst._bursts.of_parts)
            try:
                self._bind()
            except NnburstError as error:
                if not self._burst._executable.allows_fallback:
                    raise
                logger.info("a plan is executed without being bound: %s", error)
                return
        if self._bound is not None:
            self._bound.steps.set_timeout(timeout_ns)
        self._timeout_ns = timeout_ns

    def _conclude(self, code: int, timeout_ns: int) -> ExecutionResult:
        """Finish a run that did not end as the one before."""
        burst, bound = self._burst, self._bound
        burst._check_open()
        if bound is None:
            return burst._execute_anew(self.inputs, self.outputs, False, timeout_ns * 1e-9)
        options = Options(deadline_ns=boottime_deadline_ns(bound.steps.seconds_left))
        outcome = burst._executable.conclude(bound, code, options, burst._bursts)
        if bound.is_stale:
            self._timeout_ns = 0
        self._last = result_of(burst.outputs, self.outputs, outcome)
        return self._last


def _fixed(parameter: Parameter) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Dtype and shape of a parameter's arrays."""
    if not parameter.size:
        raise error_for_code(
            ResultCode.BAD_DATA, f"{parameter.name}: it has no fixed shape: give bind an array"
        )
    return parameter.dtype, parameter.dimensions


def _in_new_pool(wanted: Sequence[tuple[np.dtype[Any], tuple[int, ...]]]) -> list[Array]:
    """An array of each dtype and shape, all in one new pool."""
    layout = Layout()
    places = [layout.place(dtype.itemsize * math.prod(shape)) for dtype, shape in wanted]
    if not places:
        return []
    pool = Pool(layout.size)
    return [
        pool.array(dtype, shape, place)
        for (dtype, shape), place in zip(wanted, places, strict=True)
    ]
