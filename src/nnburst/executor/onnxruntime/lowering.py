"""Represents an operation that is being lowered to ONNX: its operands, and the graph that it adds to.

A lowering function reads the operation by the names of its signature and returns the values that stand for
its outputs. Numbers of ONNX's axes are positions in the stored order, `StoredValue.order`:

    @lowers(OperationType.SOFTMAX)
    def softmax(op: OnnxLowering) -> StoredValue:
        x = op.value("input")
        return op.same("Softmax", x, axis=x.order.index(op.axis(len(x.shape))))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.plan import Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.graph.translation import (
    LoweredOperation,
    OperandValues,
    require,
)
from nnburst.executor.graph.windows import nhwc_extents
from nnburst.executor.onnxruntime.graph import OnnxGraph, Order, StoredValue
from nnburst.formats.onnx_writer import Attribute
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.utils import registers

_T = OperandType
#: Order of an NHWC image's axes in the layout that the engine computes with.
NCHW: Final[Order] = (0, 3, 1, 2)
#: Bounds by NNAPI's codes of fused activations; None for no bound.
BOUNDS: Final[dict[int, tuple[float, float | None]]] = {
    1: (0.0, None),
    2: (-1.0, 1.0),
    3: (0.0, 6.0),
}


class OnnxLowering(LoweredOperation[StoredValue]):
    """One operation that is being lowered to ONNX.

    Attributes:
        node: its operands by name; arrays of operands that are not constant have no meaning.
        graph: the graph to add to.
    """

    def __init__(
        self,
        step: Step,
        node: Node,
        graph: OnnxGraph,
        values: OperandValues[StoredValue],
        results: Sequence[TensorType],
    ) -> None:
        """See the attributes.

        Args:
            step: the operation.
            node: its operands.
            graph: the graph to add to.
            values: value of every operand that is fed or computed.
            results: types of the outputs.
        """
        super().__init__(step, node, values, results)
        self.graph = graph

    def _written(self, tensor: Tensor) -> StoredValue:
        return self.graph.constant(lambda: tensor.array, TensorType(tensor.type, tensor.shape))

    def require_real(self) -> None:
        """Refuse results that are not FLOAT32."""
        kind = self.result().type
        require(kind is _T.TENSOR_FLOAT32, f"{self.node.type.name} of {kind.name}")

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
            kind: ONNX's name of the operator.
            inputs: names of the tensors that it reads.
            output: type and dimensions of the operand that it computes.
            order: order in which the output's axes are stored; the operand's own by default.
            attributes: the operator's attributes.
        """
        plain = tuple(range(len(output.dimensions)))
        (name,) = self.graph.node(kind, inputs, 1, **attributes)
        return StoredValue(name, output, plain if order is None else order)

    def same(self, kind: str, x: StoredValue, *more: str, **attributes: Attribute) -> StoredValue:
        """Append an operator whose output is like `x`, in type, dimensions and order."""
        return self.emit(kind, [x.name, *more], x.meta, x.order, **attributes)

    def plain(self, x: StoredValue) -> str:
        """The name of `x` with its axes in the operand's order."""
        return self.graph.ordered(x, tuple(range(len(x.shape))))

    def image(self, x: StoredValue) -> str:
        """The name of an NHWC image in the layout that the engine computes with."""
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
        return replace(result, dimensions=nhwc_extents(result.dimensions, nchw))

    def together(self, *values: StoredValue) -> tuple[list[str], Order]:
        """The names of values after they are brought into one order of axes, and that order.

        The order is that of the largest value that is not constant, so that the fewest elements move.
        """
        rank = max(len(x.shape) for x in values)
        full = [x for x in values if len(x.shape) == rank and not self.graph.is_constant(x)]
        largest = max(full, key=lambda x: (x.size, not x.is_plain), default=None)
        order = tuple(range(rank)) if largest is None else largest.order
        wide = [self.graph.reshaped(x, (1,) * (rank - len(x.shape)) + x.shape) for x in values]
        return [self.graph.ordered(x, order) for x in wide], order

    def bounded(self, x: StoredValue, code: int) -> StoredValue:
        """`x` after the fused activation of this code."""
        if code == 0:
            return x
        require(code in BOUNDS, f"activation {code}")
        require(x.meta.type is _T.TENSOR_FLOAT32, f"an activation of {x.meta.type.name}")
        low, high = BOUNDS[code]
        if high is None:
            return self.same("Relu", x)
        return self.same("Clip", x, self.graph.real(low), self.graph.real(high))

    def activated(self, x: StoredValue) -> StoredValue:
        """`x` after the operation's fused activation."""
        return self.bounded(x, int(self.number("activation")))


LoweringFunction = Callable[[OnnxLowering], "StoredValue | list[StoredValue]"]

#: Lowering function of each operation; the modules in operations/ register them.
LOWERINGS: Final[dict[OperationType, LoweringFunction]] = {}


def lowers(*kinds: OperationType) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the decorated function for operations."""
    return registers(LOWERINGS, *kinds)
