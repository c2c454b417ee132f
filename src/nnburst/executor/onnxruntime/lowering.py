"""What a lowering function sees: one operation's operands, and the ONNX graph that it adds to.

A lowering function reads the operation by the names of its signature and returns the values that stand for
its outputs. Numbers of ONNX's axes are positions in the stored order, `StoredValue.order`:

    @lowers(OperationType.SOFTMAX)
    def softmax(op: OnnxLowering) -> StoredValue:
        x = op.value("input")
        return op.same("Softmax", x, axis=x.order.index(op.axis(len(x.shape))))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.plan import Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.graph.translation import (
    UnsupportedByEngine,
    real_numbers,
    real_type,
    require,
)
from nnburst.executor.onnxruntime.graph import OnnxGraph, Order, StoredValue
from nnburst.formats.onnx.writer import Attribute
from nnburst.hal.enums import OperandType, OperationType

_T = OperandType
#: Order of an NHWC image's axes when it is stored as the engine wants it.
NCHW: Final[Order] = (0, 3, 1, 2)
#: Bounds by NNAPI's codes of fused activations; None for no bound.
BOUNDS: Final[dict[int, tuple[float, float | None]]] = {
    1: (0.0, None),
    2: (-1.0, 1.0),
    3: (0.0, 6.0),
}


class OperandValues:
    """The value of every operand that is fed or computed; real weights are made when they are read."""

    def __init__(self, graph: OnnxGraph, weights: Mapping[int, Tensor]) -> None:
        """Start without any.

        Args:
            graph: what to add constants to.
            weights: stored integers by the operand that DEQUANTIZE makes of them.
        """
        self._graph = graph
        self._weights = weights
        self._values: dict[int, StoredValue] = {}

    def __getitem__(self, index: int) -> StoredValue:
        if index not in self._values and index in self._weights:
            tensor = self._weights[index]
            make = functools.partial(real_numbers, tensor)
            self._values[index] = self._graph.constant(make, real_type(tensor))
        return self._values[index]

    def __contains__(self, index: int) -> bool:
        return index in self._values or index in self._weights

    def __setitem__(self, index: int, value: StoredValue) -> None:
        self._values[index] = value


class OnnxLowering:
    """One operation being lowered.

    Attributes:
        node: its operands by name; arrays of operands that are not constant have no meaning.
        graph: what to add to.
    """

    def __init__(
        self,
        step: Step,
        node: Node,
        graph: OnnxGraph,
        values: OperandValues,
        results: Sequence[TensorType],
    ) -> None:
        """See the attributes.

        Args:
            step: the operation.
            node: its operands.
            graph: what to add to.
            values: value of every operand that is fed or computed.
            results: types of the outputs.
        """
        self._step = step
        self.node = node
        self.graph = graph
        self._values = values
        self._results = results

    def result(self, at: int = 0) -> TensorType:
        """Type of an output."""
        return self._results[at]

    @property
    def result_count(self) -> int:
        """Number of outputs."""
        return len(self._results)

    def values(self, name: str) -> list[StoredValue]:
        """The data operands of a slot; constants are written into the graph."""
        found = []
        for at, (slot, tensor) in enumerate(
            zip(self.node.match.inputs, self.node.inputs, strict=True)
        ):
            if slot.name == name and tensor is not None:
                found.append(self._value(at, tensor))
        return found

    def value(self, name: str) -> StoredValue:
        """The data operand called `name`.

        Raises:
            UnsupportedByEngine: it is omitted.
        """
        found = self.values(name)
        if not found:
            raise UnsupportedByEngine(f"without operand '{name}'")
        return found[0]

    def _value(self, at: int, tensor: Tensor) -> StoredValue:
        if at in self._step.constants:
            return self.graph.constant(lambda: tensor.array, TensorType(tensor.type, tensor.shape))
        index = self._step.inputs[at]
        require(index in self._values, f"an operand of {tensor.type.name}")
        return self._values[index]

    def number(self, name: str) -> Any:  # noqa: ANN401 - int, float or bool by the slot's type
        """A scalar, or its default."""
        return self.node.value(name)

    def axis(self, rank: int, name: str = "axis") -> int:
        """An axis counted from the front."""
        axis = int(self.number(name))
        require(-rank <= axis < rank, f"axis {axis} of rank {rank}")
        return axis % rank

    def require_real(self, what: str = "") -> None:
        """Refuse results that are not FLOAT32."""
        kind = self.result().type
        name = what or self.node.type.name
        require(kind is _T.TENSOR_FLOAT32, f"{name} of {kind.name}")

    def constant(self, array: Array) -> StoredValue:
        """A constant of float32, or of int32."""
        kind = _T.TENSOR_FLOAT32 if array.dtype == np.float32 else _T.TENSOR_INT32
        return self.graph.constant(lambda: array, TensorType(kind, array.shape))

    def emit(
        self,
        kind: str,
        inputs: Sequence[str],
        output: TensorType,
        order: Order | None = None,
        **attributes: Attribute,
    ) -> StoredValue:
        """Append an operator with one output.

        Args:
            kind: of the operator.
            inputs: names of what it reads.
            output: type and dimensions of the operand that it makes.
            order: in which their axes are stored; as they come unless given.
            attributes: of the operator.
        """
        plain = tuple(range(len(output.dimensions)))
        (name,) = self.graph.node(kind, inputs, 1, **attributes)
        return StoredValue(name, output, plain if order is None else order)

    def same(self, kind: str, x: StoredValue, *more: str, **attributes: Attribute) -> StoredValue:
        """Append an operator whose output is like `x`, in type, dimensions and order."""
        return self.emit(kind, [x.name, *more], x.meta, x.order, **attributes)

    def plain(self, x: StoredValue) -> str:
        """The name of `x` with its elements as the operand has them."""
        return self.graph.ordered(x, tuple(range(len(x.shape))))

    def image(self, x: StoredValue) -> str:
        """The name of an NHWC image as the engine wants it."""
        return self.graph.ordered(x, NCHW)

    def transposed(self, x: StoredValue, permutation: Sequence[int]) -> StoredValue:
        """`x` with its dimensions in another order: nothing moves."""
        meta = replace(x.meta, dimensions=tuple(x.shape[axis] for axis in permutation))
        order = tuple(list(permutation).index(axis) for axis in x.order)
        return StoredValue(x.name, meta, order)

    def to_front(self, x: StoredValue, nchw: bool) -> StoredValue:
        """An image of the operation's layout as NHWC."""
        return self.transposed(x, (0, 2, 3, 1)) if nchw else x

    def to_back(self, x: StoredValue, nchw: bool) -> StoredValue:
        """An NHWC image in the layout of the operation."""
        return self.transposed(x, NCHW) if nchw else x

    def front_result(self, nchw: bool) -> TensorType:
        """Type of the output as NHWC."""
        result = self.result()
        if not nchw:
            return result
        return replace(result, dimensions=tuple(result.dimensions[i] for i in (0, 2, 3, 1)))

    def together(self, *values: StoredValue) -> tuple[list[str], Order]:
        """The names of values of up to the same rank, in one order, and that order.

        It is the order of the largest that is computed, so that the fewest elements move.
        """
        rank = max(len(x.shape) for x in values)
        full = [x for x in values if len(x.shape) == rank and not self.graph.is_constant(x)]
        largest = max(full, key=lambda x: (x.size, not x.is_plain), default=None)
        order = tuple(range(rank)) if largest is None else largest.order
        wide = [self.graph.reshaped(x, (1,) * (rank - len(x.shape)) + x.shape) for x in values]
        return [self.graph.ordered(x, order) for x in wide], order

    def bounded(self, x: StoredValue, code: int) -> StoredValue:
        """`x` with a fused activation of this code."""
        if code == 0:
            return x
        require(code in BOUNDS, f"activation {code}")
        require(x.meta.type is _T.TENSOR_FLOAT32, f"an activation of {x.meta.type.name}")
        low, high = BOUNDS[code]
        if high is None:
            return self.same("Relu", x)
        return self.same("Clip", x, self.graph.real(low), self.graph.real(high))

    def activated(self, x: StoredValue) -> StoredValue:
        """`x` with the operation's fused activation."""
        return self.bounded(x, int(self.number("activation")))


LoweringFunction = Callable[[OnnxLowering], "StoredValue | list[StoredValue]"]

#: How each operation is lowered; the modules in operations/ fill it.
LOWERINGS: Final[dict[OperationType, LoweringFunction]] = {}


def lowers(*kinds: OperationType) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the decorated function for operations."""

    def register(function: LoweringFunction) -> LoweringFunction:
        for kind in kinds:
            if kind in LOWERINGS:
                raise ValueError(f"{kind.name} is lowered twice")
            LOWERINGS[kind] = function
        return function

    return register
