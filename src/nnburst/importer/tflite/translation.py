"""Translates a .tflite file to a model: first the main subgraph, then those that it refers to.

Shapes that a network computes from extents are computed here: NNAPI has few operations on int32, and needs
shapes as constants. SHAPE becomes a constant, since extents are known; values that depend on it alone are
known, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.tflite_graph import MAIN
from nnburst.formats.tflite_reader import MalformedTflite
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import MemoryPool, Model, Subgraph
from nnburst.importer.imported_model import Extensions, ImportedModel, State
from nnburst.importer.subgraph import Value
from nnburst.importer.tensors import ConstantPool, Refused, as_graph_hint, constant_of
from nnburst.importer.tflite import operators
from nnburst.importer.tflite.file import OPERATOR_COST, TfliteFile, text
from nnburst.importer.tflite.graph import Graph, Variables, indexes
from nnburst.importer.tflite.operator import Operator, Translate, translation

_Integers = npt.NDArray[np.int64]
_Fold = Callable[[Operator, Sequence[_Integers]], _Integers]

#: The most elements of a value that counts as a shape; larger ones are not computed here.
_MOST_ELEMENTS: Final = 4096


def fold(op: Operator) -> bool:
    """Compute an operator now, if all its inputs are known; whether it was computed."""
    compute = _FOLDS.get(op.name)
    if compute is None or len(op.output_tensors) != 1:
        return False
    given = [_known(op, position) for position in range(len(op.input_tensors))]
    values = [value for value in given if value is not None]
    if not values or len(values) != len(given):
        return False
    kind = op.output_type()
    if kind.type is not OperandType.TENSOR_INT32:
        return False
    try:
        found = compute(op, values)
    except (Refused, ValueError, IndexError, TypeError):
        return False  # the translation then raises the error
    limits = np.iinfo(np.int32)
    in_range = found.size and limits.min <= found.min() and found.max() <= limits.max
    if found.size != kind.elements or not in_range:
        return False
    op.becomes(Value(kind, None, constant_of(kind, found.reshape(kind.dimensions))))
    return True


def _known(op: Operator, position: int) -> _Integers | None:
    """The value of an input, if it is a small int32 constant, with the file's extents; else None."""
    value, tensor = op.optional(position), op.optional_tensor(position)
    if value is None or tensor is None or value.constant is None:
        return None
    kind = value.type
    if kind.type is not OperandType.TENSOR_INT32 or kind.elements > _MOST_ELEMENTS:
        return None
    is_scalar = op.graph.tensor(tensor).ShapeLength() == 0
    found = np.array(op.integers(position, "value"), np.int64)
    return found.reshape(() if is_scalar else kind.dimensions)


def _axes(values: _Integers) -> tuple[int, ...]:
    return tuple(int(axis) for axis in values.reshape(-1))


def _strided_slice(op: Operator, values: Sequence[_Integers]) -> _Integers:
    x, *bounds = values
    options = op.options("StridedSliceOptions")
    if options.EllipsisMask() or options.NewAxisMask() or options.Offset():
        raise Refused("a mask that is left to the translation")
    place: list[int | slice] = []
    for axis, (begin, end, stride) in enumerate(zip(*map(_axes, bounds), strict=True)):
        first = None if options.BeginMask() >> axis & 1 else begin
        last = None if options.EndMask() >> axis & 1 else end
        is_one = options.ShrinkAxisMask() >> axis & 1
        place.append((first or 0) if is_one else slice(first, last, stride))
    return np.asarray(x[tuple(place)])


def _slice(_op: Operator, values: Sequence[_Integers]) -> _Integers:
    x, begins, sizes = values
    place = [
        slice(begin, None if size < 0 else begin + size)
        for begin, size in zip(_axes(begins), _axes(sizes), strict=True)
    ]
    return x[tuple(place)]


