"""Writes the ONNX graph of a lowered model: values with the order of their axes, constants, nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.graph.translation import UnsupportedByEngine
from nnburst.formats import onnx_writer
from nnburst.formats.onnx_writer import Attribute
from nnburst.hal.enums import OperandType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES

_T = OperandType

#: ONNX's number of each operand type.
ELEMENTS: Final = {
    _T.TENSOR_FLOAT32: 1,
    _T.FLOAT32: 1,
    _T.TENSOR_INT32: 6,
    _T.INT32: 6,
    _T.TENSOR_BOOL8: 9,
    _T.BOOL: 9,
}
#: ONNX's number of each type that a graph reads and writes, and computes as float32.
STORED: Final = {
    _T.TENSOR_FLOAT16: 10,
    _T.FLOAT16: 10,
    _T.TENSOR_QUANT8_ASYMM: 2,
    _T.TENSOR_QUANT8_ASYMM_SIGNED: 3,
    _T.TENSOR_QUANT8_SYMM: 3,
}
_BYTES: Final = 2
_LONG: Final = 7
_HALF: Final = 10
#: Versions of the operators and of the format, which all supported versions of the engine have.
_OPSET, _VERSION = 17, 8
#: Real constants of at least this many bytes are in another file, of this name.
_SMALLEST: Final = 64
CONSTANTS: Final = "constants"
#: Alignment of each constant in that file.
_ALIGNMENT: Final = 64

Order = tuple[int, ...]


class StoredValue(msgspec.Struct, frozen=True):
    """A tensor of the graph.

    Attributes:
        name: name in the graph.
        meta: type and dimensions of the operand that it stands for.
        order: the dimension that each stored axis is.
    """

    name: str
    meta: TensorType
    order: Order

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the operand."""
        return self.meta.dimensions

    @property
    def stored(self) -> tuple[int, ...]:
        """Extents in the stored order."""
        return tuple(self.shape[axis] for axis in self.order)

    @property
    def is_plain(self) -> bool:
        """Whether the axes are stored in the operand's order."""
        return not _moves(self.order, self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class GraphNode(msgspec.Struct, frozen=True):
    """An operator of the graph.

    Attributes:
        kind: ONNX's name of the operator.
        inputs: names of the tensors that it reads.
        outputs: names of the tensors that it writes.
        content: bytes of the node in the file.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    content: bytes


class _Constant(msgspec.Struct, frozen=True):
    """A constant that is made when the graph is written."""

    element: int
    extents: tuple[int, ...]
    make: Callable[[], Array]


class WrittenGraph(msgspec.Struct, frozen=True):
    """A finished graph for the engine.

    Attributes:
        content: bytes of the graph's file.
        constants: the file that the graph names `CONSTANTS`, with float32 values only.
        output_extents: extents of each output; empty if the graph comes from a cache.
    """

    content: bytes
    constants: bytearray
    output_extents: tuple[tuple[int, ...], ...] = ()


class OnnxGraph:
    """A graph that is being written. Not thread-safe.

    Attributes:
        by_cpu: whether the engine's CPU kernels run it, some of which read NHWC images, too.
        whole: whether the file has all constants, even large ones.
        normalizes: whether the engine may fuse the operators of a normalisation; see `Library`.
        scaled: names of an image and of its factors for each channel, by the name of their product.
    """

    def __init__(self, by_cpu: bool = True, whole: bool = False, normalizes: bool = False) -> None:
        """Start empty; see the attributes."""
        self.by_cpu = by_cpu
        self.whole = whole
        self.normalizes = normalizes
        self.scaled: dict[str, tuple[str, str]] = {}
        self._nodes: list[GraphNode] = []
        self._producers: dict[str, GraphNode] = {}
        self._constants: dict[str, _Constant] = {}
        self._inputs: list[tuple[str, int, tuple[int, ...]]] = []
        self._moved: dict[tuple[str, Order], str] = {}
        self._reshaped: dict[str, tuple[str, tuple[int, ...]]] = {}  # from what, and its extents
        #: Names of integers by the name of their real numbers, type, scale and zero point.
        self._integers: dict[tuple[str, OperandType, float, int], str] = {}
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def input(self, meta: TensorType) -> StoredValue:
        """Add an input. Bytes of BOOL8 have any value and are made 0 or 1 first.

        Raises:
            UnsupportedByEngine: its type is not one of ELEMENTS.
        """
        name, element = self._name(), _element(meta)
        is_bool = meta.type is _T.TENSOR_BOOL8
        self._inputs.append((name, _BYTES if is_bool else element, meta.dimensions))
        order = tuple(range(len(meta.dimensions)))
        fed = StoredValue(name, meta, order)
        if not is_bool:
            return fed
        return StoredValue(self.node("Cast", [name], to=element)[0], meta, order)

    def stored_input(self, meta: TensorType, stored: TensorType) -> StoredValue:
        """Add an input of a type in STORED, with whose real numbers the graph computes.

        Raises:
            UnsupportedByEngine: it is not one of STORED, or has an extent of 0.
        """
        name = self._name()
        self._inputs.append((name, _stored_element(stored), meta.dimensions))
        fed = StoredValue(name, meta, tuple(range(len(meta.dimensions))))
        return self._to_real(fed, stored)

    def _to_real(self, value: StoredValue, stored: TensorType) -> StoredValue:
        (name,) = self.node("Cast", [value.name], to=ELEMENTS[_T.TENSOR_FLOAT32])
        plain = StoredValue(name, value.meta, value.order)
        return plain if STORED[stored.type] == _HALF else self._scaled(plain, stored)

    def _scaled(self, integers: StoredValue, stored: TensorType) -> StoredValue:
        """The real numbers of integers that are held as float32."""
        (name,) = self.node("Sub", [integers.name, self.real(stored.zero_point)])
        (name,) = self.node("Mul", [name, self.real(stored.scale)])
        self._integers[name, *_step(stored)] = integers.name
        return StoredValue(name, integers.meta, integers.order)

    def _rounded_integers(self, value: StoredValue, stored: TensorType) -> StoredValue:
        """The integers that memory would hold, as float32.

        QuantizeLinear is avoided: OpenVINO turns it into 8-bit kernels, which round differently, and which
        fail (2026.4 ends the process for a join of 8-bit tensors).
        """
        known = self._integers.get((value.name, *_step(stored)))
        if known is not None:
            return StoredValue(known, value.meta, value.order)
        low, high = QUANTIZED_RANGES[stored.type]
        (name,) = self.node("Div", [value.name, self.real(stored.scale)])
        (name,) = self.node("Round", [name])
        (name,) = self.node("Add", [name, self.real(stored.zero_point)])
        (name,) = self.node("Clip", [name, self.real(low), self.real(high)])
        return StoredValue(name, value.meta, value.order)

    def rounded(self, value: StoredValue, stored: TensorType) -> StoredValue:
        """Round a value as if it were stored in this type; float16 is not rounded.

        Raises:
            UnsupportedByEngine: see `stored_input`.
        """
        if _stored_element(stored) == _HALF:
            return value
        return self._scaled(self._rounded_integers(value, stored), stored)

    def as_stored(self, value: StoredValue, stored: TensorType) -> StoredValue:
        """Convert a value to its stored type, for an output of the graph."""
        element = STORED[stored.type]
        plain = value if element == _HALF else self._rounded_integers(value, stored)
        (name,) = self.node("Cast", [plain.name], to=element)
        return StoredValue(name, TensorType(stored.type, value.shape), value.order)

    def constant(self, make: Callable[[], Array], meta: TensorType) -> StoredValue:
        """Add a constant of this type, whose elements `make` returns when the graph is written."""
        name = self._name()
        self._constants[name] = _Constant(_element(meta), meta.dimensions, make)
        return StoredValue(name, meta, tuple(range(len(meta.dimensions))))

    def longs(self, numbers: Sequence[int]) -> str:
        """Add a vector of int64, for extents and axes; its name."""
        name, array = self._name(), np.array(numbers, np.int64)
        self._constants[name] = _Constant(_LONG, array.shape, lambda: array)
        return name

    def real(self, number: float) -> str:
        """Add a float32 constant of rank 0; its name."""
        name, array = self._name(), np.array(number, np.float32)
        self._constants[name] = _Constant(ELEMENTS[_T.FLOAT32], (), lambda: array)
        return name

    def is_constant(self, value: StoredValue) -> bool:
        """Whether a value is a constant."""
        return value.name in self._constants

    def vector(self, name: str) -> str:
        """Flatten a constant to one axis; its name."""
        extents = self._constants[name].extents
        return self._with_extents(name, extents, (math.prod(extents),))

    def narrowed(self, name: str) -> str:
        """A constant in the form in which CPU kernels fuse the operator that reads it; else `name`.

        A single element has no axes; with `normalizes`, no constant has leading axes of extent 1.
        """
        known = self._constants.get(name)
        if known is None or known.extents[:1] != (1,) or not self.by_cpu:
            return name
        extents = known.extents
        first = next((at for at, extent in enumerate(extents) if extent != 1), len(extents))
        if first < len(extents) and not self.normalizes:
            return name
        return self._with_extents(name, extents, extents[first:])

    def node(
        self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Attribute
    ) -> list[str]:
        """Append an operator; the names of its outputs."""
        names = [self._name() for _ in range(outputs)]
        content = onnx_writer.node(kind, inputs, names, attributes)
        made = GraphNode(kind, tuple(inputs), tuple(names), content)
        self._nodes.append(made)
        self._producers.update(dict.fromkeys(names, made))
        return names

    def producer(self, name: str) -> GraphNode | None:
        """The operator that writes a tensor; None for an input or a constant."""
        return self._producers.get(name)

    def number(self, name: str) -> float | None:
        """The element of a real constant of one element; None for any other tensor."""
        known = self._constants.get(name)
        if known is None or known.element != ELEMENTS[_T.FLOAT32] or math.prod(known.extents) != 1:
            return None
        return float(known.make().reshape(-1)[0])

    def ordered(self, value: StoredValue, order: Order) -> str:
        """The name of `value` with its axes stored in this order."""
        permutation = tuple(value.order.index(axis) for axis in order)
        if permutation == tuple(range(len(permutation))):
            return value.name
        key = (value.name, permutation)
        if key not in self._moved:
            self._moved[key] = self._reordered(value, permutation)
        return self._moved[key]

    def _reordered(self, value: StoredValue, permutation: Order) -> str:
        extents = tuple(value.stored[axis] for axis in permutation)
        known = self._constants.get(value.name)
        if known is not None:
            name, make = self._name(), known.make
            element, before = known.element, known.extents
            self._constants[name] = _Constant(
                element, extents, lambda: make().reshape(before).transpose(permutation)
            )
            return name
        if not _moves(permutation, value.stored):
            return self._with_extents(value.name, value.stored, extents)
        return self.node("Transpose", [value.name], perm=permutation)[0]

    def reshaped(self, value: StoredValue, dimensions: Sequence[int]) -> StoredValue:
        """Reshape `value` with as few moved elements as possible."""
        wanted = tuple(dimensions)
        if wanted == value.shape:
            return value
        before, after = _orders(value, wanted)
        name, extents = value.name, value.stored
        if _moves([value.order.index(axis) for axis in before], value.stored):
            name, extents = self.ordered(value, before), tuple(value.shape[axis] for axis in before)
        stored = tuple(wanted[axis] for axis in after)
        if stored != extents:
            name = self._with_extents(name, extents, stored)
        return StoredValue(name, TensorType(value.meta.type, wanted), after)

    def _with_extents(self, name: str, before: tuple[int, ...], after: tuple[int, ...]) -> str:
        """Reshape a tensor, or the tensor that it was reshaped from, to these stored extents."""
        known = self._constants.get(name)
        if known is not None:
            fresh, make = self._name(), known.make
            self._constants[fresh] = _Constant(known.element, after, lambda: make().reshape(after))
            return fresh
        first, extents = self._reshaped.get(name, (name, before))
        if extents == after:
            return first
        (made,) = self.node("Reshape", [first, self.longs(after)])
        self._reshaped[made] = first, extents
        return made

    def finish(self, outputs: Sequence[StoredValue]) -> WrittenGraph:
        """Finish the graph with these outputs in the operands' order, each with a name of its own."""
        fed, names = {name for name, _, _ in self._inputs}, []
        for value in outputs:
            name = self.ordered(value, tuple(range(len(value.shape))))
            if name in fed or name in names or name in self._constants:
                name = self.node("Identity", [name])[0]
            names.append(name)
        nodes = self._needed(names)
        read = {name for node in nodes for name in node.inputs}
        constants = bytearray()
        initializers = [
            _initializer(name, constant, None if self.whole else constants)
            for name, constant in self._constants.items()
            if name in read
        ]
        described = [
            onnx_writer.described(name, {**ELEMENTS, **STORED}[value.meta.type], value.shape)
            for name, value in zip(names, outputs, strict=True)
        ]
        content = onnx_writer.model(
            [node.content for node in nodes],
            initializers,
            [onnx_writer.described(*each) for each in self._inputs],
            described,
            opset=_OPSET,
            version=_VERSION,
        )
        extents = tuple(value.shape for value in outputs)
        return WrittenGraph(content, constants, extents)

    def _needed(self, names: Sequence[str]) -> list[GraphNode]:
        """The nodes that these tensors depend on, in order."""
        needed, kept = set(names), []
        for node in reversed(self._nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                kept.append(node)
        return kept[::-1]


def _step(stored: TensorType) -> tuple[OperandType, float, int]:
    return stored.type, stored.scale, stored.zero_point


def _stored_element(stored: TensorType) -> int:
    if stored.type not in STORED:
        raise UnsupportedByEngine(f"type {stored.type.name}")
    return STORED[stored.type]


def _element(meta: TensorType) -> int:
    if meta.type not in ELEMENTS:
        raise UnsupportedByEngine(f"type {meta.type.name}")
    if 0 in meta.dimensions:
        raise UnsupportedByEngine(f"extents {list(meta.dimensions)} with a 0")
    return ELEMENTS[meta.type]


def _initializer(name: str, constant: _Constant, constants: bytearray | None) -> bytes:
    """Encode a constant; a large real one is appended to `constants`, if that is given."""
    array = np.ascontiguousarray(constant.make().reshape(constant.extents))
    if constant.element == ELEMENTS[_T.TENSOR_BOOL8]:
        array = array != 0
    is_small = constant.element != ELEMENTS[_T.TENSOR_FLOAT32] or array.nbytes < _SMALLEST
    if constants is None or is_small:
        return onnx_writer.tensor(name, constant.element, constant.extents, array.tobytes())
    assert array.dtype == DTYPES[_T.TENSOR_FLOAT32]
    constants.extend(bytes(-len(constants) % _ALIGNMENT))
    place = (CONSTANTS, len(constants), array.nbytes)
    constants.extend(array.reshape(-1).view(np.uint8).data)
    return onnx_writer.tensor_elsewhere(name, constant.element, constant.extents, place)


def _moves(permutation: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether a permutation moves elements, which it does not if only axes of extent 1 move."""
    long = [axis for axis in permutation if extents[axis] != 1]
    return long != sorted(long)


def _orders(value: StoredValue, wanted: tuple[int, ...]) -> tuple[Order, Order]:
    """The order that `value` needs before a reshape to these extents, and its order afterwards.

    Axes that are merged, or that one axis is split into, must be stored beside each other. Groups of such
    axes keep their order.
    """
    place = {axis: at for at, axis in enumerate(value.order)}

    def first(group: tuple[range, range]) -> int:
        """The position of a group's first axis; -1 if the group has one element, which may be anywhere."""
        return min((place[axis] for axis in group[0] if value.shape[axis] != 1), default=-1)

    groups = sorted(_groups(value.shape, wanted), key=first)
    before = tuple(axis for old, _ in groups for axis in old)
    return before, tuple(axis for _, new in groups for axis in new)


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """The smallest groups of neighbouring axes with equal numbers of elements, before and after."""
    found = []
    i = j = 0
    while i < len(old) and j < len(new):
        start, begin = i, j
        have, want = old[i], new[j]
        i, j = i + 1, j + 1
        while have != want:
            if have < want:
                have, i = have * old[i], i + 1
            else:
                want, j = want * new[j], j + 1
        found.append((range(start, i), range(begin, j)))
    if i < len(old) or j < len(new):  # trailing extents of 1
        found.append((range(i, len(old)), range(j, len(new))))
    return found
