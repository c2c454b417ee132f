"""Runs imported models by an executor, and their files by LiteRT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from nnburst.executor.base import Argument, Executor
from nnburst.executor.graph.operation import REGISTRY
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperandLifeTime, OperandType
from nnburst.hal.model import DTYPES, Operation, Subgraph
from nnburst.hal.validation import validate_model
from nnburst.importer.imported_model import ImportedModel

Array = npt.NDArray[Any]
_L = OperandLifeTime
_COMPUTED = (_L.TEMPORARY_VARIABLE, _L.SUBGRAPH_INPUT, _L.SUBGRAPH_OUTPUT)
SIGNATURES = {kind: definition.signature for kind, definition in REGISTRY.items()}


class Runner:
    """A prepared imported model with memory for inputs and outputs, which passes states on by itself.

    `inputs` and `run` have the file's inputs and outputs, without states.
    """

    def __init__(self, imported: ImportedModel, executor: Executor | None = None) -> None:
        """Prepare the model on an executor, by default the reference executor."""
        validate_model(imported.model, SIGNATURES)
        main = imported.model.main
        every = [_array(main.operands[i]) for i in main.input_indexes]
        results = [_array(main.operands[i]) for i in main.output_indexes]
        self._states = imported.states
        for state in imported.states:
            every[state.input_index][...] = state.initial
        self.inputs = every[: len(every) - len(imported.states)]
        chosen = executor or ReferenceExecutor()
        self._prepared = chosen.prepare(imported.model, list(imported.pools))
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
    """LiteRT's own interpreter of a file, with its reference kernels or with its fast ones."""

    def __init__(self, content: bytes, *, fast: bool = False, keep: bool = False) -> None:
        litert = import_module("ai_edge_litert.interpreter")
        kernels = litert.OpResolverType
        self._interpreter = litert.Interpreter(
            model_content=content,
            num_threads=1,
            experimental_op_resolver_type=kernels.AUTO if fast else kernels.BUILTIN_REF,
            experimental_preserve_all_tensors=keep,
        )
        self._interpreter.allocate_tensors()
        self._inputs = [i["index"] for i in self._interpreter.get_input_details()]
        self._outputs = [o["index"] for o in self._interpreter.get_output_details()]

    @property
    def output_shapes(self) -> list[tuple[int, ...]]:
        """The shapes that the engine computes, whatever the file declares."""
        return [tuple(self._interpreter.get_tensor(index).shape) for index in self._outputs]

    def run(self, values: Sequence[Array]) -> list[Array]:
        for index, value in zip(self._inputs, values, strict=True):
            shape = self._interpreter.get_tensor(index).shape
            self._interpreter.set_tensor(index, value.reshape(shape))
        self._interpreter.invoke()
        return [np.asarray(self._interpreter.get_tensor(index)) for index in self._outputs]

    def steps(self, values: Sequence[Array]) -> Iterator[tuple[list[Array], list[Array]]]:
        """Inputs and outputs of every operator in one run (needs `keep`)."""
        self.run(values)
        for step in self._interpreter._get_ops_details():
            yield tuple(
                [np.asarray(self._interpreter.get_tensor(i)) for i in step[side] if i >= 0]
                for side in ("inputs", "outputs")
            )


def single_operation(imported: ImportedModel, number: int) -> ImportedModel:
    """Operation `number` of an imported model as a model of its own."""
    main, pools = imported.model.main, imported.pools
    operation = main.operations[number]
    used = list(dict.fromkeys([*operation.inputs, *operation.outputs]))
    place = {old: new for new, old in enumerate(used)}
    operands = []
    for old in used:
        operand, reads = main.operands[old], operation.inputs.count(old)
        if operand.lifetime in _COMPUTED:
            lifetime = _L.SUBGRAPH_OUTPUT if old in operation.outputs else _L.SUBGRAPH_INPUT
            operand = replace(operand, lifetime=lifetime)
        operands.append(replace(operand, number_of_consumers=reads))
    alone = Operation(
        operation.type,
        tuple(place[i] for i in operation.inputs),
        tuple(place[i] for i in operation.outputs),
    )
    given = [i for i, o in enumerate(operands) if o.lifetime == _L.SUBGRAPH_INPUT]
    graph = Subgraph(tuple(operands), (alone,), tuple(given), alone.outputs)
    return ImportedModel(replace(imported.model, main=graph), pools)


def random_values(array: Array, random: np.random.Generator, spread: float = 2.0) -> Array:
    """Random values of an input's type and shape."""
    if array.dtype.kind == "f":
        return random.uniform(-spread, spread, array.shape).astype(array.dtype)
    limits = np.iinfo(array.dtype)
    low, high = (-9, 9) if array.dtype.itemsize > 1 else (limits.min, limits.max)
    return random.integers(low, high, array.shape, array.dtype, endpoint=True)
