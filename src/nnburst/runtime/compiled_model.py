"""CompiledModel: what `nnburst.compile` returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from nnburst.client.burst.binding import check_integer
from nnburst.client.memory.arguments import Array, ExecutionResult, Parameter, parameters
from nnburst.hal.extensions import Extension
from nnburst.runtime.array_execution import execute_arrays
from nnburst.runtime.compiled_burst import CompiledBurst
from nnburst.runtime.measuring.placement_report import PlacementReport
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.plan_view import PlanView
from nnburst.runtime.runtime_object import RuntimeObject


class CompiledModel(RuntimeObject):
    """A model that is placed and prepared; made by `nnburst.compile`. Thread-safe.

    A context manager that closes itself.

    Attributes:
        compilation: the compilation behind it, for all of NNAPI's calls.
        inputs: what each input must look like.
        outputs: what each output must look like.
    """

    _instead = "pickle the model and compile it in the other process"

    def __init__(self, compilation: Compilation) -> None:
        """Own a finished compilation."""
        super().__init__()
        self.compilation: Final = compilation
        model = compilation.model._built_model.model
        known: Sequence[Extension] = [
            extension for device in compilation.devices for extension in device.extensions
        ]
        takes, gives = parameters(model, lambda: known)
        self.inputs: Final[list[Parameter]] = takes
        self.outputs: Final[list[Parameter]] = gives

    @property
    def plan(self) -> PlanView:
        """Which device runs what; it prints as a table and draws as a graph.

        Raises:
            Closed: this is closed.
        """
        executable = self.compilation._finished_executable
        source = self.compilation.model._finished_model
        return PlanView(executable.plan, source, self.compilation._estimates(), executable.measured)

    @property
    def placement_report(self) -> PlacementReport | None:
        """What placement by measurement has found; None if the model was placed by what devices report."""
        return self.compilation.placement_report

    def execute(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
    ) -> ExecutionResult:
        """Execute once on numpy arrays.

        Arrays in pools are used where they are. Inputs must not change until this returns.

        Args:
            inputs: an array for each input; None if the operation allows to omit it.
            outputs: arrays to write to, or None for a new one. If the model leaves an output's shape
                open, a given array is room for it, and the result is a view of its beginning.
            measure: whether to time it; only plans of one step are timed.
            timeout: seconds that it may take.

        Returns:
            Outputs (the given arrays, or new ones), shapes and timing.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was executed.
            OutputInsufficientSize: a given array is too small; `output_shapes` has what is needed.
            MissedDeadline: it took too long.
            DeadObject: a driver of an explicit list has died; the next call prepares again.
            NnburstError: what another device of an explicit list answers.
            Closed: this is closed.
        """
        self._check_open()
        return execute_arrays(
            self.compilation._finished_executable,
            self.inputs,
            self.outputs,
            inputs,
            outputs,
            measure=measure,
            timeout=timeout,
        )

    async def execute_async(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        **options: Any,  # noqa: ANN401 - those of `execute`
    ) -> ExecutionResult:
        """`execute` on another thread, while the event loop goes on; arguments and errors are the same.

        A task that is cancelled does not stop the execution.
        """
        return await asyncio.to_thread(self.execute, inputs, outputs, **options)

    def open_burst(self, *, max_in_flight: int = 1) -> CompiledBurst:
        """Open a burst on each step whose device has any: executions over shared memory.

        Args:
            max_in_flight: requests that may be under way at once (`CompiledRequest.submit`), each on another
                step.

        Raises:
            InvalidArgument: `max_in_flight` is not 1 to 1,024.
            Closed: this is closed.
        """
        self._check_open()
        check_integer("max_in_flight", max_in_flight, 1, 1024)
        executable = self.compilation._finished_executable
        return CompiledBurst(executable, self.inputs, self.outputs, max_in_flight)

    def _release(self) -> None:
        self.compilation.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<nnburst.CompiledModel: {len(self.inputs)} inputs, {len(self.outputs)} outputs, {state}>"
