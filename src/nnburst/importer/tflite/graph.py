"""Translates a subgraph of a .tflite file, and its tensors and constants to operands.

Sparse constants are made dense. Variables become inputs and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.tflite_reader import File, MalformedTflite, names, schema
from nnburst.hal.enums import OperandType
from nnburst.hal.limits import INT32_MAX, MAX_RANK, UINT32_MAX
from nnburst.hal.model import DTYPES, SymmPerChannelQuantParams, size_bytes
from nnburst.importer.subgraph import SubgraphWriter, Value
from nnburst.importer.tensors import Constant, ConstantPool, Refused, TensorType
from nnburst.importer.tflite.file import OPERATOR_COST, TENSOR_COST, TfliteFile, text

_T = OperandType

#: Operand type of every element type that NNAPI has. Integers without a scale in the file get step 1.
_TYPES: Final = {
    "FLOAT32": _T.TENSOR_FLOAT32,
    "FLOAT16": _T.TENSOR_FLOAT16,
    "INT32": _T.TENSOR_INT32,
    "UINT8": _T.TENSOR_QUANT8_ASYMM,
    "INT8": _T.TENSOR_QUANT8_ASYMM_SIGNED,
    "INT16": _T.TENSOR_QUANT16_SYMM,
    "BOOL": _T.TENSOR_BOOL8,
}
#: Element types that only constants may have: they are converted when they are read.
CONSTANT_TYPES: Final = {
    "INT64": _T.TENSOR_INT32,
    "FLOAT64": _T.TENSOR_FLOAT32,
    "INT4": _T.TENSOR_QUANT8_ASYMM_SIGNED,
}
_ZERO_POINTS: Final = {
    _T.TENSOR_QUANT8_ASYMM: (0, 255),
    _T.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
}


def element_type(tensor: Any) -> str:  # noqa: ANN401 - generated code without types
    """Name of a tensor's element type in the file."""
    return names("TensorType").get(tensor.Type(), f"type {tensor.Type()}")


def tensor_type(file: File, tensor: Any, *, constant: bool) -> TensorType:  # noqa: ANN401
    """The operand type that a tensor of the file gets.

    Args:
        file: the file, which is charged for the scales.
        tensor: a tensor of the file.
        constant: whether its value is constant; constants may have types that are converted.

    Raises:
        Refused: NNAPI has no such operand.
    """
    name = element_type(tensor)
    kind = _TYPES.get(name) or (CONSTANT_TYPES.get(name) if constant else None)
    if kind is None:
        raise Refused(f"type {name} is not one of NNAPI's")
    found = TensorType(kind, _dimensions(tensor))
    if size_bytes(kind, found.dimensions) > UINT32_MAX:
        raise Refused(f"shape {list(found.dimensions)} is larger than an operand can be")
    return _quantized(file, tensor, found)


def _dimensions(tensor: Any) -> tuple[int, ...]:  # noqa: ANN401
    rank = tensor.ShapeLength()
    if rank > MAX_RANK:
        raise Refused(f"rank {rank}, expected at most {MAX_RANK}")
    dimensions = tuple(int(tensor.Shape(axis)) for axis in range(rank))
    if any(extent < 1 for extent in dimensions):
        raise Refused(f"shape {list(dimensions)}: NNAPI has no extents below 1 but unknown ones")
    return dimensions or (1,)


def _quantized(file: File, tensor: Any, plain: TensorType) -> TensorType:  # noqa: ANN401
    if plain.type not in _ZERO_POINTS and plain.type != _T.TENSOR_QUANT16_SYMM:
        return plain
    params = tensor.Quantization()
    count = 0 if params is None else params.ScaleLength()
    if not count:
        return replace(plain, scale=1.0)
    if count != 1:
        return _per_channel(file, params, count, plain)
    zero_point = int(params.ZeroPoint(0)) if params.ZeroPointLength() else 0
    low, high = _ZERO_POINTS.get(plain.type, (0, 0))
    if not low <= zero_point <= high:
        raise Refused(f"zero point {zero_point}, expected {low} to {high}")
    return replace(plain, scale=_scale(params.Scale(0)), zero_point=zero_point)


