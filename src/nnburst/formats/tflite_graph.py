"""Checks that all of a .tflite file lies within its bytes, and finds its inputs and outputs.

Engines follow the offsets of a file without checks. So all of its tables, vectors and strings are read first,
with the checked access of `tflite_reader`; a file that it refuses reaches no engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from nnburst.formats.tflite_reader import (
    IDENTIFIER,
    NUMBERS,
    CheckedTable,
    File,
    MalformedTflite,
    names,
    read_format,
    root_table,
)
from nnburst.hal.errors import InvalidArgument, spelt
from nnburst.hal.limits import INT32_MAX

#: The subgraph that engines run.
MAIN: Final = 0
#: Bytes charged for a table that is read, and for each element of a vector of tables or strings.
_TABLE_COST: Final = 128
_ENTRY_COST: Final = 64
#: Slots of the signatures in the root table, and of the extents in a tensor.
_SIGNATURES: Final = 18
_SHAPE: Final = 4
#: Custom operators for which an engine would open a library, or run code compiled for a device.
_OPENING: Final = ("Flex", "DISPATCH_OP")

#: Operators whose outputs' extents follow from their inputs' extents alone.
_PLAIN: Final = frozenset({
    "ABS", "ADD", "ADD_N", "ATAN2", "AVERAGE_POOL_2D", "BATCH_MATMUL", "CAST", "CEIL",
    "CONCATENATION", "CONV_2D", "CONV_3D", "COS", "CUMSUM", "DENSIFY", "DEPTHWISE_CONV_2D",
    "DEPTH_TO_SPACE", "DEQUANTIZE", "DIV", "ELU", "EQUAL", "EXP", "FLOOR", "FLOOR_DIV", "FLOOR_MOD",
    "FULLY_CONNECTED", "GATHER", "GATHER_ND", "GELU", "GREATER", "GREATER_EQUAL", "HARD_SWISH",
    "L2_NORMALIZATION", "L2_POOL_2D", "LEAKY_RELU", "LESS", "LESS_EQUAL",
    "LOCAL_RESPONSE_NORMALIZATION", "LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "LOGISTIC",
    "LOG_SOFTMAX", "MAXIMUM", "MAX_POOL_2D", "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "PACK", "POW",
    "PRELU", "QUANTIZE", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "REVERSE_V2", "ROUND",
    "RSQRT", "SELECT", "SELECT_V2", "SIGN", "SIN", "SOFTMAX", "SPACE_TO_DEPTH", "SQRT", "SQUARE",
    "SQUARED_DIFFERENCE", "SQUEEZE", "SUB", "SVDF", "TANH", "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "UNPACK",
})  # fmt: skip
#: Operators whose output extents follow if these inputs, by position, are constants of the file.
_STEERED: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(
        ("ARG_MAX", "ARG_MIN", "EXPAND_DIMS", "MEAN", "MIRROR_PAD", "PAD", "PADV2"), (1,)
    ),
    **dict.fromkeys(("REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), (1,)),
    **dict.fromkeys(("RESHAPE", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SUM", "TILE"), (1,)),
    **dict.fromkeys(("BROADCAST_TO", "ONE_HOT", "TOPK_V2", "TRANSPOSE"), (1,)),
    **dict.fromkeys(("BATCH_TO_SPACE_ND", "SLICE", "SPACE_TO_BATCH_ND", "SPLIT_V"), (1, 2)),
    **dict.fromkeys(("FILL", "SPLIT", "TRANSPOSE_CONV"), (0,)),
    "STRIDED_SLICE": (1, 2, 3),
}
#: Custom operators of LiteRT whose output extents follow from their inputs' extents alone.
_PLAIN_CUSTOM: Final = frozenset(
    {"Convolution2DTransposeBias", "MaxPoolingWithArgmax2D", "MaxUnpooling2D"}
)
#: Operators that keep other state than variables from one run to the next.
_KEEPING: Final = frozenset(
    {
        "CALL_ONCE",
        "HASHTABLE",
        "MULTINOMIAL",
        "RANDOM_UNIFORM",
        "RANDOM_STANDARD_NORMAL",
    }
)


class BorderTensor(NamedTuple):
    """An input or output of the main subgraph.

    Attributes:
        number: number of the tensor.
        name: name of the tensor.
        type: the format's name of its element type.
        extents: its extents; an output's are the file's, which an engine may find wrong.
        is_open: whether the file leaves some extents open.
        signature: the extents with -1 for open ones; `extents` if the file's signature has another rank.
        scale: quantisation step; 0 without one for the whole tensor.
        zero_point: stored value of 0.
    """

    number: int
    name: str
    type: str
    extents: tuple[int, ...]
    is_open: bool
    signature: tuple[int, ...]
    scale: float
    zero_point: int


class TfliteGraph(NamedTuple):
    """A file that was checked.

    Attributes:
        content: the file without signatures: engines then have inputs and outputs in the main subgraph's
            order.
        inputs: inputs of the main subgraph.
        outputs: outputs of the main subgraph.
        is_fixed: whether the extents of all tensors are known before a run; False for any doubt.
        keeps_state: whether a run may depend on earlier runs.
        has_variables: whether it has variables, of which each sequence can have its own.
    """

    content: bytes
    inputs: tuple[BorderTensor, ...]
    outputs: tuple[BorderTensor, ...]
    is_fixed: bool
    keeps_state: bool
    has_variables: bool


def read_graph(content: bytes) -> TfliteGraph:
    """Check a file from an untrusted source, in time and memory proportional to its size.

    Raises:
        InvalidArgument: it is not an intact .tflite file, or would make an engine open another file.
    """
    if len(content) < 8 or content[4:8] != IDENTIFIER:
        raise MalformedTflite(f"bytes 4 to 8 are {content[4:8]!r}, expected {IDENTIFIER!r}")
    content = _without_signatures(content)
    file = File(content)
    model = root_table(file)
    _walk(CheckedTable(file, int.from_bytes(content[:4], "little")), "Model")
    _check_references(file, model)
    main = _main(model)
    codes = [_operator_name(model.OperatorCodes(at)) for at in range(model.OperatorCodesLength())]
    inputs, outputs = _border(main, "Inputs"), _border(main, "Outputs")
    if not outputs:
        raise MalformedTflite("the main subgraph has no outputs")
    used = _operators(file, model, codes)
    has_variables = _has_variables(model, used)
    return TfliteGraph(
        content,
        inputs,
        outputs,
        is_fixed=_is_border_plain(model, main, inputs, outputs)
        and _are_fixed(model, main, used[MAIN]),
        keeps_state=has_variables or _keeps_more(used),
        has_variables=has_variables,
    )


def _main(model: Any) -> Any:  # noqa: ANN401 - tables without types
    if model.SubgraphsLength() == 0:
        raise MalformedTflite("it has no subgraph")
    return model.Subgraphs(MAIN)


class _Use(NamedTuple):
    """An operator of a subgraph: its name, and tensors; custom ones begin with "CUSTOM "."""

    name: str
    inputs: list[int]


def _without_signatures(content: bytes) -> bytes:
    """Remove the signatures from a file's root table.

    Engines use the first signature that they find, which may be of another subgraph or in another order.
    """
    file = File(content)
    root = CheckedTable(file, int.from_bytes(content[:4], "little"))
    if not root.Offset(_SIGNATURES):
        return content
    fields = root.Pos - int.from_bytes(content[root.Pos : root.Pos + 4], "little", signed=True)
    changed = bytearray(content)
    changed[fields + _SIGNATURES : fields + _SIGNATURES + 2] = bytes(2)
    return bytes(changed)


def _walk(table: CheckedTable, kind: str) -> None:
    """Read every field of a table, and all tables below it."""
    file: File = table.Bytes
    file.spend(_TABLE_COST)
    for name, (place, what, *about) in read_format().tables[kind].items():
        at = table.Offset(place)
        if at:
            _FIELDS[what](table, at, name, about)
        if at and what == "union":
            below = _union_kind(table, kind, name)
            if below is not None:
                _walk(CheckedTable(file, table.Indirect(table.Pos + at)), below)


def _union_kind(table: CheckedTable, kind: str, name: str) -> str | None:
    """The kind of table that a union holds; None for an unknown one, which engines ignore."""
    rules = read_format().tables[kind]
    place, _, number, *_ = rules[f"{name}Type"]
    at = table.Offset(place)
    value = table.Get(NUMBERS[number], table.Pos + at) if at else 0
    found = names(_UNIONS[kind, name]).get(value)
    return found if found in read_format().tables else None


def _check_number(table: CheckedTable, at: int, _name: str, about: Sequence[Any]) -> None:
    table.Get(NUMBERS[about[0]], table.Pos + at)


def _check_numbers(table: CheckedTable, at: int, name: str, about: Sequence[Any]) -> None:
    size = NUMBERS[about[0]].size
    table.Bytes.check(table.Vector(at), table.VectorLen(at) * size, name)


def _check_string(table: CheckedTable, at: int, _name: str, _about: Sequence[Any]) -> None:
    table.String(table.Pos + at)


def _check_table(table: CheckedTable, at: int, _name: str, about: Sequence[Any]) -> None:
    _walk(CheckedTable(table.Bytes, table.Indirect(table.Pos + at)), about[0])


def _check_tables(table: CheckedTable, at: int, name: str, about: Sequence[Any]) -> None:
    for place in _entries(table, at, name):
        _walk(CheckedTable(table.Bytes, table.Indirect(place)), about[0])


def _check_strings(table: CheckedTable, at: int, name: str, _about: Sequence[Any]) -> None:
    for place in _entries(table, at, name):
        table.String(place)


def _check_union(table: CheckedTable, at: int, _name: str, _about: Sequence[Any]) -> None:
    table.Indirect(table.Pos + at)


def _entries(table: CheckedTable, at: int, name: str) -> range:
    start, count = table.Vector(at), table.VectorLen(at)
    table.Bytes.check(start, 4 * count, name)
    table.Bytes.spend(_ENTRY_COST * count)
    return range(start, start + 4 * count, 4)


_FIELDS: Final = {
    "number": _check_number,
    "numbers": _check_numbers,
    "string": _check_string,
    "strings": _check_strings,
    "table": _check_table,
    "tables": _check_tables,
    "union": _check_union,
}
#: For each union, the enumeration of the tables that it may hold.
_UNIONS: Final[Mapping[tuple[str, str], str]] = {
    ("QuantizationParameters", "Details"): "QuantizationDetails",
    ("DimensionMetadata", "ArraySegments"): "SparseIndexVector",
    ("DimensionMetadata", "ArrayIndices"): "SparseIndexVector",
    ("Operator", "BuiltinOptions"): "BuiltinOptions",
    ("Operator", "BuiltinOptions2"): "BuiltinOptions2",
}


# -- extents of inputs -----------------------------------------------------------------------------


def with_shapes(content: bytes, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """Change the extents of a file's inputs; engines infer all others.

    Args:
        content: bytes of a .tflite file.
        shapes: extents by name of input.

    Raises:
        InvalidArgument: an input does not exist or has another rank, an extent that is not open differs, or
            the file is not intact.
    """
    changed = bytearray(content)
    file = File(content)
    main = _main(root_table(file))
    tensors = {
        _name(main.Tensors(index)): main.Tensors(index) for index in _indexes(main, "Inputs")
    }
    for name, wanted in shapes.items():
        if name not in tensors:
            raise InvalidArgument(
                f"{spelt('shapes')}: no input {name!r}, there are {', '.join(tensors)}"
            )
        tensor = tensors[name]
        given = _indexes(tensor, "ShapeSignature") or _indexes(tensor, "Shape")
        fits = len(given) == len(wanted) and all(
            0 < want <= INT32_MAX and have in (-1, want)
            for want, have in zip(wanted, given, strict=True)
        )
        if not fits:
            raise InvalidArgument(f"{spelt('shapes', name)}: {list(wanted)}, the file has {given}")
        if wanted and not tensor._tab.Offset(_SHAPE):
            raise MalformedTflite(f"input {name!r} has no extents")
        if wanted:
            # Appended to the file, since other tensors may share the present vector.
            changed += bytes(-len(changed) % 4)
            field = tensor._tab.Pos + tensor._tab.Offset(_SHAPE)
            changed[field : field + 4] = (len(changed) - field).to_bytes(4, "little")
            changed += b"".join(n.to_bytes(4, "little") for n in (len(wanted), *wanted))
    return bytes(changed)


# -- what a file refers to -------------------------------------------------------------------------


def _check_references(file: File, model: Any) -> None:  # noqa: ANN401 - tables without types
    """Check that data outside of tables lies in this file, and that no reference leads to another file."""
    if model.ExternalBufferGroupsLength() or model.ExternalBuffersLength():
        raise InvalidArgument("the file names other files, which are not read")
    for at in range(model.BuffersLength()):
        buffer = model.Buffers(at)
        if buffer.Offset() > 1:
            file.check(buffer.Offset(), buffer.Size(), f"buffer {at}")
    for at in range(model.SubgraphsLength()):
        subgraph = model.Subgraphs(at)
        count = subgraph.TensorsLength()
        for side in ("Inputs", "Outputs"):
            _check_indexes(f"{side.lower()} of subgraph {at}", _indexes(subgraph, side), count)
        for number in range(count):
            tensor = subgraph.Tensors(number)
            if tensor.ExternalBuffer():
                raise InvalidArgument(f"tensor {number} lies in another file, which is not read")
            _check_indexes(f"buffer of tensor {number}", [tensor.Buffer()], model.BuffersLength())


def _check_indexes(what: str, found: Collection[int], count: int) -> None:
    for index in found:
        if not 0 <= index < count:
            raise MalformedTflite(f"{what}: {index}, there are {count}")


def _indexes(table: Any, side: str) -> list[int]:  # noqa: ANN401 - tables without types
    if getattr(table, f"{side}IsNone")():
        return []
    found: list[int] = getattr(table, f"{side}AsNumpy")().tolist()
    return found


def _operator_name(code: Any) -> str:  # noqa: ANN401 - tables without types
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = names("BuiltinOperator").get(number, "")
    if name != "CUSTOM":
        return name
    custom = (code.CustomCode() or b"").decode("utf-8", "backslashreplace")
    if custom.startswith(_OPENING):
        raise InvalidArgument(f"custom operator {custom!r} may open files and is not run")
    return f"CUSTOM {custom}"


def _operators(file: File, model: Any, codes: Sequence[str]) -> list[list[_Use]]:  # noqa: ANN401
    """The operators of each subgraph."""
    found = []
    for at in range(model.SubgraphsLength()):
        subgraph = model.Subgraphs(at)
        uses = []
        for number in range(subgraph.OperatorsLength()):
            operator = subgraph.Operators(number)
            what = f"code of operator {number} of subgraph {at}"
            _check_indexes(what, [operator.OpcodeIndex()], len(codes))
            if operator.LargeCustomOptionsOffset() > 1:
                start, size = operator.LargeCustomOptionsOffset(), operator.LargeCustomOptionsSize()
                file.check(start, size, f"options of operator {number}")
            uses.append(_Use(codes[operator.OpcodeIndex()], _indexes(operator, "Inputs")))
        found.append(uses)
    return found


# -- inputs and outputs, and state of a run --------------------------------------------------------


def _border(main: Any, side: str) -> tuple[BorderTensor, ...]:  # noqa: ANN401 - tables without types
    return tuple(_border_tensor(main, index) for index in _indexes(main, side))


def _border_tensor(main: Any, index: int) -> BorderTensor:  # noqa: ANN401 - tables without types
    tensor = main.Tensors(index)
    extents = tuple(_indexes(tensor, "Shape"))
    signature = tuple(_indexes(tensor, "ShapeSignature"))
    fits = len(signature) == len(extents) and all(
        said in (-1, extent) for said, extent in zip(signature, extents, strict=True)
    )
    scale, zero_point = _quantization(tensor)
    return BorderTensor(
        index,
        _name(tensor),
        names("TensorType").get(tensor.Type(), f"type {tensor.Type()}"),
        extents,
        any(extent < 0 for extent in signature),
        signature if fits else extents,
        scale,
        zero_point,
    )


def _name(tensor: Any) -> str:  # noqa: ANN401 - tables without types
    return (tensor.Name() or b"").decode("utf-8", "backslashreplace")


def _quantization(tensor: Any) -> tuple[float, int]:  # noqa: ANN401 - tables without types
    found = tensor.Quantization()
    if found is None or found.ScaleLength() != 1:
        return 0.0, 0
    zero_points = [] if found.ZeroPointIsNone() else found.ZeroPointAsNumpy().tolist()
    return float(found.ScaleAsNumpy()[0]), int(zero_points[0]) if zero_points else 0


def _is_constant(model: Any, tensor: Any) -> bool:  # noqa: ANN401 - tables without types
    buffer = model.Buffers(tensor.Buffer())
    return buffer.Offset() > 1 or not (buffer.DataIsNone() or buffer.DataLength() == 0)


def _is_border_plain(
    model: Any,  # noqa: ANN401 - tables without types
    main: Any,  # noqa: ANN401
    inputs: Sequence[BorderTensor],
    outputs: Sequence[BorderTensor],
) -> bool:
    """Whether each input and output is a separate tensor with a name of its own."""
    border = [*inputs, *outputs]
    tensors = [main.Tensors(tensor.number) for tensor in border]
    return (
        len({tensor.number for tensor in border}) == len(border)
        and len({tensor.name for tensor in border} - {""}) == len(border)
        and all(min(tensor.extents, default=1) > 0 for tensor in border)
        and not any(tensor.IsVariable() or _is_constant(model, tensor) for tensor in tensors)
    )


def _are_fixed(model: Any, main: Any, uses: Sequence[_Use]) -> bool:  # noqa: ANN401
    return all(_is_fixed(model, main, use) for use in uses)


def _is_fixed(model: Any, main: Any, use: _Use) -> bool:  # noqa: ANN401 - tables without types
    kind, _, custom = use.name.partition(" ")
    if kind in _PLAIN or (kind == "CUSTOM" and custom in _PLAIN_CUSTOM):
        return True
    if kind not in _STEERED:
        return False
    steering = [use.inputs[at] for at in _STEERED[kind] if at < len(use.inputs)]
    return all(
        index < 0 or (index < main.TensorsLength() and _is_constant(model, main.Tensors(index)))
        for index in steering
    )


def _keeps_more(used: Sequence[Sequence[_Use]]) -> bool:
    """Whether operators may keep other state than variables."""
    stateless = {f"CUSTOM {name}" for name in _PLAIN_CUSTOM}
    kinds = {use.name for uses in used for use in uses}
    return any(kind in _KEEPING or kind.startswith("CUSTOM ") for kind in kinds - stateless)


def _has_variables(model: Any, used: Sequence[Sequence[_Use]]) -> bool:  # noqa: ANN401
    return any(use.name == "VAR_HANDLE" for uses in used for use in uses) or any(
        subgraph.Tensors(at).IsVariable()
        for subgraph in map(model.Subgraphs, range(model.SubgraphsLength()))
        for at in range(subgraph.TensorsLength())
    )
