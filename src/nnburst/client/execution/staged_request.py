"""A request of which only the contents change: the views that they are copied through are made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnburst.client.memory.arguments import Array, Parameter, complete_shapes
from nnburst.control.messages.prepared_model import Executed
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.timing import OutputShape


class StagedRequest:
    """Copies arrays to and from the private pool of one request. One thread at a time."""

    __slots__ = ("_complete", "_outputs", "_parameters", "_shapes", "_staged")

    def __init__(
        self,
        parameters: Sequence[Parameter],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
    ) -> None:
        """Copy to `inputs` and from `outputs`; None for what lies in a pool of the caller's, or is omitted.

        Args:
            parameters: of the outputs, whose shapes the model declares.
            inputs: views of the private pool, as their arrays are.
            outputs: likewise.
        """
        self._parameters = parameters
        self._staged = inputs
        self._outputs = outputs
        self._shapes: tuple[OutputShape, ...] | None = None
        self._complete: tuple[OutputShape, ...] = ()

    def stage(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs, which fit."""
        for staged, array in zip(self._staged, arrays, strict=True):
            if staged is not None:
                staged[...] = array

    def shapes(self, executed: Executed) -> tuple[OutputShape, ...]:
        """The shapes of all outputs.

        Raises:
            GeneralFailure: the driver reports what cannot be.
        """
        reported = executed.output_shapes
        if reported != self._shapes:
            if reported and len(reported) != len(self._parameters):
                raise GeneralFailure(
                    f"the driver reports {len(reported)} shapes for {len(self._parameters)} outputs"
                )
            for parameter, shape in zip(self._parameters, reported, strict=False):
                parameter.shape_of(shape)  # what the model declares, or it raises
            self._complete = complete_shapes(self._parameters, reported)
            self._shapes = reported
        return self._complete

    def outputs(self, given: Sequence[Any]) -> list[Any]:
        """The outputs where they belong: in the given arrays, or in new ones."""
        found: list[Any] = []
        for staged, array in zip(self._outputs, given, strict=True):
            if array is None:
                array = None if staged is None else staged.copy()
            elif staged is not None:
                array[...] = staged
            found.append(array)
        return found
