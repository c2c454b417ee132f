"""Moves operations of pairs and chains into graphs that an IF or a WHILE runs.

An operation is drawn and computed in the main graph, and then moved into a branch or a body. So the results
of the IF or WHILE are known although no naive version runs graphs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, is_scalar
from nnburst.testing.models.naive import Meta, Value
from nnburst.testing.models.random_graphs.builder import (
    B8,
    I32,
    JOINED,
    RandomGraph,
    RandomOperand,
    RandomOperation,
    RandomSubgraph,
    Unsuitable,
    is_within,
)
from nnburst.testing.models.random_graphs.chain_builder import (
    EMPTIED,
    SHADOWS,
    ChainBuilder,
)

_O = OperationType
#: Operations by which a branch copies an input: results of a graph must be results of an operation.
_COPYING: Final = (_O.CAST, _O.RESHAPE, _O.TRANSPOSE, _O.SLICE, _O.CONCATENATION)
#: Numbers of rounds of a WHILE, from which one is drawn.
_TURNS: Final = (0, 1, 2, 2, 3)


@dataclass
class _Interior:
    """A branch, condition or body of an IF or a WHILE, under construction.

    Attributes:
        operands: operands in the order in which they were made.
        operations: operations in an order that can be executed.
        inputs: indexes of the inputs.
        place: indexes of the outer graph's operands, by their indexes there.
        is_open: whether it may leave extents of inputs and outputs open.
    """

    is_open: bool = False
    operands: list[RandomOperand] = field(default_factory=list)
    operations: list[RandomOperation] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)

    def keep(self, operand: RandomOperand) -> int:
        """Add an operand; its index."""
        self.operands.append(operand)
        return len(self.operands) - 1

    def constant(self, kind: OperandType, values: object) -> int:
        """Add a constant with these integers; its index."""
        array = np.asarray(values, DTYPES[kind])
        return self.keep(RandomOperand(Value(Meta(kind), array), "constant", True, array.shape))

    def compute(
        self, kind: OperationType, inputs: Sequence[int], *results: RandomOperand
    ) -> list[int]:
        """Add an operation; the indexes of its results."""
        outputs = [self.keep(replace(result, source="computed")) for result in results]
        self.operations.append(RandomOperation(kind, tuple(inputs), tuple(outputs), "strict"))
        return outputs

    def finish(self, outputs: Sequence[int]) -> RandomSubgraph:
        """The graph with these outputs."""
        operands, operations = tuple(self.operands), tuple(self.operations)
        return RandomSubgraph(operands, operations, tuple(self.inputs), tuple(outputs))


@dataclass
class ControlFlowBuilder(ChainBuilder):
    """Builds chains of which some operations are in graphs that an IF or a WHILE runs.

    Attributes:
        condition: the result that is the condition of the next IF; None for another condition.
        referenced: the graphs that an IF or a WHILE runs.
        bounds: bounds of operands' elements that the operation needs, by index.
    """

    condition: int | None = None
    bounds: dict[int, tuple[float, float]] = field(default_factory=dict)
    referenced: list[RandomSubgraph] = field(default_factory=list)

    def aim(self, read: int) -> None:
        """Make the next operation read this operand, which is not the condition of an IF."""
        super().aim(read)
        self.condition, self.bounds = None, {}

    def tensor(
        self,
        kind: OperandType,
        low: float = -4,
        high: float = 4,
        *,
        ranks: Sequence[int] = (1, 2, 3, 4),
        dims: tuple[int, ...] | None = None,
        exact: bool = False,
        meta: Meta | None = None,
    ) -> int:
        """Draw a tensor as `ChainBuilder` does, and keep its bounds."""
        index = super().tensor(kind, low, high, ranks=ranks, dims=dims, exact=exact, meta=meta)
        least, most = self.bounds.get(index, (low, high))
        self.bounds[index] = max(least, low), min(most, high)
        return index

    def decide_by_read(self) -> None:
        """Make the operand to read the condition of the next IF, if it can be one."""
        read = self.read
        # validation:P10: of one element, and declared so.
        if (
            read is not None
            and self.meta(read).kind is B8
            and self.shape(read) == self.operands[read].declared == (1,)
        ):
            self.condition, self.read = read, None

    def finish(self, name: str, size: str) -> RandomGraph:
        """Finish the graph with the graphs that it refers to."""
        return replace(super().finish(name, size), referenced=tuple(self.referenced))

    def put_into_if(self) -> None:
        """Move the last operation into an IF, whose other branch copies operands, if that is possible."""
        operation = self.operations.pop()
        passed = self._passed(operation)
        branch = self._interior(passed, is_open=True)
        runs = self._refer(branch.finish(self._moved(branch, operation)))
        source = self._handed(operation.outputs, passed)
        hands = self._refer(self._copying(passed, source)) if source else runs
        is_run = not source or self.chance(0.6)
        if self.condition is None:
            truth = self.choice((0, 1, 1, 255))  # any byte but 0 is true
            condition = self.given(Value(Meta(B8), np.array([truth], np.uint8)), constant=0.4)
        else:
            condition = self.condition
        decision = bool(self.operands[condition].value.array.item())
        branches = [runs, hands] if decision == is_run else [hands, runs]
        if not is_run:
            for output, given in source.items():
                self._give(output, given)
        inputs = (condition, *branches, *passed)
        criteria = operation.criteria if is_run else "strict"
        self.operations.append(RandomOperation(_O.IF, inputs, operation.outputs, criteria))

    def put_into_while(self) -> None:
        """Move the last operation into a WHILE, whose rounds read earlier results if these can be inputs.

        Raises:
            Unsuitable: further rounds have no usable values.
        """
        operation = self.operations.pop()
        passed = self._passed(operation)
        carried = self._carried(operation, passed)
        turns = int(self.choice(_TURNS))
        last, more = self._repeated(operation, carried, turns - 1 if carried else 0)
        turns = min(turns, 1 + more) if carried else turns
        initial = [
            carried[number] if number in carried else self._initial(output)
            for number, output in enumerate(last.outputs)
        ]
        if not turns:
            for output, before in zip(last.outputs, initial, strict=True):
                self._give(output, before)
        start = self.between(0, 3)
        limit_value = start + turns if turns else start - self.between(0, 2)
        count = self.given(_integer(start), constant=0.4)
        limit = self.given(_integer(limit_value), constant=0.4) if self.chance(0.4) else None
        rest = [i for i in passed if i not in carried.values()]
        given = [*initial, count, *rest, *([] if limit is None else [limit])]
        results = list(last.outputs)
        if self.chance(0.25):  # the count is a result, too
            self.operands.append(RandomOperand(_integer(start + turns), "computed", True, (1,)))
            results.append(len(self.operands) - 1)
        # NNAPI: drivers do not run a WHILE over operands of unknown size (validation:P12).
        for index in (*given, *results):
            operand = self.operands[index]
            if not operand.value.is_omitted:
                self.operands[index] = replace(operand, declared=operand.value.dimensions)

        test = self._interior(given)
        bound = test.constant(I32, [limit_value]) if limit is None else test.place[limit]
        truth = RandomOperand(Value(Meta(B8), np.array([0], np.uint8)), "computed", True, (1,))
        condition = self._refer(
            test.finish(test.compute(_O.LESS, [test.place[count], bound], truth))
        )
        body = self._interior(given)
        # `operation` itself reads the carried operands, not results of its last round.
        outputs = self._moved(body, replace(operation, outputs=last.outputs))
        step = [body.place[count], body.constant(I32, [1]), body.constant(OperandType.INT32, 0)]
        outputs += body.compute(_O.ADD, step, self.operands[count])
        inputs = (condition, self._refer(body.finish(outputs)), *given)
        criteria = operation.criteria if turns else "strict"
        self.operations.append(RandomOperation(_O.WHILE, inputs, tuple(results), criteria))

    # -- Graphs ------------------------------------------------------------------------------------

    def _refer(self, graph: RandomSubgraph) -> int:
        """Add an operand that refers to a graph; its index."""
        value = Value(Meta(OperandType.SUBGRAPH), np.array(len(self.referenced), "<u4"))
        self.referenced.append(graph)
        self.operands.append(RandomOperand(value, "subgraph", True, ()))
        return len(self.operands) - 1

    def _interior(self, given: Sequence[int], *, is_open: bool = False) -> _Interior:
        """Begin a graph with these operands as inputs and without operations."""
        made = _Interior(is_open)
        for index in given:
            made.place[index] = made.keep(self._inside(made, index))
        made.inputs = list(made.place.values())
        return made

    def _inside(self, interior: _Interior, index: int) -> RandomOperand:
        """An operand as the inner graph declares it; per-channel scales need the extent of their axis."""
        operand = self.operands[index]
        if operand.value.is_omitted:
            return operand
        is_open = interior.is_open and not operand.value.meta.scales
        declared = self._declared(operand.value) if is_open else operand.value.dimensions
        return replace(operand, declared=declared)

    def _moved(self, interior: _Interior, operation: RandomOperation) -> list[int]:
        """Move the operation into a graph, with constants that are not passed to it; the outputs there."""
        for index in operation.inputs:
            if index not in interior.place:
                interior.place[index] = interior.keep(self.operands[index])
        inputs = [interior.place[index] for index in operation.inputs]
        results = [self._inside(interior, index) for index in operation.outputs]
        return interior.compute(operation.kind, inputs, *results)

    def _passed(self, operation: RandomOperation) -> list[int]:
        """The inputs of an operation that are inputs of its graph; other inputs are constants there."""

        def is_inside(index: int) -> bool:
            source = self.operands[index].source
            return source == "no_value" or (source == "constant" and self.chance(0.7))

        return [index for index in dict.fromkeys(operation.inputs) if not is_inside(index)]

    # -- Branches ----------------------------------------------------------------------------------

    def _handed(self, outputs: Sequence[int], passed: Sequence[int]) -> dict[int, int | Value]:
        """For each output, the operand that a branch may copy, or a constant; empty if that is impossible."""
        found: dict[int, int | Value] = {}
        for output in outputs:
            like = self.operands[output].value
            fitting = [i for i in passed if self._is_like(i, like)]
            if not _copying_operations(like):
                return {}
            if fitting and self.chance(0.8):
                found[output] = int(self.choice(fitting))
            elif like.array.size:
                elements = self._elements(like.meta.kind, like.dimensions, *self.realm)
                found[output] = Value(like.meta, elements)
            else:
                return {}
        return found

    def _copying(self, passed: Sequence[int], source: dict[int, int | Value]) -> RandomSubgraph:
        """A branch that copies these operands and constants to its outputs."""
        branch = self._interior(passed, is_open=True)
        outputs = []
        for output, given in source.items():
            result = self.operands[output]
            if isinstance(given, Value):
                x = branch.keep(RandomOperand(given, "constant", True, given.dimensions))
            else:
                x = branch.place[given]
            dims = result.value.dimensions
            kind: OperationType = self.choice(_copying_operations(result.value))
            steering: dict[OperationType, list[tuple[OperandType, object]]] = {
                _O.CAST: [],
                _O.RESHAPE: [(I32, dims)],
                _O.TRANSPOSE: [(I32, range(len(dims)))],
                _O.SLICE: [(I32, [0] * len(dims)), (I32, dims)],
                _O.CONCATENATION: [(OperandType.INT32, 0)],
            }
            inputs = [x, *(branch.constant(*each) for each in steering[kind])]
            outputs += branch.compute(kind, inputs, self._inside(branch, output))
        return branch.finish(outputs)

    def _give(self, output: int, given: int | Value) -> None:
        """Set the value of an output to that of an operand or constant."""
        operand = self.operands[output]
        if isinstance(given, Value):
            taken, slack, exact = given, 0.0, True
        else:
            taken, slack, exact = (
                self.operands[given].value,
                self.operands[given].slack,
                self.operands[given].exact,
            )
        self.operands[output] = replace(operand, value=taken, slack=slack, exact=exact)
        for number in range(SHADOWS):
            shadow = None if isinstance(given, Value) else self.shadows.get((number, given))
            self.shadows[number, output] = shadow or taken

    # -- Loops -------------------------------------------------------------------------------------

    def _is_like(self, index: int, like: Value) -> bool:
        value = self.operands[index].value
        is_same = value.meta == like.meta and value.dimensions == like.dimensions
        return is_same and not value.is_omitted and math.isfinite(self.operands[index].slack)

    def _carried(self, operation: RandomOperation, passed: Sequence[int]) -> dict[int, int]:
        """For each output, by number, the input that it replaces in the next round."""
        found: dict[int, int] = {}
        for number, output in enumerate(operation.outputs):
            operand = self.operands[output]
            left = [
                index
                for index in passed
                if index in self.bounds  # operands without bounds steer the operation
                and index not in found.values()
                and self._is_like(index, operand.value)
            ]
            if left and math.isfinite(operand.slack) and self.chance(0.85):
                read = self.read
                found[number] = read if read in left else int(self.choice(left))
        return found

    def _repeated(
        self, operation: RandomOperation, carried: dict[int, int], times: int
    ) -> tuple[RandomOperation, int]:
        """Run up to `times` further rounds within bounds; the last operation, and the number of rounds."""
        template, last = JOINED[operation.kind], operation
        metas = [self.meta(output) for output in operation.outputs]
        for number in range(times):
            results = {index: last.outputs[place] for place, index in carried.items()}
            if not all(self._is_in_bounds(new, index) for index, new in results.items()):
                return last, number
            inputs = [results.get(index, index) for index in operation.inputs]
            self.add(operation.kind, inputs, metas, template.criteria, exact=template.exact)
            before, last = last, self.operations.pop()
            if [*map(self.shape, last.outputs)] != [*map(self.shape, before.outputs)]:
                raise Unsuitable
        return last, max(times, 0)

    def _is_in_bounds(self, result: int, index: int) -> bool:
        """Whether a result may replace an input."""
        value = self.operands[result].value
        return value.meta.kind in QUANTIZED_RANGES or is_within(value.array, *self.bounds[index])

    def _initial(self, output: int) -> int:
        """The initial value of an output that does not replace an input of the operation."""
        value = self.operands[output].value
        if is_scalar(value.meta.kind):
            number = np.array(self.between(1, 4), value.array.dtype)
            return self.given(Value(value.meta, number), constant=0.9)
        return self.fresh(value.meta.kind, value.dimensions, meta=value.meta)


def _copying_operations(value: Value) -> list[OperationType]:
    """The operations that can copy a value."""
    return [
        o
        for o in _COPYING
        if value.meta.kind in JOINED[o].kinds and (value.array.size or o in EMPTIED)
    ]


def _integer(value: int) -> Value:
    return Value(Meta(I32), np.array([value], np.int32))
