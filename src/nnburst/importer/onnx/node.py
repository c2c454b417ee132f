"""Represents a node of an ONNX graph that is being translated; has the table of operators.

The modules in operators/ fill the table. A file maps integers to real numbers by its QuantizeLinear and
DequantizeLinear nodes, from which quantised operands are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nnburst.formats.onnx_model import NodeProto
from nnburst.formats.onnx_tensor import DTYPES, TensorProto, element_name
from nnburst.formats.protobuf import Malformed
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import SymmPerChannelQuantParams
from nnburst.hal.utils import registers
from nnburst.importer.onnx.graph import OnnxGraph
from nnburst.importer.onnx.tensor import (
    Array,
    Order,
    QuantizedConstant,
    Shape,
    Tensor,
    constant,
    identity,
    operand_type,
)
from nnburst.importer.subgraph import Argument, Value
from nnburst.importer.tensors import Refused, TensorType

_T = OperandType


class Quantization:
    """Type, step and zero point of an output that the next node quantises."""

    __slots__ = ("scale", "type", "zero_point")

    def __init__(self, kind: OperandType, scale: float, zero_point: int) -> None:
        """Keep an operand type, its step, and its zero point."""
        self.type, self.scale, self.zero_point = kind, scale, zero_point

    def matches(self, kind: TensorType) -> bool:
        """Whether an operand has this type, step and zero point."""
        return (
            self.type == kind.type
            and self.zero_point == kind.zero_point
            and bool(np.float32(self.scale) == np.float32(kind.scale))
        )


class Node:
    """One node of the file: its inputs as tensors, its attributes, and the operations that it becomes.

    Attributes:
        kind: name of its operator.
        version: version of the operators of its domain.
        graph: the subgraph under construction.
        outputs: names of its outputs.
        quantization: quantisation of its first output, if a QuantizeLinear is the only node that reads it.
    """

    def __init__(
        self,
        proto: NodeProto,
        version: int,
        graph: OnnxGraph,
        inputs: Sequence[Tensor | None],
        decode: Callable[[TensorProto], Array],
        quantization: Quantization | None = None,
    ) -> None:
        """Begin with a node of the file whose inputs are translated; `decode` reads its tensors."""
        self.kind = proto.op_type
        self.version = version
        self.graph = graph
        self.outputs = proto.outputs
        self.quantization = quantization
        self.results: dict[int, Tensor] = {}
        self._proto = proto
        self._inputs = inputs
        self._decode = decode

    def likewise(
        self,
        kind: str,
        version: int,
        inputs: Sequence[Tensor | None],
        quantization: Quantization | None,
    ) -> Node:
        """Make a node for another operator with these inputs, and with this node's attributes.

        Args:
            kind: name of an operator of ONNX's own domain.
            version: version of the operators of that domain.
            inputs: inputs of the operator.
            quantization: quantisation of its first output; None if it is real.
        """
        proto = replace(self._proto, op_type=kind, domain="")
        return Node(proto, version, self.graph, inputs, self._decode, quantization)

    # -- Inputs and attributes

    @property
    def count(self) -> int:
        """Number of inputs, with omitted ones."""
        return len(self._inputs)

    def optional(self, position: int) -> Tensor | None:
        """Input `position`; None if it is omitted."""
        return self._inputs[position] if position < len(self._inputs) else None

    def input(self, position: int = 0) -> Tensor:
        """Input `position`, which must not be omitted."""
        found = self.optional(position)
        if found is None:
            raise Malformed(f"input {position} is missing")
        return found

    def inputs(self) -> list[Tensor]:
        """All inputs, none of which may be omitted."""
        return [self.input(position) for position in range(len(self._inputs))]

    def array(self, position: int, what: str) -> Array:
        """The value of an input that steers the operation."""
        found = self.input(position)
        if not found.is_known:
            raise Refused(f"input {position} ({what}) is computed, expected a constant")
        return found.array()

    def integers(self, position: int, what: str) -> list[int]:
        """The elements of an input that steers the operation."""
        array = self.array(position, what)
        if array.dtype.kind not in "iu" or array.size > _MOST_INTEGERS:
            raise Refused(
                f"input {position} ({what}) is {array.size} values of {array.dtype},"
                f" expected up to {_MOST_INTEGERS} integers"
            )
        return [int(value) for value in array.reshape(-1)]

    def attribute(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of any kind
        """An attribute; a tensor as an array."""
        found = self._proto.attributes.get(name)
        if found is None:
            return default
        return self._decode(found.value) if isinstance(found.value, TensorProto) else found.value

    def require_attributes(self, *names: str) -> None:
        """Refuse the node if it has other attributes: later versions may add some that change the result."""
        for name in self._proto.attributes:
            self.require(name in names, f"attribute {name}")

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is an integer."""
        return int(self._checked(name, default, int))

    def real_number(self, name: str, default: float) -> float:
        """An attribute that is a real number."""
        return float(self._checked(name, default, (int, float)))

    def string(self, name: str, default: str = "") -> str:
        """An attribute that is a string."""
        found = self._checked(name, default.encode(), bytes)
        return bytes(found).decode(errors="replace")

    def integer_list(self, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """An attribute that is a list of integers; None without the attribute and a default."""
        found = self.attribute(name)
        if found is None:
            return None if default is None else list(default)
        if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
            raise Malformed(f"attribute {name} is not a list of integers")
        return found

    def _checked(self, name: str, default: Any, kind: Any) -> Any:  # noqa: ANN401
        found = self.attribute(name, default)
        if not isinstance(found, kind):
            raise Malformed(f"attribute {name} is {type(found).__name__}")
        return found

    def steering(self, name: str, position: int, since: int) -> list[int] | None:
        """Integers that are an input since version `since` and were an attribute before; None if omitted."""
        if self.version < since:
            return self.integer_list(name)
        return None if self.optional(position) is None else self.integers(position, name)

    def axis(self, value: int, rank: int) -> int:
        """An axis that may count from the end, counted from the start."""
        if not -rank <= value < max(rank, 1):
            raise Malformed(f"axis {value} of {rank} dimensions")
        return value % rank if rank else 0

    def axes(self, values: Sequence[int], rank: int) -> list[int]:
        """Axes, of which some may count from the end, counted from the start."""
        found = [self.axis(value, rank) for value in values]
        if len(set(found)) != len(found):
            raise Malformed(f"axes {list(values)} repeat")
        return found

    def require(self, condition: bool, reason: str) -> None:
        """Refuse the node unless `condition`."""
        if not condition:
            raise Refused(reason)

    def require_kind(self, tensor: Tensor, kinds: str, what: str = "input") -> None:
        """Refuse the node unless a tensor's elements are of one of these kinds (numpy's letters)."""
        if tensor.dtype.kind not in kinds:
            raise Refused(f"{what} is {tensor.dtype}, which NNAPI's operation does not take")

    # -- Operations and results

    def real(self, position: int = 0) -> Tensor:
        """Input `position` as real numbers, dequantised if need be."""
        found = self.input(position)
        self.require_kind(found, "f", f"input {position}")
        return self.graph.real(found)

    def emit(self, kind: OperationType, inputs: Sequence[Argument], result: TensorType) -> Value:
        """Add an operation with one output."""
        return self.graph.emit(kind, inputs, result)

    def give(self, value: Value, like: Tensor) -> None:
        """Set the output to an operand whose elements are stored like those of tensor `like`."""
        self.put(Tensor(like.shape, like.dtype, value=value, order=like.order))

    def result(
        self, value: Value, shape: Shape, dtype: np.dtype[Any], order: Order | None = None
    ) -> None:
        """Set the output to an operand."""
        order = identity(len(shape)) if order is None else order
        self.put(Tensor(tuple(shape), dtype, value=value, order=order))

    def put(self, tensor: Tensor, position: int = 0) -> None:
        """Set output `position` to an existing tensor."""
        self.results[position] = tensor

    def put_known(self, array: Array, position: int = 0) -> None:
        """Set output `position` to a known value."""
        self.put(constant(array), position)

    def is_used(self, position: int) -> bool:
        """Whether the file gives output `position` a name."""
        return position < len(self.outputs) and bool(self.outputs[position])


#: The most integers of a constant that steers an operation.
_MOST_INTEGERS: Final = 4096

Translate = Callable[[Node], None]
TABLE: Final[dict[tuple[str, str], Translate]] = {}


def operator(*kinds: str, domain: str = "") -> Callable[[Translate], Translate]:
    """Register the decorated function as the translation of these operators."""
    return registers(TABLE, *((domain, kind) for kind in kinds))


def parameters(node: Node, scale: int, zero_point: int, dtype: Any = np.uint8) -> Quantization:  # noqa: ANN401
    """Read the step and zero point of a tensor, one of each, from two inputs of a node.

    Raises:
        Refused: they are computed, there are several, or NNAPI does not have their type.
    """
    steps = node.array(scale, "scale")
    zeros = np.zeros(1, dtype)
    if node.optional(zero_point) is not None:
        zeros = node.array(zero_point, "zero point")
    if steps.size != 1 or zeros.size != 1:
        raise Refused(f"{steps.size} scales: NNAPI quantises activations by one")
    kind = operand_type(zeros.dtype)
    step = float(steps.reshape(-1)[0])
    if kind not in (_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED):
        raise Refused(f"integers of {zeros.dtype}")
    if not (math.isfinite(step) and step > 0):
        raise Refused(f"scale {step}, expected a positive number")
    return Quantization(kind, step, int(zeros.reshape(-1)[0]))


def output_dtype(node: Node, default: np.dtype[Any]) -> np.dtype[Any]:
    """The element type that attribute output_dtype of a node names; `default` without the attribute.

    Raises:
        Refused: numpy has no such type.
    """
    number = node.integer("output_dtype")
    if not number:
        return default
    name = element_name(number)
    node.require(name in DTYPES, f"output_dtype is {name}, which NNAPI does not have")
    return DTYPES[name]


def quantized_type(into: Quantization, dims: tuple[int, ...]) -> TensorType:
    """The operand type of a quantised tensor."""
    return TensorType(into.type, dims, into.scale, into.zero_point)


def dequantized(tensor: Tensor, by: Quantization) -> Tensor | None:
    """Mark stored integers as the real numbers that they stand for, without computing anything.

    None if the operand has another scale or zero point.
    """
    if tensor.is_known:
        stored = tensor.array()
        made = QuantizedConstant(
            stored, np.array([by.scale], np.float32), np.array([by.zero_point], stored.dtype), 0
        )
        return Tensor(tensor.shape, np.dtype(np.float32), quantized=made)
    if not by.matches(tensor.computed().type):
        return None
    return replace(tensor, dtype=np.dtype(np.float32))


def stored_integers(tensor: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Mark quantised real numbers as their stored integers."""
    return replace(tensor, dtype=dtype)


def weights(
    graph: OnnxGraph, found: QuantizedConstant, order: tuple[int, ...], channels: int
) -> tuple[Value, Array]:
    """Quantised weights as a constant operand, and the scale of each channel.

    NNAPI: per-channel weights are int8 with zero points of 0; weights of one scale have the type of the input
        that they are multiplied with.

    Args:
        graph: the graph that they belong to.
        found: the integers.
        order: order of the operand's axes.
        channels: the axis, in the file's order, that outputs come from.
    """
    stored, scale = found.stored, found.scale.reshape(-1).astype(np.float32)
    dims = tuple(stored.shape[axis] for axis in order)
    if scale.size == 1:
        zero = int(found.zero_point.reshape(-1)[0]) if found.zero_point.size else 0
        like = TensorType(_T.TENSOR_QUANT8_ASYMM, (), float(scale[0]), zero)
        return graph.literal(stored.transpose(order), dims, like), scale
    if stored.dtype == np.uint8:  # the same numbers as signed integers, if the zero point is 128
        if not np.all(found.zero_point == 128):
            raise Refused("unsigned weights with a scale for each channel")
        graph.budget.spend(2 * stored.size)
        stored = (stored.astype(np.int16) - 128).astype(np.int8)
    elif np.any(found.zero_point):
        raise Refused("zero points for each channel, expected 0")
    if found.axis != channels or scale.size != stored.shape[channels]:
        raise Refused(f"{scale.size} scales for axis {found.axis} of {list(stored.shape)}")
    value = graph.literal(stored.transpose(order), dims)
    constant = value.constant
    assert constant is not None
    kind = TensorType(
        _T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        dims,
        extra_params=SymmPerChannelQuantParams(
            tuple(float(each) for each in scale), order.index(channels)
        ),
    )
    return Value(kind, None, constant.retyped(kind)), scale