def _per_channel(file: File, params: Any, count: int, plain: TensorType) -> TensorType:  # noqa: ANN401
    """Types of tensors that have a scale per channel: symmetric int8."""
    axis = int(params.QuantizedDimension())
    if plain.type != _T.TENSOR_QUANT8_ASYMM_SIGNED:
        raise Refused(f"{count} scales: NNAPI quantises only int8 per channel")
    if not 0 <= axis < len(plain.dimensions) or plain.dimensions[axis] != count:
        raise MalformedTflite(f"{count} scales for dimension {axis} of {list(plain.dimensions)}")
    file.spend(64 * count)
    if params.ZeroPointLength() and params.ZeroPointAsNumpy().any():
        raise Refused("zero points per channel, expected 0")
    scales = tuple(_scale(scale) for scale in params.ScaleAsNumpy().tolist())
    return replace(
        plain,
        type=_T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        extra_params=SymmPerChannelQuantParams(scales, axis),
    )


def _scale(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise Refused(f"scale {value}, expected a positive number")
    return float(value)


# -- Sparse constants, made dense ------------------------------------------------------------------
# A sparse tensor is stored as a tree: one level per dimension of the tensor, and below those one level per
# dimension of the blocks that it may be cut into. A DENSE level has a child for each index; a SPARSE_CSR
# level lists the present indexes for each node above. The leaves are the values. Levels are read one after
# the other, all nodes of a level at once.


Array = npt.NDArray[Any]
_Indexes = npt.NDArray[np.int32]

_VECTORS: Final = ("Int32Vector", "Uint16Vector", "Uint8Vector")
#: Bytes of bookkeeping for each node: positions, places and what a level adds to them.
_PER_NODE: Final = 48
#: Nodes that a level may have beyond one per value: those without any value below them.
_EMPTY_NODES: Final = 2**17


def dense_cost(dimensions: Sequence[int], values: Array) -> int:
    """The most bytes that `densify` allocates."""
    return math.prod(dimensions) * values.itemsize + _PER_NODE * (len(values) + _EMPTY_NODES)


def densify(sparsity: Any, values: Array, dimensions: tuple[int, ...]) -> Array:  # noqa: ANN401
    """The dense array.

    Args:
        sparsity: SparsityParameters of the tensor.
        values: the stored values, the leaves in order.
        dimensions: of the tensor.

    Raises:
        MalformedTflite: the tree does not fit the tensor or the values.
    """
    levels = sparsity.DimMetadataLength()
    if not len(dimensions) <= levels <= 2 * MAX_RANK or sparsity.TraversalOrderLength() != levels:
        raise MalformedTflite(f"{levels} sparse levels for {len(dimensions)} dimensions")
    order = [int(sparsity.TraversalOrder(level)) for level in range(levels)]
    if sorted(order) != list(range(levels)):
        raise MalformedTflite(f"traversal order {order} of a sparse tensor")
    strides, extents = _level_strides(sparsity, dimensions, order)
    if math.prod(dimensions) > INT32_MAX:
        raise Refused(f"a sparse tensor of shape {list(dimensions)} is too large")
    most = len(values) + _EMPTY_NODES
    positions = np.zeros(1, np.int32)  # of the nodes of one level, as its parent numbers them
    places = np.zeros(1, np.int32)  # of the nodes in the dense array
    for level, dimension in enumerate(order):
        meta = sparsity.DimMetadata(level)
        parents, positions, indexes = _children(meta, positions, extents[dimension], most)
        places = places[parents] + indexes * strides[dimension]
    if not np.array_equal(positions, np.arange(len(values), dtype=np.int32)):
        raise MalformedTflite(f"{len(positions)} places for {len(values)} sparse values")
    dense = np.zeros(math.prod(dimensions), values.dtype)
    dense[places] = values
    return dense.reshape(dimensions)


def _level_strides(
    sparsity: Any,  # noqa: ANN401
    dimensions: tuple[int, ...],
    order: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Elements that a step along each dimension of the tree spans, and its extent.

    Dimensions of the tensor come first, counted in blocks; then those of a block.
    """
    count = sparsity.BlockMapLength()
    if count > len(dimensions):
        raise MalformedTflite(f"blocks of {count} dimensions in a tensor of {len(dimensions)}")
    mapped = [int(sparsity.BlockMap(i)) for i in range(count)]
    if len(set(mapped)) != count or any(not 0 <= axis < len(dimensions) for axis in mapped):
        raise MalformedTflite(f"block map {mapped} of a tensor of {len(dimensions)} dimensions")
    if len(order) != len(dimensions) + count:
        raise MalformedTflite(
            f"{len(order)} sparse levels for {len(dimensions)} dimensions and {count}"
        )
    # The extent of a block is given by the level that walks it.
    walking = [order.index(len(dimensions) + i) for i in range(count)]
    sizes = [int(sparsity.DimMetadata(level).DenseSize()) for level in walking]
    block = dict(zip(mapped, sizes, strict=True))
    plain = [math.prod(dimensions[axis + 1 :]) for axis in range(len(dimensions))]
    for axis, size in block.items():
        if size < 1 or dimensions[axis] % size:
            raise MalformedTflite(f"blocks of {size} do not fill dimension {axis} of {dimensions}")
    steps = [stride * block.get(axis, 1) for axis, stride in enumerate(plain)]
    extents = [extent // block.get(axis, 1) for axis, extent in enumerate(dimensions)]
    return steps + [plain[axis] for axis in mapped], extents + sizes


def _children(
    meta: Any,  # noqa: ANN401
    positions: _Indexes,
    extent: int,
    most: int,
) -> tuple[_Indexes, _Indexes, _Indexes]:
    """The nodes below those at `positions`: parent (by order), position and index of each."""
    if meta.Format() == schema().DimensionType.DENSE:
        # Positions of a hostile tree may have gaps: the numbers below must stay small even then.
        width = int(positions.max(initial=-1)) + 1
        if meta.DenseSize() != extent or width * extent > most or len(positions) * extent > most:
            raise MalformedTflite(
                f"a level of {meta.DenseSize()} for {extent} indexes, {most} nodes"
            )
        parents = np.repeat(np.arange(len(positions), dtype=np.int32), extent)
        indexes = np.tile(np.arange(extent, dtype=np.int32), len(positions))
        return parents, positions[parents] * np.int32(extent) + indexes, indexes
    segments = _numbers(meta, "ArraySegments", most + 1)
    listed = _numbers(meta, "ArrayIndices", most)
    # Compared, not subtracted: differences of hostile segments wrap.
    if len(segments) <= positions.max(initial=-1) + 1 or (segments[1:] < segments[:-1]).any():
        raise MalformedTflite("segments of a sparse level are not in order or too few")
    if segments[0] < 0 or segments[-1] > len(listed):
        raise MalformedTflite(f"segments of a sparse level leave its {len(listed)} indexes")
    starts, ends = segments[positions], segments[positions + 1]
    counts = ends - starts
    total = int(counts.sum(dtype=np.int64))
    if total > most:
        raise MalformedTflite(f"a sparse level of {total} nodes, expected at most {most}")
    parents = np.repeat(np.arange(len(positions), dtype=np.int32), counts)
    before = np.cumsum(counts, dtype=np.int32) - counts
    offsets = np.arange(total, dtype=np.int32) - np.repeat(before, counts)
    below = starts[parents] + offsets
    indexes = listed[below]
    if total and (indexes.min() < 0 or indexes.max() >= extent):
        raise MalformedTflite(f"an index of a sparse level is outside its {extent}")
    return parents, below, indexes


def _numbers(meta: Any, field: str, most: int) -> _Indexes:  # noqa: ANN401
    """A vector of a sparse level, of at most `most` elements and any integer type."""
    name = names("SparseIndexVector").get(getattr(meta, f"{field}Type")())
    if name not in _VECTORS:
        raise MalformedTflite(f"{field} of a sparse level are of type {name}")
    union = getattr(meta, field)()
    if union is None:
        raise MalformedTflite(f"a sparse level lacks {field}")
    vector = getattr(schema(), name)()
    vector.Init(union.Bytes, union.Pos)
    if vector.ValuesLength() > most:
        raise MalformedTflite(
            f"{vector.ValuesLength()} {field} of a sparse level, expected at most {most}"
        )
    return np.asarray(vector.ValuesAsNumpy() if vector.ValuesLength() else [], np.int32)


# -- Constants: views of the file's bytes, converted if NNAPI has no such type ---------------------


_STORED: Final[dict[str, np.dtype[Any]]] = {
    "INT64": np.dtype("<i8"),
    "FLOAT64": np.dtype("<f8"),
    "INT4": np.dtype("u1"),
}


def constant_tensor(file: TfliteFile, tensor: Any) -> Constant | None:  # noqa: ANN401 - generated code
    """The value of a tensor of the file; None if it is computed.

    Raises:
        InvalidArgument: it does not fit its type, or NNAPI has no such operand.
    """
    if tensor.ExternalBuffer():
        raise Refused("its data lies in another file")
    data = file.buffer(tensor.Buffer())
    if not len(data) or tensor.IsVariable():
        return None
    kind = tensor_type(file.bytes, tensor, constant=True)
    name = element_type(tensor)
    key = (tensor.Buffer(), name, kind.dimensions)
    if (sparsity := tensor.Sparsity()) is not None:
        if name not in ("FLOAT32", "FLOAT16", "INT8"):
            raise Refused(f"sparse {name}: expected FLOAT32, FLOAT16 or INT8")
        dtype = DTYPES[kind.type]
        if len(data) % dtype.itemsize:
            raise MalformedTflite(f"sparse {name} values take {len(data)} bytes")
        stored = data.view(dtype)
        return Constant(
            kind,
            lambda: densify(sparsity, stored, kind.dimensions),
            dense_cost(kind.dimensions, stored),
            (*key, sparsity._tab.Pos),  # the tree: equal values in another one make another matrix
        )
    return _dense(name, kind, data, key)


def _dense(name: str, kind: TensorType, data: npt.NDArray[np.uint8], key: Hashable) -> Constant:
    dtype = _STORED.get(name, DTYPES[kind.type])
    expected = (kind.elements + 1) // 2 if name == "INT4" else kind.elements * dtype.itemsize
    if len(data) != expected:
        raise MalformedTflite(
            f"a constant has {len(data)} bytes, expected {expected} from its shape"
        )
    stored = data.view(dtype)
    convert = _CONVERSIONS.get(name)
    if convert is None:
        return Constant(kind, lambda: stored.reshape(kind.dimensions), 0, key)
    return Constant(
        kind, lambda: convert(stored, kind).reshape(kind.dimensions), 4 * len(data), key
    )


def _narrow(stored: Array, kind: TensorType) -> Array:  # noqa: ARG001
    """64-bit integers as 32-bit ones."""
    if stored.max() > INT32_MAX or stored.min() < -INT32_MAX - 1:
        raise Refused("a 64-bit integer does not fit 32 bits")
    return stored.astype(np.int32)


def _nibbles(stored: Array, kind: TensorType) -> Array:
    """Two 4-bit integers of every byte, the lower half first."""
    both = np.empty((len(stored), 2), np.int8)
    np.left_shift(stored, 4, out=both[:, 0].view(np.uint8))
    both[:, 1] = stored.view(np.int8)
    both >>= 4
    return both.reshape(-1)[: kind.elements]


_CONVERSIONS: Final[dict[str, Callable[[Array, TensorType], Array]]] = {
    "INT64": _narrow,
    "FLOAT64": lambda stored, _: stored.astype(np.float32),
    "INT4": _nibbles,
    "BOOL": lambda stored, _: (stored != 0).astype(np.uint8),
}


class Graph(SubgraphWriter):
    """The values of a subgraph's tensors, and the NNAPI subgraph that is made of them.

    Attributes:
        file: the file.
        subgraph: the file's subgraph.
        is_dynamic_range: whether an operator so far multiplies real numbers with quantised weights.
    """

    def __init__(self, file: TfliteFile, index: int, constants: ConstantPool) -> None:
        """Start subgraph `index` with its inputs; constants go to `constants`."""
        super().__init__(file.bytes, constants)
        self.file = file
        self.subgraph = file.subgraph(index)
        self.is_dynamic_range = False
        self._values: dict[int, Value] = {}
        self._count = self.subgraph.TensorsLength()
        for tensor in indexes(file, self.subgraph, "Inputs"):
            if tensor in self._values:
                raise MalformedTflite(f"tensor {tensor} is an input twice")
            self._values[tensor] = self.add_input(self.computed_type(tensor))

    def tensor(self, index: int) -> Any:  # noqa: ANN401 - generated code without types
        """Tensor `index` of the file."""
        if not 0 <= index < self._count:
            raise MalformedTflite(f"tensor {index} of {self._count}")
        return self.subgraph.Tensors(index)

    def name(self, index: int) -> str:
        """Name of a tensor."""
        return text(self.tensor(index).Name())

    def computed_type(self, index: int) -> TensorType:
        """The operand type of a tensor whose value is not in the file."""
        self.file.bytes.spend(TENSOR_COST)
        try:
            return tensor_type(self.file.bytes, self.tensor(index), constant=False)
        except Refused as refused:
            raise Refused(f"tensor {index} ({self.name(index)!r}): {refused}") from None

    def value(self, index: int) -> Value:
        """The value of tensor `index`.

        Raises:
            InvalidArgument: nothing has written it, or NNAPI has no such operand.
        """
        found = self._values.get(index)
        if found is None:
            self.file.bytes.spend(TENSOR_COST)
            try:
                constant = constant_tensor(self.file, self.tensor(index))
            except Refused as refused:
                raise Refused(f"tensor {index} ({self.name(index)!r}): {refused}") from None
            if constant is None:
                self.computed_type(index)  # raises the better message if NNAPI has no such operand
                raise MalformedTflite(
                    f"tensor {index} ({self.name(index)!r}) is read but never written"
                )
            constant = replace(constant, name=f"tensor {index} ({self.name(index)!r})")
            found = self._values[index] = Value(constant.type, None, constant)
        return found

    def define(self, index: int, value: Value) -> None:
        """Set the value of tensor `index`."""
        if index in self._values:
            raise MalformedTflite(f"tensor {index} ({self.name(index)!r}) is written twice")
        self._values[index] = value


def indexes(file: TfliteFile, table: Any, field: str) -> list[int]:  # noqa: ANN401
    """A vector of tensor indexes of a subgraph or operator, charged; empty if it is absent."""
    count = getattr(table, f"{field}Length")()
    file.bytes.spend(64 * count)
    return [int(i) for i in getattr(table, f"{field}AsNumpy")().tolist()] if count else []


# -- Variables of a network ------------------------------------------------------------------------
# A file keeps state between executions in two ways: resources that VAR_HANDLE names and READ_VARIABLE
# and ASSIGN_VARIABLE use, which CALL_ONCE sets before the first execution; and tensors marked as
# variables, which recurrent operators write in place. NNAPI's models have no memory: a variable's first
# value becomes an input, its last one an output.


@dataclass(slots=True)
class Variable:
    """A variable while the main subgraph is translated.

    Attributes:
        name: name in the file.
        initial: value before the first execution; None for zeros.
        given: its value when an execution begins; None until it is read before it is assigned.
        current: its value at this point; None until it is read or assigned.
    """

    name: str
    initial: Constant | None = None
    given: Value | None = None
    current: Value | None = None

    def read(self, graph: Graph, kind: TensorType) -> Value:
        """The value at this point, of type `kind`."""
        if self.current is None:
            self.given = self.current = graph.add_input(kind)
        self._check(kind, self.current.type)
        return self.current

    def assign(self, value: Value) -> None:
        """Set the value from this point on."""
        if self.current is not None:
            self._check(self.current.type, value.type)
        self.current = value

    def first(self, pool: ConstantPool) -> npt.NDArray[Any]:
        """The value before the first execution: an array of its own, read-only."""
        assert self.given is not None
        kind, dtype = self.given.type, DTYPES[self.given.type.type]
        pool.charge(kind.elements * dtype.itemsize)
        value = np.full(kind.dimensions, kind.zero_point, dtype)
        if self.initial is not None:
            self._check(kind, self.initial.type)
            value[...] = pool.read(self.initial)
        value.flags.writeable = False
        return value

    def _check(self, wanted: TensorType, found: TensorType) -> None:
        if wanted != found:
            raise Refused(f"variable {self.name!r} is {wanted} in one place and {found} in another")


class Variables:
    """All variables of a network."""

    def __init__(self, file: TfliteFile) -> None:
        self._file = file
        self._all: dict[Hashable, Variable] = {}
        self._resources: dict[int, Variable] = {}

    def __repr__(self) -> str:
        return f"<variables of a .tflite file: {[each.name for each in self._all.values()]}>"

    def handle(self, tensor: int, options: Any) -> None:  # noqa: ANN401 - VarHandleOptions
        """Translate VAR_HANDLE: tensor `tensor` of the main subgraph is a variable."""
        self._resources[tensor] = self._named(options)

    def resource(self, tensor: int) -> Variable:
        """The variable of a tensor that VAR_HANDLE wrote."""
        if tensor not in self._resources:
            raise MalformedTflite(f"tensor {tensor} stands for no variable")
        return self._resources[tensor]

    def in_place(self, graph: Graph, tensor: int) -> Variable:
        """The variable behind a tensor that its operator writes in place."""
        if not graph.tensor(tensor).IsVariable():
            raise Refused(f"tensor {tensor} holds a state but is not marked as a variable")
        if tensor not in self._all:
            self._all[tensor] = Variable(graph.name(tensor) or f"tensor {tensor}")
        return self._all[tensor]

    def read_ones(self) -> list[Variable]:
        """The variables whose values pass from one execution to the next, in the order of their inputs.

        A variable that is assigned before it is read is left out: its earlier value has no effect.

        Raises:
            InvalidArgument: two of them have one name.
        """
        read = {key: each for key, each in self._all.items() if each.given is not None}
        keys: dict[str, Hashable] = {}
        for key, variable in read.items():
            other = keys.setdefault(variable.name, key)
            if other != key:
                raise Refused(
                    f"variables {_described(other)} and {_described(key)} are both named"
                    f" {variable.name!r}"
                )
        return sorted(read.values(), key=_input_operand)

    def initialize(self, index: int) -> None:
        """Translate CALL_ONCE: note the values that subgraph `index` of the file assigns.

        Raises:
            InvalidArgument: the subgraph does anything else, or assigns computed values.
        """
        graph = self._file.subgraph(index)
        handles: dict[int, Variable] = {}
        for at, raw in enumerate(self._file.entries(graph.OperatorsLength(), graph.Operators)):
            self._file.bytes.spend(OPERATOR_COST)
            name = self._file.operator_name(raw)
            if name == "VAR_HANDLE" and raw.OutputsLength() == 1:
                handles[int(raw.Outputs(0))] = self._named(_var_handle_options(raw))
            elif name == "ASSIGN_VARIABLE" and raw.InputsLength() == 2:
                self._assign(graph, raw, handles)
            else:
                raise Refused(f"initialising subgraph {index} uses {name} (operator {at})")

    def _assign(self, graph: Any, raw: Any, handles: dict[int, Variable]) -> None:  # noqa: ANN401
        handle, tensor = int(raw.Inputs(0)), int(raw.Inputs(1))
        if handle not in handles or not 0 <= tensor < graph.TensorsLength():
            raise MalformedTflite(f"tensors {handle} and {tensor} of an initial assignment")
        variable = handles[handle]
        variable.initial = constant_tensor(self._file, graph.Tensors(tensor))
        if variable.initial is None:
            raise Refused(f"the initial value of variable {variable.name!r} is computed")

    def _named(self, options: Any) -> Variable:  # noqa: ANN401
        key = text(options.Container()), text(options.SharedName())
        if key not in self._all:
            self._all[key] = Variable("/".join(part for part in key if part))
        return self._all[key]


def _described(key: Hashable) -> str:
    """The place of a variable in the file: its tensor, or its name and container."""
    if not isinstance(key, tuple):
        return f"in tensor {key}"
    container, name = key
    return f"{name!r} of {container!r}" if container else f"{name!r}"


def _input_operand(variable: Variable) -> int:
    """The operand with a variable's value when an execution begins."""
    assert variable.given is not None
    assert variable.given.index is not None
    return variable.given.index


_VAR_HANDLE: Final = "VarHandleOptions"


def _var_handle_options(raw: Any) -> Any:  # noqa: ANN401
    """The options of a VAR_HANDLE."""
    union = raw.BuiltinOptions()
    if union is None or raw.BuiltinOptionsType() != getattr(schema().BuiltinOptions, _VAR_HANDLE):
        raise MalformedTflite("a VAR_HANDLE without its options")
    options = getattr(schema(), _VAR_HANDLE)()
    options.Init(union.Bytes, union.Pos)
    return options
