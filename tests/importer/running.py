"""Running imported models: by the reference executor, and the file by LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnburst.executor.protocol import Argument
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.executor.reference.operation import REGISTRY
from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.operand_types import DTYPES
from nnburst.hal.validation import validate_model
from nnburst.importer.imported_model import ImportedModel
from nnburst.testing.litert import interpreter

Array = npt.NDArray[Any]
SIGNATURES = {kind: definition.signature for kind, definition in REGISTRY.items()}


class Runner:
    """A prepared imported model with memory for inputs and outputs; states go round by themselves.

    `inputs` and `run` speak of what the file calls inputs and outputs, without states.
    """

    def __init__(self, imported: ImportedModel) -> None:
        validate_model(imported.model, SIGNATURES)
        main = imported.model.main
        every = [_array(main.operands[i]) for i in main.input_indexes]
        results = [_array(main.operands[i]) for i in main.output_indexes]
        self._states = imported.states
        for state in imported.states:
            every[state.input_index][...] = state.initial
        self.inputs = every[: len(every) - len(imported.states)]
        self._prepared = ReferenceExecutor().prepare(imported.model, list(imported.pools))
        self._execution = self._prepared.bind(
            [_argument(a) for a in every], [_argument(a) for a in results]
        )
        self._every, self._results = every, results

    def run(self, values: Sequence[Array]) -> list[Array]:
        for array, value in zip(self.inputs, values, strict=True):
            array[...] = value.reshape(array.shape)
        outcome = self._execution.run()
        assert outcome.status == ErrorStatus.NONE, outcome.message
        for state in self._states:
            self._every[state.input_index][...] = self._results[state.output_index]
        count = len(self._results) - len(self._states)
        return [array.copy() for array in self._results[:count]]


def _array(operand: Any) -> Array:
    return np.zeros(operand.dimensions, DTYPES[OperandType(operand.type)])


def _argument(array: Array) -> Argument:
    return Argument(array.reshape(-1).view(np.uint8), array.shape)


class Peer:
    """LiteRT's own interpreter of a file."""

    def __init__(self, content: bytes) -> None:
        self._interpreter = interpreter(content)
        self._inputs = [i["index"] for i in self._interpreter.get_input_details()]
        self._outputs = [o["index"] for o in self._interpreter.get_output_details()]

    def run(self, values: Sequence[Array]) -> list[Array]:
        for index, value in zip(self._inputs, values, strict=True):
            shape = self._interpreter.get_tensor(index).shape
            self._interpreter.set_tensor(index, value.reshape(shape))
        self._interpreter.invoke()
        return [np.asarray(self._interpreter.get_tensor(index)) for index in self._outputs]


def random_values(array: Array, random: np.random.Generator, spread: float = 2.0) -> Array:
    """Random values of an input's type and shape."""
    if array.dtype.kind == "f":
        return random.uniform(-spread, spread, array.shape).astype(array.dtype)
    limits = np.iinfo(array.dtype)
    low, high = (-9, 9) if array.dtype.itemsize > 1 else (limits.min, limits.max)
    return random.integers(low, high, array.shape, array.dtype, endpoint=True)
