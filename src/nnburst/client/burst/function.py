"""BurstFunction: a request bound once, called like a function on arrays of the program's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy import ndarray

from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.last_request import DEFAULT_TIMEOUT
from nnburst.client.execution.buffer import refuse_buffers
from nnburst.client.memory.arguments import Array, ExecutionResult, Parameter, check_count
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.process.of_one_process import OfOneProcess


class BurstFunction(OfOneProcess):
    """A burst's execution as a function of arrays; made by `Burst.function`. One thread at a time.

    It is usable as long as its burst is open.

        classify = burst.function()
        (scores,) = classify(picture)

    Attributes:
        inputs: views of the private pool that arguments are copied to; None if an input is omitted.
    """

    _instead = "make one in the other process; results can be pickled once copied"

    __slots__ = (
        "_bound",
        "_copy",
        "_count",
        "_executing",
        "_last",
        "_outputs",
        "_parameters",
        "_places",
        "_run",
        "_struct",
        "inputs",
    )

    def __init__(
        self,
        bound: BoundRequest,
        parameters: Sequence[Parameter],
        executing: Gate,
        *,
        copy: bool,
        timeout: float,
    ) -> None:
        """Use `Burst.function`."""
        self._bound = bound
        self._struct = bound.native
        self._run = bound.run if timeout == DEFAULT_TIMEOUT else partial(bound.run, timeout)
        self._parameters = parameters
        self._executing = executing
        self._copy = copy
        self._last: ExecutionResult | None = None
        self._outputs: tuple[Array, ...] = ()
        self.inputs: tuple[Array | None, ...] = tuple(bound.inputs)
        self._count = len(self.inputs)
        self._places = tuple(
            (view, None, None, at) if view is None else (view, view.dtype, view.shape, at)
            for at, view in enumerate(self.inputs)
        )

    def __call__(self, *arrays: Array | None) -> tuple[Array, ...]:
        """Execute once.

        Args:
            arrays: one for each input, of the shapes that were bound, in any layout; None if an input was
                omitted.

        Returns:
            The outputs: views that the next call overwrites, or copies.

        Raises:
            InvalidArgument: an array does not fit; nothing was sent.
            OutputInsufficientSize, MissedDeadline, DeadObject, BurstBusy, Closed: as for `Burst.execute`.
        """
        executing, me = self._executing, next(entries)
        try:
            executing.enter(me)
            if self._struct.closed:  # in a forked child there is nothing to copy to
                self._run()
            if len(arrays) != self._count:
                check_count("inputs", arrays, self._parameters)
            for view, dtype, shape, at in self._places:
                array = arrays[at]
                if (
                    type(array) is ndarray
                    and array.dtype is dtype
                    and array.shape == shape  # which an input that is omitted has not
                ):
                    view[...] = array  # type: ignore[index]
                else:
                    self._copy_in(at, array)
            result = self._run()
            if result is not self._last:
                self._outputs, self._last = tuple(result.outputs), result
            if self._copy:
                return tuple([output.copy() for output in self._outputs])
            return self._outputs
        finally:
            leave(executing.struct, me)

    def _copy_in(self, at: int, array: Any) -> None:  # noqa: ANN401 - anything, until checked
        """Copy an argument that is not quite like its place, if it fits."""
        view, parameter = self.inputs[at], self._parameters[at]
        if view is None or array is None:
            if view is not array:
                wanted = "None: it was omitted" if view is None else "an array"
                raise InvalidArgument(
                    f"{parameter.name} is {type(array).__name__}, expected {wanted}"
                )
            return
        given = parameter.check_input(np.ascontiguousarray(array) if _strided(array) else array)
        if given.shape != view.shape:
            raise InvalidArgument(
                f"{parameter.name} has shape {given.shape}, expected {view.shape}, which was bound"
            )
        np.copyto(view, given, casting="no" if view.dtype == given.dtype else "unsafe")

    def __repr__(self) -> str:
        state = "closed" if self._bound.closed else "open"
        return f"<nnburst.BurstFunction of {len(self._places)} inputs: {state}>"


def arrays_like(
    parameters: Sequence[Parameter], arrays: Sequence[Array | None] | None
) -> list[Array | None]:
    """Private arrays like the given ones, or as the model declares; None stays None.

    Raises:
        InvalidArgument: an array does not fit the model, or is not given for a shape that is open.
    """
    if arrays is None:
        for parameter in parameters:
            if not parameter.known:
                raise InvalidArgument(f"{parameter.name} has no fixed shape: give an array like it")
        return [np.empty(parameter.dimensions, parameter.dtype) for parameter in parameters]
    check_count("inputs", arrays, parameters)
    refuse_buffers("inputs", arrays)
    return [
        None if array is None else np.empty(parameter.check_input(array).shape, array.dtype)
        for parameter, array in zip(parameters, arrays, strict=True)
    ]


def _strided(array: object) -> bool:
    return type(array) is np.ndarray and not array.flags.c_contiguous
