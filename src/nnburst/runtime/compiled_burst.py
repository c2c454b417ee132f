"""CompiledBurst: repeated executions of a compiled model over bursts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from nnburst.client.memory.arguments import Array, ExecutionResult, Parameter, check_count
from nnburst.client.memory.memory import Memory as Pool
from nnburst.client.memory.staging import Layout
from nnburst.client.session.one_thread import OneThread
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import NnburstError, OutputInsufficientSize, error_for_code
from nnburst.runtime.array_execution import execute_arrays
from nnburst.runtime.devices.driver_device import DriverBurst
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.planning.plan import SimplePlan
from nnburst.runtime.runtime_object import RuntimeObject

logger = logging.getLogger("nnburst.runtime")


class CompiledBurst(RuntimeObject):
    """A burst of each step. One thread at a time; a second one gets BurstBusy. A context manager."""

    def __init__(
        self, executable: Executable, inputs: Sequence[Parameter], outputs: Sequence[Parameter]
    ) -> None:
        """Use `CompiledModel.open_burst`."""
        super().__init__()
        self.inputs: Final = inputs
        self.outputs: Final = outputs
        self._executable: Final = executable
        self._bursts: Final = executable.open_bursts()
        self._executing: Final = OneThread()

    def execute(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
    ) -> ExecutionResult:
        """Execute once; as `CompiledModel.execute`, with the same errors, and BurstBusy."""
        self.check_open()
        me = object()
        try:
            self._executing.enter(me)
            return execute_arrays(
                self._executable,
                self.inputs,
                self.outputs,
                inputs,
                outputs,
                measure=measure,
                timeout=timeout,
                bursts=self._bursts,
            )
        finally:
            self._executing.pop(me, None)

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
    ) -> CompiledRequest:
        """Bind arrays once, for many runs.

        Args:
            inputs: pool-backed arrays, None for an omitted one; new arrays in a new pool unless given.
            outputs: likewise.

        Raises:
            InvalidArgument: an array does not fit the model, or an output of unknown shape has no array.
        """
        self.check_open()
        given = [*([None] * len(self.inputs) if inputs is None else inputs)]
        taken = [*([None] * len(self.outputs) if outputs is None else outputs)]
        check_count("inputs", given, self.inputs)
        check_count("outputs", taken, self.outputs)
        new = [p for p, a in zip(self.inputs, given, strict=True) if a is None and inputs is None]
        wanted = [*new, *(p for p, a in zip(self.outputs, taken, strict=True) if a is None)]
        made = iter(_in_new_pool(wanted))
        ins = [next(made) if a is None and inputs is None else a for a in given]
        outs = [next(made) if a is None else a for a in taken]
        return CompiledRequest(self, self._fast(ins, outs), ins, outs)

    def _fast(
        self, inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> Callable[[], Callable[[float | None], ExecutionResult]] | None:
        """Binds the request to the one driver that has the whole model; None for other plans."""
        burst = self._bursts[0]
        if not isinstance(self._executable.plan, SimplePlan) or not isinstance(burst, DriverBurst):
            return None
        return lambda: burst.bind_arrays(inputs, outputs).run

    @property
    def allows_fallback(self) -> bool:
        """Whether the CPU computes what a driver fails to."""
        return self._executable.allows_fallback

    def _release(self) -> None:
        for burst in self._bursts:
            if burst is not None:
                with contextlib.suppress(NnburstError):
                    burst.close()


class CompiledRequest:
    """A bound request of a plan. Usable by the thread that uses the burst.

    Attributes:
        inputs: write them before a run, not during it; None if omitted.
        outputs: written by every run.
    """

    __slots__ = ("_bind", "_burst", "_run", "inputs", "outputs")

    def __init__(
        self,
        burst: CompiledBurst,
        bind: Callable[[], Callable[[float | None], ExecutionResult]] | None,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> None:
        """Bind now; a driver that is dead already is told by the first run."""
        self._burst = burst
        self._bind = bind
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._run = self._execute if bind is None else bind()

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result.

        Args:
            timeout: seconds, 30 unless given.

        Returns:
            The outputs, overwritten by the next run, shapes and timing.

        Raises:
            OutputInsufficientSize: an array is too small; `output_shapes` has what is needed.
            MissedDeadline, DeadObject, Closed, BurstBusy: as they say.
        """
        try:
            return self._run(timeout)
        except NnburstError as error:
            return self._recover(error, timeout)

    def _execute(self, timeout: float | None) -> ExecutionResult:
        return self._burst.execute(self.inputs, self.outputs, timeout=timeout or 30.0)

    def _recover(self, error: NnburstError, timeout: float | None) -> ExecutionResult:
        """What the plan's mode has for a failure; a driver that came back is bound to by the next run."""
        self._burst.check_open()
        if self._bind is None or isinstance(error, OutputInsufficientSize):
            raise error
        if error.code == ResultCode.DEAD_OBJECT:
            self._run = self._bind_again
        if not self._burst.allows_fallback or error.code == ResultCode.BAD_STATE:
            raise error
        logger.warning("a burst failed (%s): the plan is executed again", error)
        return self._execute(timeout)

    def _bind_again(self, timeout: float | None) -> ExecutionResult:
        assert self._bind is not None
        run = self._bind()
        self._run = run
        return run(timeout)


def _in_new_pool(wanted: Sequence[Parameter]) -> list[Array]:
    """An array for each parameter, all in one new pool."""
    layout = Layout()
    for parameter in wanted:
        if not parameter.size:
            raise error_for_code(
                ResultCode.BAD_DATA, f"{parameter.name}: it has no fixed shape: give bind an array"
            )
    places = [layout.place(parameter.size) for parameter in wanted]
    if not places:
        return []
    pool = Pool(layout.size)
    return [
        pool.array(parameter.dtype, parameter.dimensions, place)
        for parameter, place in zip(wanted, places, strict=True)
    ]
