"""One node of an ONNX graph while it is translated, and the table of those that can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nnburst.formats.onnx.model import NodeProto
from nnburst.formats.onnx.tensor import TensorProto
from nnburst.formats.onnx.wire import Malformed
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.registration import registers
from nnburst.importer.onnx.graph import OnnxGraph
from nnburst.importer.onnx.layout import Order, Shape, identity
from nnburst.importer.onnx.tensor import Array, Tensor, constant
from nnburst.importer.refused import Refused
from nnburst.importer.subgraph import Argument, Value
from nnburst.importer.tensor_type import TensorType

_T = OperandType


class Quantization:
    """Into which integers the real numbers of an output go, if the next node makes them integers."""

    __slots__ = ("scale", "type", "zero_point")

    def __init__(self, kind: OperandType, scale: float, zero_point: int) -> None:
        """Of an operand type, its step, and its stored value of 0."""
        self.type, self.scale, self.zero_point = kind, scale, zero_point

    def matches(self, kind: TensorType) -> bool:
        """Whether an operand's integers stand for the same numbers."""
        return (
            self.type == kind.type
            and self.zero_point == kind.zero_point
            and bool(np.float32(self.scale) == np.float32(kind.scale))
        )


class Node:
    """One node: its inputs as tensors, its attributes, and what it becomes.

    Attributes:
        kind: its operator.
        version: of the operators of its domain.
        graph: the subgraph that grows.
        outputs: names that it writes.
        quantization: into which its first output goes, if a QuantizeLinear is all that reads it.
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
        """Of a node of the file whose inputs were translated before; `decode` reads its tensors."""
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
        """Another operator with these inputs in the node's place, with its attributes.

        Args:
            kind: operator of ONNX's own domain.
            version: of the operators of that domain.
            inputs: of the operator.
            quantization: into which its first output goes.
        """
        proto = replace(self._proto, op_type=kind, domain="")
        return Node(proto, version, self.graph, inputs, self._decode, quantization)

    # What it reads

    @property
    def count(self) -> int:
        """Number of inputs, those left out included."""
        return len(self._inputs)

    def optional(self, position: int) -> Tensor | None:
        """Input `position`; None if it is left out."""
        return self._inputs[position] if position < len(self._inputs) else None

    def input(self, position: int = 0) -> Tensor:
        """Input `position`, which must be there."""
        found = self.optional(position)
        if found is None:
            raise Malformed(f"input {position} is missing")
        return found

    def inputs(self) -> list[Tensor]:
        """All inputs, none of which may be left out."""
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
        """An attribute that is a list of integers; None if neither it nor a default is there."""
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
        """Integers that were an attribute once and are an input since a version; None if left out."""
        if self.version < since:
            return self.integer_list(name)
        return None if self.optional(position) is None else self.integers(position, name)

    def axis(self, value: int, rank: int) -> int:
        """An axis that may count from the end, counted from the start."""
        if not -rank <= value < max(rank, 1):
            raise Malformed(f"axis {value} of {rank} dimensions")
        return value % rank if rank else 0

    def axes(self, values: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the start."""
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

    # What it becomes

    def real(self, position: int = 0) -> Tensor:
        """Input `position` as floating-point numbers, in an operand that holds them themselves."""
        found = self.input(position)
        self.require_kind(found, "f", f"input {position}")
        return self.graph.real(found)

    def emit(self, kind: OperationType, inputs: Sequence[Argument], result: TensorType) -> Value:
        """Add an operation with one output."""
        return self.graph.emit(kind, inputs, result)

    def give(self, value: Value, like: Tensor, position: int = 0) -> None:
        """Let output `position` be an operand whose elements lie as those of an input."""
        self.put(Tensor(like.shape, like.dtype, value=value, order=like.order), position)

    def result(
        self,
        value: Value,
        shape: Shape,
        dtype: np.dtype[Any],
        order: Order | None = None,
        position: int = 0,
    ) -> None:
        """Let output `position` be an operand."""
        order = identity(len(shape)) if order is None else order
        self.put(Tensor(tuple(shape), dtype, value=value, order=order), position)

    def put(self, tensor: Tensor, position: int = 0) -> None:
        """Let output `position` be a tensor that is there already."""
        self.results[position] = tensor

    def put_known(self, array: Array, position: int = 0) -> None:
        """Let output `position` be a known value."""
        self.put(constant(array), position)

    def is_used(self, position: int) -> bool:
        """Whether the file gives output `position` a name."""
        return position < len(self.outputs) and bool(self.outputs[position])


#: Integers that a constant may steer an operation with.
_MOST_INTEGERS: Final = 4096

Translate = Callable[[Node], None]
TABLE: Final[dict[tuple[str, str], Translate]] = {}


def operator(*kinds: str, domain: str = "") -> Callable[[Translate], Translate]:
    """Register the decorated function as the translation of these operators."""
    return registers(TABLE, *((domain, kind) for kind in kinds))
