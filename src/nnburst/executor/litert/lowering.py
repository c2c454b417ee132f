"""What a lowering function sees: one operation's operands, and the graph that it adds to.

A lowering function reads the operation by the names of its signature and returns the values that
stand for its outputs:

    @lowers(OperationType.TILE)
    def tile(op: Lowering) -> Value:
        x = op.value("input")
        return op.emit("TILE", [x, op.integers(op.numbers("multiples"))], op.result())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.plan import Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.graph.translation import UnsupportedByEngine, real_numbers, real_type
from nnburst.executor.litert.graph import GraphWriter, Value
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.imports import late_numpy as np

_T = OperandType
Q8: Final = _T.TENSOR_QUANT8_ASYMM
Q8S: Final = _T.TENSOR_QUANT8_ASYMM_SIGNED
QUANTISED: Final = (Q8, Q8S)


class Values:
    """The value of every operand that is fed or computed; real weights are made when they are read.

    Attributes:
        relaxed: whether real numbers may be rounded to 8 bits where they meet such weights.
    """

    def __init__(self, graph: GraphWriter, weights: Mapping[int, Tensor], *, relaxed: bool) -> None:
        """Start without any.

        Args:
            graph: what to add constants to.
            weights: stored integers by the operand that DEQUANTIZE makes of them.
            relaxed: see the attribute.
        """
        self.relaxed = relaxed
        self._graph = graph
        self._weights = weights
        self._values: dict[int, Value] = {}

    def stored(self, index: int) -> Tensor | None:
        """The integers that operand `index` is made of, if it is weights."""
        return self._weights.get(index)

    def __getitem__(self, index: int) -> Value:
        if index not in self._values and index in self._weights:
            tensor = self._weights[index]
            self._values[index] = self._graph.constant(real_numbers(tensor), real_type(tensor))
        return self._values[index]

    def __setitem__(self, index: int, value: Value) -> None:
        self._values[index] = value


class Lowering:
    """One operation being lowered.

    Attributes:
        node: its operands by name; arrays of operands that are not constant have no meaning.
        graph: what to add to.
    """

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
            graph: what to add to.
            values: value of every operand that is fed or computed.
            results: types of the outputs.
            temporaries: operands that one operation reads and that are not outputs of the model.
        """
        self._step = step
        self.node = node
        self.graph = graph
        self._values = values
        self._results = results
        self._temporaries = temporaries

    def result(self, at: int = 0) -> TensorType:
        """Type of an output."""
        return self._results[at]

    @property
    def result_count(self) -> int:
        """Number of outputs."""
        return len(self._results)

    def values(self, name: str) -> list[Value]:
        """The data operands of a slot; constants are written into the graph."""
        found = []
        for at, (slot, tensor) in enumerate(
            zip(self.node.match.inputs, self.node.inputs, strict=True)
        ):
            if slot.name == name and tensor is not None:
                found.append(self._value(at, tensor))
        return found

    def value(self, name: str) -> Value:
        """The data operand called `name`.

        Raises:
            UnsupportedByEngine: it is omitted.
        """
        found = self.values(name)
        if not found:
            raise UnsupportedByEngine(f"without operand '{name}'")
        return found[0]

    def _value(self, at: int, tensor: Tensor) -> Value:
        if at in self._step.constants:
            return self.graph.stored(tensor)
        return self._values[self._step.inputs[at]]

    def read_once(self, name: str) -> bool:
        """Whether nothing but this operation sees the operand: it is a temporary read once."""
        return self._index(name) in self._temporaries

    def eight_bits(self, name: str) -> Tensor | None:
        """The integers behind the real operand called `name`, if the engine may compute with them.

        It then rounds what they are multiplied with to 8 bits, too.
        """
        return self._values.stored(self._index(name)) if self._values.relaxed else None

    def _index(self, name: str) -> int:
        at = next(i for i, slot in enumerate(self.node.match.inputs) if slot.name == name)
        return self._step.inputs[at]

    def is_constant(self, name: str) -> bool:
        """Whether the operand called `name` is a constant of the model."""
        return self.node.is_constant(name)

    def number(self, name: str) -> Any:  # noqa: ANN401 - int, float or bool by the slot's type
        """A scalar, or its default."""
        return self.node.value(name)

    def numbers(self, name: str) -> list[int]:
        """A control tensor, flattened."""
        return [int(n) for n in self.node.tensor(name).numbers]

    def activation(self) -> int:
        """The fused activation; NNAPI's codes are the format's."""
        code = int(self.number("activation"))
        if not 0 <= code <= 3:
            raise UnsupportedByEngine(f"activation {code}")
        return code

    def axis(self, rank: int, name: str = "axis") -> int:
        """An axis counted from the front."""
        axis = int(self.number(name))
        if not -rank <= axis < rank:
            raise UnsupportedByEngine(f"axis {axis} of rank {rank}")
        return axis % rank

    def constant(self, array: Array, like: TensorType) -> Value:
        """A constant with the type and quantisation of `like`."""
        return self.graph.constant(array, replace(like, dimensions=array.shape))

    def integers(self, numbers: Sequence[int] | Array) -> Value:
        """An INT32 constant; of a sequence with one dimension."""
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
