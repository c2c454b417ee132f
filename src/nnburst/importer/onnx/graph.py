"""Builds the NNAPI subgraph of an ONNX graph, and brings tensors into the form that operations need."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from nnburst.formats.budget import Budget
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.model import DTYPES, SymmPerChannelQuantParams
from nnburst.importer.onnx.tensor import (
    Array,
    Order,
    QuantizedConstant,
    Shape,
    Tensor,
    collapsed,
    identity,
    is_same,
    operand_type,
    permuted,
)
from nnburst.importer.subgraph import MOST_AXES, Argument, Scalar, SubgraphWriter, Value
from nnburst.importer.tensors import (
    QUANT8,
    Constant,
    ConstantPool,
    Refused,
    TensorType,
    constant_of,
    integers,
)

_O = OperationType
_T = OperandType


class OnnxGraph(SubgraphWriter):
    """The subgraph under construction, with each operand in the forms that were needed so far.

    Attributes:
        origin: the node of the file that is translated now.
        has_eight_bit_weights: whether an operation so far computes real numbers with constants of 8 bits.
    """

    def __init__(self, budget: Budget, constants: ConstantPool) -> None:
        super().__init__(budget, constants)
        self.origin = ""
        self.has_eight_bit_weights = False
        self._forms: dict[Hashable, Value] = {}
        self._arrays: list[Array] = []  # kept, so that no other array gets the same address

    # Operations

    def emit(self, kind: OperationType, inputs: Sequence[Argument], result: TensorType) -> Value:
        """Add an operation with one output; returns the output's operand."""
        return self.emit_several(kind, inputs, [result])[0]

    def emit_several(
        self, kind: OperationType, inputs: Sequence[Argument], results: Sequence[TensorType]
    ) -> list[Value]:
        """Add an operation; returns the operands of its outputs."""
        outputs = [self.temporary(result) for result in results]
        self.add(kind, inputs, outputs, self.origin)
        return outputs

    # Constants

    def literal(self, array: Array, dims: Shape, like: TensorType | None = None) -> Value:
        """A known array as a constant operand of these extents.

        Args:
            array: the value; copied only if its type is not the operand's.
            dims: extents of the operand, with as many elements.
            like: type with the quantisation of integers that stand for real numbers.

        Raises:
            Refused: NNAPI has no such type, or an integer does not fit 32 bits.
        """
        array = np.asarray(array)  # a scalar has no place of its own, by which it is known below
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        kind = TensorType(operand_type(array.dtype), dims or (1,))
        if like is not None:
            kind = replace(like, type=kind.type, dimensions=kind.dimensions)
        elif kind.type in QUANT8:
            kind = replace(kind, scale=1.0)
        if array.dtype == np.int64 and array.size:
            low, high = int(array.min()), int(array.max())
            if low < -INT32_MAX - 1 or high > INT32_MAX:
                raise Refused(f"an integer of 64 bits ({low} to {high}) does not fit 32 bits")
        dtype = DTYPES[kind.type]
        cost = (
            0 if array.dtype == dtype and array.flags.c_contiguous else array.size * dtype.itemsize
        )

        def read() -> Array:
            return np.ascontiguousarray(array, dtype).reshape(kind.dimensions)

        self._arrays.append(array)
        start = array.__array_interface__["data"][0]
        place = start, array.shape, array.strides, array.dtype.str
        return Value(kind, None, Constant(kind, read, cost, ("onnx", place, kind)))

    def number(self, value: float, like: TensorType) -> Scalar:
        """A real scalar: float16 if `like` is float16, else float32."""
        half = like.type == _T.TENSOR_FLOAT16
        return Scalar(float(value), _T.FLOAT16 if half else _T.FLOAT32)

    def filled(self, value: float, like: TensorType) -> Constant:
        """A constant with one element, to be used with `like`, which is not quantised."""
        return constant_of(TensorType(like.type, (1,)), [value])

    # Forms of a tensor

    def stored(
        self, tensor: Tensor, order: Order | None = None, dims: Shape | None = None
    ) -> Value:
        """An operand with a tensor's elements.

        Args:
            tensor: the tensor; quantised real numbers stay quantised.
            order: order of its axes; by default the file's.
            dims: extents of the operand; by default those of the axes in this order.

        Raises:
            Refused: NNAPI cannot bring the tensor into this form.
        """
        order = identity(tensor.rank) if order is None else order
        dims = permuted(tensor.shape, order) if dims is None else dims
        if tensor.constant is not None:
            return self.literal(tensor.constant.transpose(order), dims)
        if tensor.quantized is not None:
            kept = self._eight_bits(tensor.quantized, order, dims)
            if kept is not None and kept.constant is not None:
                self.has_eight_bit_weights = True
                return self.real_constant(kept.constant, self.origin, weights=False)
            return self.literal(tensor.array().transpose(order), dims)
        return self.reshaped(self.ordered(tensor, order), dims or (1,))

    def _eight_bits(self, found: QuantizedConstant, order: Order, dims: Shape) -> Value | None:
        """The integers as an operand for DEQUANTIZE; None if NNAPI has no such operand."""
        steps, stored = found.scale.reshape(-1), found.stored
        if steps.dtype != np.float32 or stored.dtype not in (np.int8, np.uint8):
            return None
        if not (np.all(np.isfinite(steps)) and np.all(steps > 0)):
            return None
        if steps.size == 1 and found.zero_point.size <= 1:
            zero = int(found.zero_point.reshape(-1)[0]) if found.zero_point.size else 0
            like = TensorType(_T.TENSOR_QUANT8_ASYMM, (), float(steps[0]), zero)
            return self.literal(stored.transpose(order), dims, like)
        kept = dims == permuted(stored.shape, order) and steps.size == stored.shape[found.axis]
        if stored.dtype != np.int8 or np.any(found.zero_point) or not kept:
            return None
        value = self.literal(stored.transpose(order), dims)
        scales = SymmPerChannelQuantParams(tuple(map(float, steps)), order.index(found.axis))
        kind = TensorType(_T.TENSOR_QUANT8_SYMM_PER_CHANNEL, dims, extra_params=scales)
        assert value.constant is not None
        return Value(kind, None, value.constant.retyped(kind))

    def any_form(self, tensor: Tensor) -> Value:
        """An operand with a tensor's elements, in any order and extents."""
        return self.stored(tensor) if tensor.is_known else tensor.computed()

    def real(self, tensor: Tensor) -> Tensor:
        """A tensor whose operand holds the real numbers themselves."""
        if not tensor.is_quantized_real or tensor.is_known:
            return tensor
        value = tensor.computed()
        key = "real", value
        if key not in self._forms:
            kind = TensorType(operand_type(tensor.dtype), value.type.dimensions)
            self._forms[key] = self.emit(_O.DEQUANTIZE, [value], kind)
        return replace(tensor, value=self._forms[key])

    def ordered(self, tensor: Tensor, order: Order) -> Value:
        """An operand with a computed tensor's elements in a certain order, of any extents."""
        value = tensor.computed()
        if is_same(tensor.shape, tensor.order, order):
            return value
        dims, permutation = collapsed(tensor.shape, tensor.order, order)
        key = value, dims, permutation
        if key not in self._forms:
            self._forms[key] = self._transposed(value, dims, permutation)
        return self._forms[key]

    def _transposed(self, value: Value, dims: Shape, permutation: Order) -> Value:
        kind = replace(value.type, dimensions=permuted(dims, permutation))
        if value.type.type == _T.TENSOR_BOOL8:
            return self.truth(self._transposed(self.as_numbers(value), dims, permutation))
        if value.type.type == _T.TENSOR_INT32:
            elements = self.counted(math.prod(dims)).reshape(dims)
            return self.picked(value, elements.transpose(permutation))
        if len(dims) > MOST_AXES:
            return self._transposed_by_steps(value, dims, permutation)
        return self.emit(_O.TRANSPOSE, [self.reshaped(value, dims), integers(permutation)], kind)

    def _transposed_by_steps(self, value: Value, dims: Shape, permutation: Order) -> Value:
        """Transpose more axes than TRANSPOSE allows: move one axis at a time, with the others merged."""
        have = list(range(len(dims)))
        for at, axis in enumerate(permutation):
            found = have.index(axis)
            if found == at:
                continue
            parts = have[:at], have[at:found], have[found : found + 1], have[found + 1 :]
            extents = tuple(math.prod(dims[each] for each in part) for part in parts)
            value = self._transposed(value, extents, (0, 2, 1, 3))
            have.insert(at, have.pop(found))
        return value

    def counted(self, count: int) -> Array:
        """The numbers 0 to `count` - 1, charged to the budget."""
        self.budget.spend(8 * count)
        return np.arange(count, dtype=np.int32)

    def picked(self, value: Value, elements: Array) -> Value:
        """Pick elements of an operand by their position in it, in the shape of `elements`."""
        if value.type.type == _T.TENSOR_BOOL8:
            return self.truth(self.picked(self.as_numbers(value), elements))
        flat = self.reshaped(value, (value.type.elements,))
        self.budget.spend(4 * elements.size)
        chosen = replace(value.type, dimensions=(elements.size,))
        found = self.emit(_O.GATHER, [flat, 0, integers(elements)], chosen)
        return self.reshaped(found, tuple(elements.shape))

    def reshaped(self, value: Value, dims: Shape) -> Value:
        """The same elements in an operand of other extents."""
        if value.type.dimensions == dims:
            return value
        key = value, dims
        if key not in self._forms:
            kind = replace(value.type, dimensions=dims)
            if value.type.type == _T.TENSOR_BOOL8:
                found = self.truth(self.reshaped(self.as_numbers(value), dims))
            else:
                found = self.emit(_O.RESHAPE, [value, integers(dims)], kind)
            self._forms[key] = found
        return self._forms[key]

    def as_numbers(self, value: Value) -> Value:
        """Truth values as numbers 1 and 0, which more operations support."""
        key = "numbers", value
        if key not in self._forms:
            kind = TensorType(_T.TENSOR_FLOAT32, value.type.dimensions)
            self.budget.spend(8 * kind.elements)
            ones = constant_of(kind, np.ones(kind.dimensions))
            zeros = constant_of(kind, np.zeros(kind.dimensions))
            self._forms[key] = self.emit(_O.SELECT, [value, ones, zeros], kind)
        return self._forms[key]

    def truth(self, value: Value) -> Value:
        """Whether each number is not 0; of integers, whether they are stored as something else than 0."""
        kind = TensorType(_T.TENSOR_BOOL8, value.type.dimensions)
        zero = constant_of(replace(value.type, dimensions=(1,)), [0])
        return self.emit(_O.NOT_EQUAL, [value, zero], kind)

    def cast(self, value: Value, kind: OperandType) -> Value:
        """Numbers in another type; truth values as 1 and 0."""
        if value.type.type == kind:
            return value
        if value.type.type == _T.TENSOR_BOOL8:
            return self.cast(self.as_numbers(value), kind)
        if kind == _T.TENSOR_BOOL8:
            return self.truth(value)
        scale = 1.0 if kind in QUANT8 else 0.0
        return self.emit(_O.CAST, [value], TensorType(kind, value.type.dimensions, scale))
