"""Represents an operation that is being lowered to LiteRT: its operands, and the graph that it adds to.

A lowering function reads the operation by the names of its signature and returns the values that
stand for its outputs:

    @lowers(OperationType.TILE)
    def tile(op: Lowering) -> Value:
        x = op.value("input")
        return op.emit("TILE", [x, op.integers(op.numbers("multiples"))], op.result())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.plan import Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.graph.translation import (
    LoweredOperation,
    OperandValues,
    UnsupportedByEngine,
    real_numbers,
    real_type,
)
from nnburst.executor.litert.graph import GraphWriter, Value
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.utils import registers

_T = OperandType
Q8: Final = _T.TENSOR_QUANT8_ASYMM
Q8S: Final = _T.TENSOR_QUANT8_ASYMM_SIGNED
QUANTISED: Final = (Q8, Q8S)


class Values(OperandValues[Value]):
    """The values of operands in a LiteRT graph."""

    def __init__(self, graph: GraphWriter, weights: Mapping[int, Tensor], *, relaxed: bool) -> None:
        """Start without values.

        Args:
            graph: the graph to add constants to.
            weights: see `OperandValues`.
            relaxed: see `OperandValues`.
        """
        super().__init__(
            weights, lambda t: graph.constant(real_numbers(t), real_type(t)), relaxed=relaxed
        )
        self._operands: dict[int, set[int]] = {}

    def __setitem__(self, index: int, value: Value) -> None:
        super().__setitem__(index, value)
        self._operands.setdefault(value.index, set()).add(index)

    def alike(self, index: int) -> frozenset[int]:
        """The computed operands that share the value of operand `index`.

        There are several if an operation between them moves no element, and none for a constant.
        """
        value = self._values.get(index)
        return frozenset() if value is None else frozenset(self._operands[value.index])


class Lowering(LoweredOperation[Value]):
    """One operation that is being lowered to LiteRT.

    Attributes:
        graph: the graph to add to.
    """

    _values: Values

    def __init__(
        self,
        step: Step,
        node: Node,
        graph: GraphWriter,
        values: Values,
        results: Sequence[TensorType],
        temporaries: frozenset[int],
    ) -> None:
        """See the attributes.

        Args:
            step: the operation.
            node: its operands.
            graph: the graph to add to.
            values: value of every operand that is fed or computed.
            results: types of the outputs.
            temporaries: operands that one operation reads and that are not outputs of the model.
        """
        super().__init__(step, node, values, results)
        self.graph = graph
        self._temporaries = temporaries

    def _written(self, tensor: Tensor) -> Value:
        return self.graph.stored(tensor)

    def read_once(self, name: str) -> bool:
        """Whether no other operation reads the operand's value.

        The operand, and every other operand with the same value, is then a temporary that is read once.
        """
        index = self._index(name)
        return {index} | self._values.alike(index) <= self._temporaries

    def numbers(self, name: str) -> list[int]:
        """A control tensor, flattened."""
        return [int(n) for n in self.node.tensor(name).numbers]

    def activation(self) -> int:
        """The fused activation; NNAPI's codes are the format's."""
        code = int(self.number("activation"))
        if not 0 <= code <= 3:
            raise UnsupportedByEngine(f"activation {code}")
        return code

    def constant(self, array: Array, like: TensorType) -> Value:
        """A constant with the type and quantisation of `like`."""
        return self.graph.constant(array, replace(like, dimensions=array.shape))

    def integers(self, numbers: Sequence[int] | Array) -> Value:
        """An INT32 constant; a sequence gives one dimension."""
        if isinstance(numbers, list | tuple):
            meta = TensorType(_T.TENSOR_INT32, (len(numbers),))
            return self.graph.stored(Tensor.of_numbers(meta, numbers))
        array = np.asarray(numbers, np.int32)
        return self.graph.constant(array, TensorType(_T.TENSOR_INT32, array.shape))

    def pairs(self, numbers: Sequence[int]) -> Value:
        """An INT32 constant of rows with two elements."""
        meta = TensorType(_T.TENSOR_INT32, (len(numbers) // 2, 2))
        return self.graph.stored(Tensor.of_numbers(meta, numbers))

    def real(self, number: float) -> Value:
        """A FLOAT32 constant of one element."""
        return self.graph.stored(Tensor.of_numbers(TensorType(_T.TENSOR_FLOAT32, (1,)), [number]))

    def emit(
        self,
        name: str,
        inputs: Sequence[Value],
        output: TensorType,
        options: str = "",
        **fields: object,
    ) -> Value:
        """Append an operator with one output; see `GraphWriter.operator`."""
        return self.graph.operator(name, inputs, [output], options, **fields)[0]

    def reshape(self, x: Value, dimensions: Sequence[int]) -> Value:
        """`x` with other extents."""
        if tuple(dimensions) == x.shape:
            return x
        shape = self.integers(tuple(dimensions))
        meta = replace(x.meta, dimensions=tuple(dimensions))
        return self.emit("RESHAPE", [x, shape], meta, "Reshape", newShape=list(dimensions))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """`x` with its dimensions in another order."""
        if list(permutation) == sorted(permutation):
            return x
        meta = replace(x.meta, dimensions=tuple(x.shape[p] for p in permutation))
        return self.emit("TRANSPOSE", [x, self.integers(permutation)], meta, "Transpose")

    def to_front(self, x: Value, nchw: bool) -> Value:
        """An image as NHWC."""
        return self.transpose(x, (0, 2, 3, 1)) if nchw else x

    def to_back(self, x: Value, nchw: bool) -> Value:
        """An NHWC image in the layout of the operation."""
        return self.transpose(x, (0, 3, 1, 2)) if nchw else x

    def requantize(self, x: Value, like: TensorType) -> Value:
        """`x` in the type, scale and zero point of `like`."""
        meta = replace(like, dimensions=x.shape)
        same = (meta.type, meta.scale, meta.zero_point)
        if (x.meta.type, x.meta.scale, x.meta.zero_point) == same:
            return x
        return self.emit("QUANTIZE", [x], meta, "Quantize")

    def as_type(self, x: Value, kind: OperandType) -> Value:
        """A quantised value as `kind` (Q8 or Q8S): the same numbers, the bytes moved by 128."""
        return self.requantize(x, twin(x.meta, kind))

    def floats(self, x: Value) -> Value:
        """A quantised value as float32."""
        meta = TensorType(_T.TENSOR_FLOAT32, x.shape)
        return self.emit("DEQUANTIZE", [x], meta, "Dequantize")

    def binary(self, name: str, x: Value, y: Value, like: TensorType | None = None) -> Value:
        """ADD, SUB, MUL, DIV, MAXIMUM or MINIMUM of two values, broadcasting; no activation."""
        dimensions = np.broadcast_shapes(x.shape, y.shape)
        meta = replace(like or x.meta, dimensions=dimensions)
        title = "MaximumMinimum" if name in ("MAXIMUM", "MINIMUM") else name.capitalize()
        return self.emit(name, [x, y], meta, title)


def twin(meta: TensorType, kind: OperandType) -> TensorType:
    """The type with the same range of real numbers whose bytes are `kind` (Q8 or Q8S)."""
    if meta.type is kind:
        return meta
    moved = -128 if kind is Q8S else 128
    return replace(meta, type=kind, zero_point=meta.zero_point + moved)


LoweringFunction = Callable[[Lowering], "Value | list[Value]"]

#: Lowering function of each operation; the modules in operations/ register them.
LOWERINGS: Final[dict[OperationType, LoweringFunction]] = {}


def lowers(*kinds: OperationType) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the decorated function for operations."""
    return registers(LOWERINGS, *kinds)
