"""Finishes a client's model (RT:M10): orders its operations, checks it, and leaves out trailing defaults.

Inside the framework, operations are numbered in the run order (RT:M11). It differs from the client's order,
since ready operations are taken from a stack. Trailing arguments that only repeat a default are left out, so
that older drivers take the model (RT:M12). A hash over everything but the weights identifies the model's
architecture in records (RT:T6).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model, Operand, Operation, Subgraph
from nnburst.hal.validation import validate_model


@dataclass(frozen=True, slots=True)
class FinishedModel:
    """A valid model in run order. Subgraph 0 is the main one, subgraph n + 1 is `referenced[n]`.

    Attributes:
        model: the model, with operations in run order without trailing default arguments, and consumers
            counted anew. It has all operands under the client's numbers, used or not.
        run_orders: for each subgraph the client's operation at each position of the run order (RT:M11).
        relaxed: for each subgraph whether float32 may be computed as float16.
        architecture_hash: 32 bytes over everything but the weights (RT:T6).
    """

    model: Model
    run_orders: tuple[tuple[int, ...], ...]
    relaxed: tuple[bool, ...]
    architecture_hash: bytes

    def subgraph(self, number: int) -> Subgraph:
        """The subgraph with this number."""
        return self.model.referenced[number - 1] if number else self.model.main


def architecture_hash(model: Model) -> bytes:
    """The SHA-256 hash (32 bytes) over operands, operations, inputs and outputs of all subgraphs.

    DEVIATES: the original hashes the object of extra parameters with its pointers, so that equal models get
    different hashes; here their contents count.
    """
    graphs = [_described(graph) for graph in (model.main, *model.referenced)]
    return hashlib.sha256(msgspec.msgpack.encode(graphs)).digest()


def _described(graph: Subgraph) -> list[object]:
    return [
        [
            (o.type, o.dimensions, o.scale, o.zero_point, o.lifetime, o.extra_params)
            for o in graph.operands
        ],
        [(o.type, o.inputs, o.outputs) for o in graph.operations],
        graph.input_indexes,
        graph.output_indexes,
    ]


#: Lifetimes of operands that an operation must write before others can read them.
WRITTEN: Final = frozenset({OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT})


class ReadyOperations:
    """Finds the operations that become ready when others are done.

    Each use counts: an operation that reads an operand twice waits for it twice.
    """

    def __init__(self, operands: Sequence[Operand], operations: Sequence[Operation]) -> None:
        """Count the operands that each operation waits for.

        Attributes:
            first: operations that wait for nothing, ascending.
        """
        written = [operand.lifetime in WRITTEN for operand in operands]
        self._operations = operations
        self._missing = [0] * len(operations)
        self._readers: dict[int, list[int]] = {}
        for number, operation in enumerate(operations):
            for index in operation.inputs:
                if written[index]:
                    self._missing[number] += 1
                    self._readers.setdefault(index, []).append(number)
        self.first = [number for number, count in enumerate(self._missing) if not count]

    def done(self, number: int) -> list[int]:
        """Operations that become ready because operation `number` is done, in order."""
        ready = []
        for index in self._operations[number].outputs:
            for reader in self._readers.get(index, ()):
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    ready.append(reader)
        return ready


def run_order(operands: Sequence[Operand], operations: Sequence[Operation]) -> tuple[int, ...]:
    """The operation at each position of the run order.

    Raises:
        InvalidArgument: an operand index does not exist; or the operations have no order, because of a
            cycle or because what one reads is never written.
    """
    count = len(operands)
    for number, operation in enumerate(operations):
        for index in (*operation.inputs, *operation.outputs):
            if not 0 <= index < count:
                raise InvalidArgument(
                    f"validation:P2: operation {number}: operand {index} of {count}"
                )
    waiting = ReadyOperations(operands, operations)
    stack, order = list(waiting.first), []
    while stack:
        number = stack.pop()
        order.append(number)
        stack += waiting.done(number)
    if len(order) < len(operations):
        stuck = min(set(range(len(operations))) - set(order))
        raise InvalidArgument(
            f"operations: number {stuck} can never run: it reads what is never written, or what a"
            " cycle of operations writes (RT:M10)"
        )
    return tuple(order)


_T = OperandType
_O = OperationType


class _Default(NamedTuple):
    type: OperandType
    value: bytes


_FALSE: Final = _Default(_T.BOOL, b"\0")
_ONE: Final = _Default(_T.INT32, pack("<i", 1))
_LAST_AXIS: Final = _Default(_T.INT32, pack("<i", -1))


class _Trailing(NamedTuple):
    """The inputs that may be left out in one form of an operation.

    Attributes:
        kept: number of inputs that always stay.
        defaults: default values of the inputs after them.
        told_by: position and type of an input that distinguishes this form from others, or None.
        never: a number of inputs that no version has, so that one more is kept; 0 for none.
    """

    kept: int
    defaults: tuple[_Default, ...]
    told_by: tuple[int, OperandType] | None = None
    never: int = 0

    def fits(self, inputs: Sequence[Operand]) -> bool:
        """Whether the operands have this form."""
        if not self.kept < len(inputs) <= self.kept + len(self.defaults):
            return False
        return self.told_by is None or inputs[self.told_by[0]].type == self.told_by[1]


_POOL: Final = (_Trailing(10, (_FALSE,), (7, _T.INT32)), _Trailing(7, (_FALSE,), (7, _T.BOOL)))
_CONV: Final = (_FALSE, _ONE, _ONE)
_FORMS: Final[dict[int, tuple[_Trailing, ...]]] = {
    _O.AVERAGE_POOL_2D: _POOL,
    _O.L2_POOL_2D: _POOL,
    _O.MAX_POOL_2D: _POOL,
    _O.CONV_2D: (
        _Trailing(10, _CONV, (7, _T.INT32), never=12),
        _Trailing(7, _CONV, (7, _T.BOOL), never=9),
    ),
    _O.DEPTHWISE_CONV_2D: (
        _Trailing(11, _CONV, (8, _T.INT32), never=13),
        _Trailing(8, _CONV, (8, _T.BOOL), never=10),
    ),
    _O.DEPTH_TO_SPACE: (_Trailing(2, (_FALSE,)),),
    _O.SPACE_TO_DEPTH: (_Trailing(2, (_FALSE,)),),
    _O.BATCH_TO_SPACE_ND: (_Trailing(2, (_FALSE,)),),
    _O.SPACE_TO_BATCH_ND: (_Trailing(3, (_FALSE,)),),
    _O.L2_NORMALIZATION: (_Trailing(1, (_LAST_AXIS,)),),
    _O.SOFTMAX: (_Trailing(2, (_LAST_AXIS,)),),
    _O.LOCAL_RESPONSE_NORMALIZATION: (_Trailing(5, (_LAST_AXIS,)),),
    _O.RESIZE_BILINEAR: (_Trailing(3, (_FALSE, _FALSE, _FALSE)),),
    _O.RESIZE_NEAREST_NEIGHBOR: (_Trailing(4, (_FALSE, _FALSE)),),
}


def without_trailing_arguments(graph: Subgraph, values: bytes) -> tuple[Operation, ...]:
    """Leave out trailing inputs that equal their defaults, in each operation of a valid subgraph.

    Only constants in `values` (CONSTANT_COPY) are compared, constants in memory never.
    """
    return tuple(
        _shortened(operation, graph, values) if operation.type in _FORMS else operation
        for operation in graph.operations
    )


def _shortened(operation: Operation, graph: Subgraph, values: bytes) -> Operation:
    inputs = [graph.operands[index] for index in operation.inputs]
    for form in _FORMS[operation.type]:
        if form.fits(inputs):
            count = _count_without_defaults(form, inputs, values)
            return Operation(operation.type, operation.inputs[:count], operation.outputs)
    return operation


def _count_without_defaults(form: _Trailing, inputs: Sequence[Operand], values: bytes) -> int:
    count = len(inputs)
    while count > form.kept:
        if not _says(inputs[count - 1], form.defaults[count - 1 - form.kept], values):
            break
        count -= 1
    return count + (count == form.never)


def _says(operand: Operand, default: _Default, values: bytes) -> bool:
    if operand.lifetime != OperandLifeTime.CONSTANT_COPY or operand.type != default.type:
        return False
    at = operand.location
    return values[at.offset : at.offset + at.length] == default.value


def finish(
    model: Model,
    *,
    relaxed: Sequence[bool] | None = None,
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4,
) -> FinishedModel:
    """Finish a model whose large values already lie in its pools.

    Args:
        model: the model; operations of each subgraph in any order.
        relaxed: for the main and each referenced subgraph, whether float32 may be computed as float16;
            by default the model's own flag for all.
        feature_level: the runtime's feature level (RT:D5).

    Raises:
        InvalidArgument: the operations have no order, the model is invalid, or newer than `feature_level`.
    """
    graphs = (model.main, *model.referenced)
    flags = (model.relax_computation_float32_to_float16,) * len(graphs)
    if relaxed is not None:
        if len(relaxed) != len(graphs):
            raise InvalidArgument(f"relaxed: {len(relaxed)} flags for {len(graphs)} subgraphs")
        flags = tuple(relaxed)
    orders = tuple(run_order(graph.operands, graph.operations) for graph in graphs)
    ordered = _with_graphs(model, list(map(_in_order, graphs, orders)))
    validate_model(ordered, SIGNATURES, feature_level=feature_level)
    shortened = [
        _recounted(graph, without_trailing_arguments(graph, model.operand_values))
        for graph in (ordered.main, *ordered.referenced)
    ]
    return FinishedModel(
        _with_graphs(ordered, shortened), orders, flags, architecture_hash(ordered)
    )


def _in_order(graph: Subgraph, order: Sequence[int]) -> Subgraph:
    operations = tuple(graph.operations[number] for number in order)
    return Subgraph(graph.operands, operations, graph.input_indexes, graph.output_indexes)


def _with_graphs(model: Model, graphs: Sequence[Subgraph]) -> Model:
    return replace(model, main=graphs[0], referenced=tuple(graphs[1:]))


def _recounted(graph: Subgraph, operations: tuple[Operation, ...]) -> Subgraph:
    """The subgraph with these operations, and with consumers counted anew."""
    uses = [0] * len(graph.operands)
    for operation in operations:
        for index in operation.inputs:
            uses[index] += 1
    operands = tuple(
        operand if operand.number_of_consumers == count else _consumed(operand, count)
        for operand, count in zip(graph.operands, uses, strict=True)
    )
    return Subgraph(operands, operations, graph.input_indexes, graph.output_indexes)


def _consumed(operand: Operand, count: int) -> Operand:
    return replace(operand, number_of_consumers=count)
