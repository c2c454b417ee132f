"""A main graph that an engine is to run, operation by operation: what is known before anything is lowered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from nnburst.executor.base import Bytes
from nnburst.executor.graph.layout import lay_out
from nnburst.executor.graph.operation import Binding, Node, OperationFailed
from nnburst.executor.graph.plan import Graph, Plan, Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.imports import late_numpy as np
from nnburst.hal.model import Model, SymmPerChannelQuantParams
from nnburst.hal.operand_types import is_scalar


class UnsupportedByEngine(Exception):
    """The engine cannot run this, or not so that the result is NNAPI's; the message names what."""


#: What a lowering may raise for operands that it does not expect.
REFUSALS: Final = (
    UnsupportedByEngine,
    OperationFailed,
    KeyError,
    TypeError,
    ValueError,
    IndexError,
)


def require(condition: bool, message: str) -> None:
    """Raise UnsupportedByEngine(message) unless `condition`."""
    if not condition:
        raise UnsupportedByEngine(message)


class Translation:
    """The main graph of a model while it is lowered.

    Attributes:
        graph: its operations and constants.
        static: numbers of the operations whose results have known types.
        types: type of every operand whose extents are known.
        temporaries: operands that one operation reads and that are not outputs of the model.
        stored: integers by the operand that DEQUANTIZE makes of them, if that is no output.
        weights: numbers of the operations that only make constants real, for those who read them.
    """

    def __init__(self, model: Model, pools: Sequence[Bytes] | None) -> None:
        """Infer shapes by the declared rules.

        Args:
            model: validated.
            pools: bytes of its pools; None if they are not known (see `Graph`).

        Raises:
            UnsupportedByEngine: the extents of an input are not known.
            NnburstError: the model, or an operation of it, cannot be prepared.
        """
        self.graph: Graph = Plan(model, pools).main
        given = {i: self.graph.declared[i] for i in self.graph.inputs}
        for meta in given.values():
            known = is_scalar(meta.type) or (meta.dimensions and all(meta.dimensions))
            require(bool(known), "an input whose extents are not known")
        layout = lay_out(
            self.graph, dict(given), {i: self.graph.declared[i] for i in self.graph.outputs}
        )
        self.static = layout.steps
        self.types = {**given, **layout.types}
        reads = Counter(i for step in self.graph.steps for i in step.inputs)
        self.temporaries = frozenset(
            i for i, count in reads.items() if count == 1 and i not in self.graph.outputs
        )
        self.stored = _stored_weights(self.graph)
        self.weights = frozenset(
            n for n, step in enumerate(self.graph.steps) if step.outputs[0] in self.stored
        )

    def require_known(self, number: int, lowered: bool) -> Step:
        """The operation of this number, if its extents are known and none is 0.

        Args:
            number: of the operation.
            lowered: whether there is a lowering for its type.

        Raises:
            UnsupportedByEngine: otherwise.
        """
        step = self.graph.steps[number]
        require(
            all(0 not in self.types[i].dimensions for i in step.inputs if i in self.types),
            "an extent of 0",
        )
        require(lowered, "no lowering")
        require(number in self.static, "extents that depend on data")
        return step

    def node(self, step: Step) -> Node:
        """An operation's operands; arrays of those that are not constant have no meaning."""
        inputs = [self._tensor(index) for index in step.inputs]
        declared = [self.graph.declared[i] for i in step.outputs]
        return Node(step.type, step.match, inputs, (), declared, Binding(constants=step.constants))

    def _tensor(self, index: int) -> Tensor | None:
        constant = self.graph.constants.get(index)
        if constant is not None:
            return constant
        meta = self.types.get(index)
        if meta is None:
            return None
        return Tensor.of_unknown(meta)


def _stored_weights(graph: Graph) -> dict[int, Tensor]:
    return {
        step.outputs[0]: graph.constants[step.inputs[0]]
        for step in graph.steps
        if step.type is OperationType.DEQUANTIZE
        and step.constants
        and step.outputs[0] not in graph.outputs
    }


def real_numbers(tensor: Tensor) -> Array:
    """What stored integers stand for, as float32: what the reference executor computes."""
    meta, found = tensor.meta, tensor.array.astype(np.float32)
    found -= np.float32(meta.zero_point)
    scales: Array | np.float32 = np.float32(meta.scale)
    if isinstance(meta.extra_params, SymmPerChannelQuantParams):
        shape = [1] * found.ndim
        shape[meta.extra_params.channel_dim] = -1
        scales = np.array(meta.extra_params.scales, np.float32).reshape(shape)
    found *= scales
    return found


def real_type(tensor: Tensor) -> TensorType:
    """The type of what `real_numbers` makes."""
    return TensorType(OperandType.TENSOR_FLOAT32, tensor.shape)
