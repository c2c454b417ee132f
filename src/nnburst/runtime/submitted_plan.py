"""SubmittedPlan: an execution of a plan that is under way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.client.memory.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    check_timeout,
)
from nnburst.hal.errors import MissedDeadline
from nnburst.hal.process.of_one_process import OfOneProcess
from nnburst.runtime.array_execution import result_of
from nnburst.runtime.execution.pipeline import PlanInFlight


class SubmittedPlan(OfOneProcess):
    """An execution of a plan that was begun by `CompiledRequest.submit`. Thread-safe."""

    _instead = "wait for it here; results can be pickled"

    def __init__(
        self,
        gives: Sequence[Parameter],
        outputs: Sequence[Array],
        request: PlanInFlight | ExecutionResult,
    ) -> None:
        """Use `CompiledRequest.submit`.

        Args:
            gives: the model's outputs.
            outputs: arrays of the request.
            request: under way, or its result if it was executed at once.
        """
        self._gives: Final = gives
        self._outputs: Final = outputs
        self._request: Final = request

    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for the result. May be called again.

        Args:
            timeout: seconds to wait; the execution goes on after them.

        Raises:
            MissedDeadline: the result is not there in time, or the execution took too long.
            NnburstError: why the execution failed; see `CompiledRequest.run`.
        """
        seconds = check_timeout(timeout)
        if isinstance(self._request, ExecutionResult):
            return self._request
        outcome = self._request.wait(seconds)
        if outcome is None:
            raise MissedDeadline(f"timeout: {timeout:g} s: the result is not there yet")
        return result_of(self._gives, self._outputs, outcome)