def _gather(op: Operator, values: Sequence[_Integers]) -> _Integers:
    options = op.options("GatherOptions")
    x, positions = values
    if options.BatchDims() or positions.min(initial=0) < 0:
        raise Refused("batches, or positions from the end")
    _require_small(positions.size * (x.size // max(x.shape[options.Axis()], 1)))
    return np.take(x, positions, axis=options.Axis())


def _pack(op: Operator, values: Sequence[_Integers]) -> _Integers:
    return np.stack(values, axis=op.options("PackOptions").Axis())


def _concatenation(op: Operator, values: Sequence[_Integers]) -> _Integers:
    options = op.options("ConcatenationOptions")
    _require_plain(options)
    return np.concatenate(values, axis=options.Axis())


def _require_plain(options: Any) -> None:  # noqa: ANN401 - tables without types
    if options.FusedActivationFunction():
        raise Refused("an activation of integers")


def _require_small(elements: int) -> None:
    """Refuse a result that is larger than a shape before it takes memory: two small inputs can give it."""
    if elements > _MOST_ELEMENTS:
        raise Refused(f"{elements} elements, expected at most {_MOST_ELEMENTS} of a shape")


def _arithmetic(options: str, compute: Callable[..., _Integers]) -> _Fold:
    def run(op: Operator, values: Sequence[_Integers]) -> _Integers:
        if options:
            _require_plain(op.options(options))
        _require_small(math.prod(np.broadcast_shapes(*(value.shape for value in values))))
        return compute(*values)

    return run


def _division(compute: Callable[..., _Integers]) -> _Fold:
    def run(_op: Operator, values: Sequence[_Integers]) -> _Integers:
        x, divisor = values
        if not divisor.all():
            raise Refused("a division by 0")
        _require_small(math.prod(np.broadcast_shapes(x.shape, divisor.shape)))
        return compute(x, divisor)

    return run


def _reduction(compute: Callable[..., _Integers]) -> _Fold:
    def run(_op: Operator, values: Sequence[_Integers]) -> _Integers:
        x, axes = values
        return np.asarray(compute(x, axis=_axes(axes)))

    return run


def _same_elements(_op: Operator, values: Sequence[_Integers]) -> _Integers:
    return values[0]


_FOLDS: Final[Mapping[str, _Fold]] = {
    "ADD": _arithmetic("AddOptions", np.add),
    "CAST": _same_elements,
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _same_elements,
    "FLOOR_DIV": _division(np.floor_divide),
    "FLOOR_MOD": _division(np.mod),
    "GATHER": _gather,
    "MAXIMUM": _arithmetic("", np.maximum),
    "MINIMUM": _arithmetic("", np.minimum),
    "MUL": _arithmetic("MulOptions", np.multiply),
    "NEG": _arithmetic("", np.negative),
    "PACK": _pack,
    "REDUCE_PROD": _reduction(np.prod),
    "RESHAPE": _same_elements,
    "SLICE": _slice,
    "SQUEEZE": _same_elements,
    "STRIDED_SLICE": _strided_slice,
    "SUB": _arithmetic("SubOptions", np.subtract),
    "SUM": _reduction(np.sum),
}


assert operators.__all__  # the import fills the table


class Translation:
    """Translates one file, once."""

    def __init__(self, file: TfliteFile, extensions: Extensions, *, exact: bool) -> None:
        """Begin with a file whose header was checked; see `nnburst.load` for the options."""
        self._file = file
        self._extensions = extensions
        self._exact = exact
        self._is_dynamic_range = False
        self._constants = ConstantPool(file.bytes)
        self._variables = Variables(file)
        self._references: list[int] = []  # subgraphs of the file, in the order they are referenced
        self._numbers: dict[int, int] = {}

    def run(self) -> ImportedModel:
        """Translate the file; the imported model.

        Raises:
            InvalidArgument: the file is not intact, or NNAPI cannot express its network.
        """
        graph = Graph(self._file, MAIN, self._constants)
        self._translate(graph, MAIN, self._variables)
        inputs, outputs = _interface(graph)
        variables = self._variables.read_ones()
        current = [variable.current for variable in variables if variable.current is not None]
        main = graph.finish([*map(graph.value, outputs), *current])
        referenced = self._referenced()
        states = tuple(
            State(v.name, len(inputs) + i, len(outputs) + i, v.first(self._constants))
            for i, v in enumerate(variables)
        )
        pools = self._constants.fill()
        names = tuple(state.name for state in states)
        return ImportedModel(
            model=Model(
                main=main,
                referenced=referenced,
                operand_values=bytes(self._constants.values),
                pools=tuple(MemoryPool(pool.nbytes, i) for i, pool in enumerate(pools)),
                relax_computation_float32_to_float16=self._is_dynamic_range and not self._exact,
                extension_name_to_prefix=self._extensions.used,
            ),
            pools=pools,
            input_names=(*map(graph.name, inputs), *names),
            output_names=(*map(graph.name, outputs), *names),
            states=states,
            signatures=self._file.positions(MAIN, inputs, outputs),
            metadata=self._file.metadata(),
            description=text(self._file.model.Description()),
            operators=tuple(graph.origins),
        )

    def _reference(self, index: int) -> int:
        """Number of subgraph `index` of the file among the referenced ones."""
        if index not in self._numbers:
            self._file.subgraph(index)  # already numbered
            self._numbers[index] = len(self._references)
            self._references.append(index)
        return self._numbers[index]

    def _referenced(self) -> tuple[Subgraph, ...]:
        """The referenced subgraphs; translating one may add to the list."""
        finished: list[Subgraph] = []
        while len(finished) < len(self._references):
            index = self._references[len(finished)]
            graph = Graph(self._file, index, self._constants)
            self._translate(graph, index, None)
            _, outputs = _interface(graph)
            finished.append(graph.finish([graph.value(tensor) for tensor in outputs]))
        return tuple(finished)

    def _translate(self, graph: Graph, index: int, variables: Variables | None) -> None:
        """Translate the operators of a subgraph in order."""
        where = "" if index == MAIN else f" of subgraph {index}"
        for at in range(graph.subgraph.OperatorsLength()):
            self._file.bytes.spend(OPERATOR_COST)
            raw = graph.subgraph.Operators(at)
            name = self._file.operator_name(raw)
            try:
                operator = Operator(name, at, raw, graph, self._reference, variables)
                if not fold(operator):
                    self._translation(name, raw)(operator)
            except InvalidArgument as error:
                said = f"operator {at}{where} ({name})"
                if isinstance(error, Refused):
                    why = f"{said} cannot be imported: {error}; {as_graph_hint()}"
                    raise Refused(why) from None
                raise InvalidArgument(f"{said}: {error}") from None
        self._is_dynamic_range |= graph.is_dynamic_range

    def _translation(self, name: str, raw: Any) -> Translate:  # noqa: ANN401 - generated code
        """The function that translates an operator: one of the table, or an extension's."""
        custom = self._file.custom_code(raw)
        claimed = None if custom is None else self._extensions.find(custom)
        if claimed is None:
            return translation(name)
        extension, becomes = claimed
        if becomes.lowering is not None:
            return becomes.lowering
        operation = self._extensions.code(extension, becomes.operation)
        options = (
            None if becomes.options is None else self._extensions.code(extension, becomes.options)
        )
        return lambda operator: operator.emit_custom(operation, options)


def _interface(graph: Graph) -> tuple[list[int], list[int]]:
    """The input and output tensors of a subgraph."""
    inputs = indexes(graph.file, graph.subgraph, "Inputs")
    outputs = indexes(graph.file, graph.subgraph, "Outputs")
    if not outputs:
        raise MalformedTflite("a subgraph has no outputs")
    return inputs, outputs
