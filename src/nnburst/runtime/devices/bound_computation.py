"""BoundComputation: arguments bound to a driver's burst once, for a caller that runs them from C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.burst import Burst
from nnburst.client.memory.arguments import Array, ExecutionResult
from nnburst.hal.errors import NnburstError
from nnburst.runtime.argument import Argument, Bytes, Options, Outcome

#: Makes the outcome of a result, for these outputs.
Judge = Callable[[ExecutionResult, Sequence[Argument]], Outcome]


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of the application's that lie in no pool, and the pool's bytes that stand for them.

    Attributes:
        given: the application's.
        pooled: in a pool.
    """

    given: Bytes
    pooled: Bytes


class BoundComputation:
    """A request with its arguments, ready to be run by `nnb_client_run` again and again.

    Who runs it copies `inputs` into the pool before, and `outputs` out of it if it ended as the run before;
    what ended otherwise goes to `concluded`. One thread at a time.

    Attributes:
        burst: that it is bound to.
        request: with the C struct.
        inputs: what is copied before a run.
        outputs: what is copied behind it.
    """

    def __init__(
        self,
        burst: Burst,
        arrays: tuple[Sequence[Array | None], Sequence[Array]],
        judge: Judge,
        timeout: float,
    ) -> None:
        """Bind `arrays`; those in no pool get private memory in one.

        Raises:
            NnburstError: an array does not fit, or the burst has ended.
        """
        inputs, outputs = arrays
        self.burst: Final = burst
        self.request: Final[BoundRequest] = burst.bind_beside(inputs, outputs)
        self.request.set_timeout(timeout)
        self.inputs: Final = _copies(inputs, self.request.inputs)
        self.outputs: Final = _copies(outputs, self.request.outputs)
        self._judge: Final = judge

    def concluded(self, code: int) -> ConcludedRun:
        """A run from C that ended with `code`, as a burst that executes by looking at it."""
        return ConcludedRun(self, code)

    def conclude(self, code: int, outputs: Sequence[Argument]) -> Outcome:
        """What came of a run from C, its outputs copied; never raises for what a driver does."""
        try:
            result = self.request.conclude(code)
        except NnburstError as error:
            return Outcome.of(error)
        for copy in self.outputs:
            copy.given[...] = copy.pooled
        return self._judge(result, outputs)


class ConcludedRun:
    """Stands for the burst that an execution ran on, once."""

    def __init__(self, computation: BoundComputation, code: int) -> None:
        """Of a run that ended with `code`."""
        self._computation: Final = computation
        self._code: Final = code

    def execute(
        self,
        inputs: Sequence[Argument],  # noqa: ARG002 - they were there when it ran
        outputs: Sequence[Argument],
        options: Options,  # noqa: ARG002
    ) -> Outcome:
        """What came of it."""
        return self._computation.conclude(self._code, outputs)

    def close(self) -> None:
        """Nothing: the burst is another's."""


def _copies(given: Sequence[Array | None], bound: Sequence[Array | None]) -> tuple[Copy, ...]:
    return tuple(
        Copy(_bytes(array), _bytes(place))
        for array, place in zip(given, bound, strict=True)
        if array is not None and place is not None and array is not place
    )


def _bytes(array: Array) -> Bytes:
    found: Bytes = array.reshape(-1).view(np.uint8)
    return found
