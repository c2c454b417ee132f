"""Translates a model's main graph for an engine: prepares its operations before each is lowered.

`Translation` finds the types and constants that lowering functions read, and `LoweredOperation` is one
operation as they see it. The lowering functions of an engine are in its own `operations` folder.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from nnburst.executor.base import Bytes
from nnburst.executor.graph.binding import lay_out
from nnburst.executor.graph.operation import Binding, Node, OperationFailed
from nnburst.executor.graph.plan import Graph, Plan, Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model, SymmPerChannelQuantParams, is_scalar

log = logging.getLogger("nnburst.executor")

#: The type that represents an operand in an engine's graph.
V = TypeVar("V")


class UnsupportedByEngine(Exception):
    """An engine cannot run a part of a model, or not with NNAPI's result; the message names the part."""


#: Errors that a lowering may raise for operands that it does not expect.
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


def require_fit(made: TensorType, declared: TensorType) -> None:
    """Raise UnsupportedByEngine unless a lowered result has the declared type and extents."""
    require(made.type is declared.type, f"a result of type {made.type.name}")
    require(made.dimensions == declared.dimensions, f"a result of extents {list(made.dimensions)}")


class Translation(ABC):
    """The main graph of a model while it is lowered.

    Attributes:
        refusals: the reason why an operation cannot be lowered, by the number of the operation.
        graph: operations and constants of the main graph.
        static: numbers of the operations whose results have known types.
        types: type of every operand whose extents are known.
        temporaries: operands that one operation reads and that are not outputs of the model.
        stored: constant integers, by the operand that DEQUANTIZE makes of them, unless that is an output.
        weights: numbers of those DEQUANTIZE operations.
    """

    def __init__(self, model: Model, pools: Sequence[Bytes] | None) -> None:
        """Infer shapes by the declared rules.

        Args:
            model: a validated model.
            pools: bytes of its pools; None if they are not known (see `Graph`).

        Raises:
            UnsupportedByEngine: the extents of an input are not known.
            NnburstError: the model, or an operation of it, cannot be prepared.
        """
        self.refusals: dict[int, str] = {}
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

    def step(self, number: int) -> bool:
        """Lower an operation; True if that was possible."""
        step = self.graph.steps[number]
        try:
            self._lower(number, step)
        except REFUSALS as error:
            log.debug("operation %d (%s) cannot be lowered: %s", number, step.type.name, error)
            self.refusals[number] = str(error)
            self._stand_in(step)
            return False
        return True

    @abstractmethod
    def _lower(self, number: int, step: Step) -> None:
        """Lower an operation, or raise one of REFUSALS."""

    @abstractmethod
    def _stand_in(self, step: Step) -> None:
        """Make values for an unsupported operation's results, so that later operations can be tried."""

    def require_known(self, number: int, lowered: bool) -> Step:
        """The operation of this number, if its extents are known and none is 0.

        Args:
            number: position of the operation in the main graph.
            lowered: whether there is a lowering for its type.

        Raises:
            UnsupportedByEngine: an extent is 0 or not known, or there is no lowering.
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


class OperandValues(Generic[V]):
    """The engine's value of each operand that is fed or computed; real weights are made when first read.

    Attributes:
        relaxed: whether real numbers may be rounded to 8 bits where they meet stored weights.
    """

    def __init__(
        self, weights: Mapping[int, Tensor], real: Callable[[Tensor], V], *, relaxed: bool
    ) -> None:
        """Start without values.

        Args:
            weights: stored integers by the operand that DEQUANTIZE makes of them.
            real: makes a constant of the real numbers that stored integers stand for.
            relaxed: see the attribute.
        """
        self.relaxed = relaxed
        self._weights = weights
        self._real = real
        self._values: dict[int, V] = {}

    def stored(self, index: int) -> Tensor | None:
        """The stored integers of operand `index`, if it is weights that DEQUANTIZE makes; else None."""
        return self._weights.get(index)

    def __contains__(self, index: int) -> bool:
        return index in self._values or index in self._weights

    def __getitem__(self, index: int) -> V:
        if index not in self._values and index in self._weights:
            self._values[index] = self._real(self._weights[index])
        return self._values[index]

    def __setitem__(self, index: int, value: V) -> None:
        self._values[index] = value


class LoweredOperation(ABC, Generic[V]):
    """One operation that is being lowered, as the lowering functions of every engine read it.

    Attributes:
        node: its operands by name; arrays of operands that are not constant have no meaning.
    """

    def __init__(
        self, step: Step, node: Node, values: OperandValues[V], results: Sequence[TensorType]
    ) -> None:
        """See the attributes.

        Args:
            step: the operation.
            node: its operands.
            values: value of every operand that is fed or computed.
            results: types of the outputs.
        """
        self.node = node
        self._step = step
        self._values = values
        self._results = results

    def result(self, at: int = 0) -> TensorType:
        """Type of an output."""
        return self._results[at]

    @property
    def result_count(self) -> int:
        """Number of outputs."""
        return len(self._results)

    def values(self, name: str) -> list[V]:
        """The data operands of a slot; constants are written into the graph."""
        found = []
        for at, (slot, tensor) in enumerate(
            zip(self.node.match.inputs, self.node.inputs, strict=True)
        ):
            if slot.name == name and tensor is not None:
                found.append(self._value(at, tensor))
        return found

    def value(self, name: str) -> V:
        """The data operand called `name`.

        Raises:
            UnsupportedByEngine: it is omitted.
        """
        found = self.values(name)
        require(bool(found), f"without operand '{name}'")
        return found[0]

    def _value(self, at: int, tensor: Tensor) -> V:
        if at in self._step.constants:
            return self._written(tensor)
        index = self._step.inputs[at]
        require(index in self._values, f"an operand of {tensor.type.name}")
        return self._values[index]

    def eight_bits(self, name: str, channels: int | None) -> Tensor | None:
        """The integers behind the real weights called `name`, if the model permits computing with them.

        LiteRT's kernels for int8 weights with a zero point of 0 also round the other factor to 8 bits. A file
        with such weights was made for that arithmetic, so every engine follows it (ADR 29).

        Args:
            name: slot of the weights.
            channels: the dimension that may have a scale for each of its elements; None for one scale only.
        """
        stored = self._values.stored(self._index(name)) if self._values.relaxed else None
        if stored is None:
            return None
        meta, params = stored.meta, stored.meta.extra_params
        if isinstance(params, SymmPerChannelQuantParams):
            return stored if params.channel_dim == channels else None
        signed = meta.type is OperandType.TENSOR_QUANT8_ASYMM_SIGNED and meta.zero_point == 0
        return stored if signed else None

    def _index(self, name: str) -> int:
        """Number of the operand called `name`."""
        at = next(i for i, slot in enumerate(self.node.match.inputs) if slot.name == name)
        return self._step.inputs[at]

    @abstractmethod
    def _written(self, tensor: Tensor) -> V:
        """Write a constant of the model into the graph."""

    def is_constant(self, name: str) -> bool:
        """Whether the operand called `name` is a constant of the model."""
        return self.node.is_constant(name)

    def number(self, name: str) -> Any:  # noqa: ANN401 - int, float or bool by the slot's type
        """A scalar, or its default."""
        return self.node.value(name)

    def axis(self, rank: int) -> int:
        """The scalar 'axis', counted from the front."""
        axis = int(self.number("axis"))
        require(-rank <= axis < rank, f"axis {axis} of rank {rank}")
        return axis % rank


def real_numbers(tensor: Tensor) -> Array:
    """The real values of stored integers, as float32, computed as by the reference executor."""
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
    """The type of the result of `real_numbers`."""
    return TensorType(OperandType.TENSOR_FLOAT32, tensor.shape)
