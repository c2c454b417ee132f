"""PartTimer: how long a prepared part takes, in one burst, after a warm-up."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Final, Self

import numpy as np

from nnburst.client.memory.memory import Memory as Pool
from nnburst.hal.enums import OperandType, ResultCode
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model, Operand
from nnburst.hal.operand_types import DTYPES, is_extension, size_bytes
from nnburst.runtime.argument import (
    Argument,
    BurstController,
    Options,
    PreparedPart,
)

Clock = Callable[[], float]
_FLOATS: Final = (np.dtype("<f4"), np.dtype("<f2"))


class PartTimer:
    """Times parts. Not thread-safe.

    Attributes:
        clock: seconds that only go up.
    """

    def __init__(
        self,
        clock: Clock = time.perf_counter,
        *,
        warm_up: int = 2,
        rounds: int = 9,
        enough: float = 0.25,
    ) -> None:
        """Time so from now on.

        Args:
            clock: seconds that only go up.
            warm_up: executions that do not count.
            rounds: executions that do, at most.
            enough: seconds after which no further execution of a part begins; one always counts.
        """
        self.clock: Final = clock
        self._warm_up: Final = warm_up
        self._rounds: Final = rounds
        self._enough: Final = enough

    def seconds(self, model: Model, part: PreparedPart, hopeless: float = inf) -> float:
        """The shortest of a part's executions: what other programs add is not the device's.

        Args:
            model: that was prepared.
            part: what it was prepared as.
            hopeless: seconds; a first execution that takes longer is the only one.

        Raises:
            GeneralFailure: the size of an input or output is not known before, or the part does not execute.
        """
        with TimedPart(model, part, self.clock) as timed:
            began = self.clock()
            for _ in range(self._warm_up):
                if (first := timed.seconds()) > hopeless:
                    return first
            taken = [timed.seconds()]
            while len(taken) < self._rounds and self.clock() - began < self._enough:
                taken.append(timed.seconds())
        return min(taken)


class TimedPart:
    """A part with arguments and a burst of its own. A context manager; does not own the part."""

    def __init__(self, model: Model, part: PreparedPart, clock: Clock) -> None:
        """Allocate arguments in pools, inputs with made-up data, and open the burst.

        Raises:
            GeneralFailure: the size of an argument is not known before.
        """
        main = model.main
        self._part: Final = part
        self._clock: Final = clock
        self._pools: Final[list[Pool]] = []
        self._burst: BurstController | None = None
        try:
            self._inputs = [self._input(main.operands[index]) for index in main.input_indexes]
            self._outputs = [self._argument(main.operands[index]) for index in main.output_indexes]
            self._burst = part.open_burst()
        except BaseException:
            self.close()
            raise

    def seconds(self) -> float:
        """How long one execution takes.

        Raises:
            GeneralFailure: it fails.
        """
        executor = self._burst or self._part
        began = self._clock()
        outcome = executor.execute(self._inputs, self._outputs, Options())
        taken = self._clock() - began
        if outcome.code is not ResultCode.NO_ERROR:
            raise GeneralFailure(f"{outcome.code.name}: {outcome.message}")
        return taken

    def close(self) -> None:
        """Close the burst and free the arguments."""
        if self._burst is not None:
            self._burst.close()
        for pool in self._pools:
            pool.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def _argument(self, operand: Operand) -> Argument:
        size = (
            0
            if is_extension(operand.type)
            else size_bytes(OperandType(operand.type), operand.dimensions)
        )
        if not size:
            raise GeneralFailure("the size of an argument is not known before an execution")
        self._pools.append(Pool(size))
        return Argument(np.asarray(self._pools[-1]), operand.dimensions)

    def _input(self, operand: Operand) -> Argument:
        """Numbers of ordinary size for floats; 0 for all else, which is a valid index, axis and extent."""
        argument = self._argument(operand)
        dtype = DTYPES[OperandType(operand.type)]
        assert argument.bytes is not None
        if dtype in _FLOATS:
            values = argument.bytes.view(dtype)
            values[...] = np.linspace(-1, 1, values.size, dtype=dtype)
        return argument
