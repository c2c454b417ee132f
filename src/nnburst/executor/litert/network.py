"""Lowers a whole model to LiteRT: infers shapes by the declared rules, then lowers every operation."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

import nnburst.executor.litert.operations
import nnburst.executor.operations  # noqa: F401 - both fill their registries
from nnburst.executor.base import Bytes, Octets
from nnburst.executor.graph.plan import Step
from nnburst.executor.graph.tensor import Tensor, TensorType
from nnburst.executor.graph.translation import REFUSALS, Translation, require, require_fit
from nnburst.executor.litert.graph import TYPES, GraphWriter, Value
from nnburst.executor.litert.lowering import LOWERINGS, Lowering, Values
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import Model
from nnburst.hal.signature import Role

log = logging.getLogger("nnburst.executor")


class Network(msgspec.Struct, frozen=True):
    """A lowered model.

    Attributes:
        content: the .tflite file.
        inputs: types of the inputs.
        outputs: types of the outputs.
        private_inputs: positions of inputs whose elements the engine uses as indices: their bytes
            must not change while it runs.
        private_outputs: positions of outputs that the engine reads again.
    """

    content: Octets | memoryview
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    private_inputs: frozenset[int]
    private_outputs: frozenset[int]


class Survey(msgspec.Struct, frozen=True):
    """The operations of a model that can be lowered, and its types, found without running it.

    Attributes:
        lowered: for each operation, whether it can be lowered.
        static: numbers of the operations whose results have known types.
        types: type of every operand whose extents are known.
        network: the whole model, if all of it can be lowered.
        refusals: the reason why an operation cannot be lowered, by the number of the operation.
        weights: numbers of the DEQUANTIZE operations that only make constants real for other operations.
    """

    lowered: tuple[bool, ...]
    static: frozenset[int]
    types: Mapping[int, TensorType]
    network: Network | None
    refusals: Mapping[int, str]
    weights: frozenset[int] = frozenset()


def survey(model: Model, pools: Sequence[Bytes]) -> Survey:
    """Find the operations of a validated model's main subgraph that can be lowered."""
    try:
        translation = _Translation(model, pools)
    except (NnburstError, *REFUSALS) as error:
        log.debug("LiteRT runs no part of the model, another executor does: %s", error)
        count = len(model.main.operations)
        why = dict.fromkeys(range(count), str(error))
        return Survey((False,) * count, frozenset(), {}, None, why)
    lowered = tuple(translation.step(n) for n in range(len(translation.graph.steps)))
    network = translation.finish() if all(lowered) else None
    return Survey(
        lowered,
        translation.static,
        translation.types,
        network,
        translation.refusals,
        translation.weights,
    )


class _Translation(Translation):
    """The main graph while it is lowered."""

    def __init__(self, model: Model, pools: Sequence[Bytes]) -> None:
        super().__init__(model, pools)
        self._writer = GraphWriter()
        self._fed: list[Value] = []
        self._values = Values(
            self._writer, self.stored, relaxed=model.relax_computation_float32_to_float16
        )
        for index in self.graph.inputs:
            self._values[index] = self._feed(self.types[index])

    def _feed(self, meta: TensorType) -> Value:
        """An input; BOOL8 comes as bytes of any value and is made 0 or 1 first."""
        if meta.type is not OperandType.TENSOR_BOOL8:
            self._fed.append(self._writer.tensor(meta))
            return self._fed[-1]
        self._fed.append(self._writer.tensor(meta, "UINT8"))
        return self._writer.operator("CAST", [self._fed[-1]], [meta], "Cast")[0]

    def _lower(self, number: int, step: Step) -> None:
        self.require_known(number, lowered=step.type in LOWERINGS)
        if number in self.weights:
            return  # each operation that reads these weights adds them in the form that it needs
        results = [self.types[i] for i in step.outputs]
        node = self.node(step)
        op = Lowering(step, node, self._writer, self._values, results, self.temporaries)
        made = LOWERINGS[step.type](op)
        made = made if isinstance(made, list) else [made]
        for index, value in zip(step.outputs, made, strict=True):
            require_fit(value.meta, self.types[index])
            self._values[index] = value
            is_output = index in self.graph.outputs
            require(not (is_output and self._writer.is_folded(value)), "an output of constants")

    def _stand_in(self, step: Step) -> None:
        for index in step.outputs:
            meta = self.types.get(index)
            if meta is not None and meta.type in TYPES and 0 not in meta.dimensions:
                self._values[index] = self._writer.tensor(meta)

    def finish(self) -> Network:
        graph = self.graph
        outputs: list[Value] = []
        for index in graph.outputs:
            outputs.append(self._own(self._values[index], outputs))
        indexing = {
            step.inputs[at]
            for step in graph.steps
            for at, slot in enumerate(step.match.inputs)
            if slot.role is not Role.DATA
        }
        return Network(
            self._writer.finish(self._fed, outputs),
            tuple(self.types[i] for i in graph.inputs),
            tuple(self.types[i] for i in graph.outputs),
            frozenset(at for at, i in enumerate(graph.inputs) if i in indexing),
            frozenset(at for at, i in enumerate(graph.outputs) if i in graph.last_read),
        )

    def _own(self, value: Value, taken: Sequence[Value]) -> Value:
        """Give an output a tensor of its own, which is neither an input nor another output."""
        if value not in self._fed and value not in taken:
            return value
        rank = TensorType(OperandType.TENSOR_INT32, (len(value.shape),))
        target = self._writer.stored(Tensor.of_numbers(rank, value.shape))
        return self._writer.operator(
            "RESHAPE", [value, target], [value.meta], "Reshape", newShape=value.shape
        )[0]
