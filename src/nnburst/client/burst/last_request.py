"""LastRequest: the way from arrays to a burst that executions like the last one take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from nnburst.client.memory.arguments import Array, ExecutionResult, Parameter
from nnburst.client.memory.memory import find_memory

#: Seconds that `BoundRequest.run` has by itself.
DEFAULT_TIMEOUT: Final = 30.0


class Repeatable(Protocol):
    """A bound request, of a burst or of a plan."""

    @property
    def inputs(self) -> Sequence[Any]:
        """Where its inputs lie."""

    @property
    def outputs(self) -> Sequence[Array]:
        """Where its outputs lie."""

    @property
    def closed(self) -> bool:
        """Whether it cannot be run any more."""

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once."""


def in_pool(array: Array) -> bool:
    """Whether an array is itself part of a request, so that nothing is copied."""
    return array.base is not None and find_memory(array) is not None


class _ArrayPlace(NamedTuple):
    """A view that was bound; without a shape it is the caller's own array, and no other may go there."""

    view: Array
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, view: Array, given: object) -> _ArrayPlace:
        return cls(view, view.dtype, None if given is view else view.shape)


class LastRequest:
    """The request that was executed last: the next one is mostly like it.

    Its arrays are private, or lie in a pool and are the very ones that were bound.
    """

    __slots__ = ("_bound", "_inputs", "_outputs", "_own_outputs")

    def __init__(self, bound: Repeatable, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Execute `bound`, made for such arrays, whose outputs have shapes that the model declares."""
        self._bound = bound
        self._inputs = [_ArrayPlace.of(*pair) for pair in zip(bound.inputs, inputs, strict=True)]
        self._outputs = [_ArrayPlace.of(*pair) for pair in zip(bound.outputs, outputs, strict=True)]
        self._own_outputs = all(place.shape is not None for place in self._outputs)

    @staticmethod
    def of(
        parameters: Sequence[Parameter],
        bound: Repeatable,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> LastRequest | None:
        """The request that such arrays were copied through; None if that is not all that was done.

        Args:
            parameters: of the outputs.
            bound: what was executed.
            inputs: the arrays that it was executed on.
            outputs: likewise; None for results of the burst's own.
        """
        pairs = [*zip(bound.inputs, inputs, strict=True)]
        pairs += [p for p in zip(bound.outputs, outputs, strict=True) if p[1] is not None]
        plain = all(
            given is view or (type(given) is np.ndarray and not in_pool(given))
            for view, given in pairs
        )
        known = all(parameter.known for parameter in parameters)
        if not plain or not known or any(array is None for array in inputs):
            return None
        return LastRequest(bound, inputs, outputs)

    def is_of(self, bound: Repeatable) -> bool:
        """Whether it executes `bound`."""
        return bound is self._bound

    def execute(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any] | None,
        timeout: float,
        copy: bool,
    ) -> ExecutionResult | None:
        """Execute once; None, with nothing sent, if anything differs from before."""
        if self._bound.closed or not (
            self._own_outputs if outputs is None else _all_fit(self._outputs, outputs)
        ):
            return None
        if not _copied_in(self._inputs, inputs):
            return None
        result = self._bound.run(None if timeout == DEFAULT_TIMEOUT else timeout)
        if outputs is None:
            if not copy:
                return result
            arrays = [output.copy() for output in result.outputs]
        else:
            arrays = list(outputs)
            for (view, _, _), array in zip(self._outputs, arrays, strict=True):
                if array is not view:
                    array[...] = view
        return ExecutionResult(arrays, result.output_shapes, result.timing)


def _copied_in(places: Sequence[_ArrayPlace], arrays: object) -> bool:
    """Copy arrays to their places, unless they are these; False if one is not exactly like its place."""
    if type(arrays) not in (list, tuple) or len(arrays) != len(places):  # type: ignore[arg-type]
        return False
    for (view, dtype, shape), array in zip(places, arrays, strict=True):  # type: ignore[call-overload]
        if array is view:
            continue
        if (
            type(array) is not np.ndarray
            or array.dtype is not dtype
            or array.shape != shape
            or not array.flags.c_contiguous
            or (array.base is not None and find_memory(array) is not None)
        ):
            return False
        view[...] = array
    return True


def _all_fit(places: Sequence[_ArrayPlace], arrays: object) -> bool:
    """Whether outputs are their places, or exactly like them, private and writable."""
    if type(arrays) not in (list, tuple) or len(arrays) != len(places):  # type: ignore[arg-type]
        return False
    for (view, dtype, shape), array in zip(places, arrays, strict=True):  # type: ignore[call-overload]
        if array is view:
            continue
        if (
            type(array) is not np.ndarray
            or array.dtype is not dtype
            or array.shape != shape
            or not array.flags.carray
            or (array.base is not None and find_memory(array) is not None)
        ):
            return False
    return True
