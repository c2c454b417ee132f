"""Draws whole random graphs, runs them, checks their results, and shrinks graphs with wrong results.

For each output, the mean difference, the mean squared difference and each element are checked. For the means,
differences of floating-point results are divided by max(1, |expected|).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES
from nnburst.testing.conformance.comparison import Unsupported
from nnburst.testing.conformance.runners import Runner
from nnburst.testing.conformance.vectors import (
    ChannelQuant,
    Tolerance,
    Vector,
    VectorGraph,
    VectorOperand,
    VectorOperation,
    build,
)
from nnburst.testing.models.naive.registry import Array
from nnburst.testing.models.random_graphs import (
    elementwise,
    movement,
    picking,
    recurrence,
    spatial,
)
from nnburst.testing.models.random_graphs.builder import (
    B8,
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    SIZES,
    TEMPLATES,
    GraphBuilder,
    RandomGraph,
    RandomOperand,
    RandomOperation,
    RandomSubgraph,
    Unsuitable,
)

#: The families, whose import registers their templates.
FAMILIES: Final = (elementwise, movement, picking, recurrence, spatial)

#: Primary types of graphs. Quantised graphs have one operation: a harmless rounding difference of one step
#: would grow along a chain.
PRIMARY: Final = {
    "single": (F32, F16, I32, B8, Q8, Q8S),
    "small": (F32, F16, I32, B8),
    "large": (F32, F16, I32, B8),
}


def generate(size: str, kind: OperandType, seed: int) -> RandomGraph:
    """A random graph.

    Args:
        size: key of SIZES.
        kind: primary type; operations that take it are drawn.
        seed: the same seed gives the same graph.
    """
    rng = np.random.default_rng([list(SIZES).index(size), int(kind), seed])
    builder = GraphBuilder(rng, SIZES[size])
    usable = [operation for operation, t in TEMPLATES.items() if kind in t.kinds]
    while len(builder.operations) < builder.size.operations:
        draw(builder, builder.choice(usable), kind)
    return builder.finish(f"random_{size}_{kind.name.lower()}_{seed}", size)


def draw(builder: GraphBuilder, operation: OperationType, kind: OperandType) -> bool:
    """Draw and add one operation; False without adding it if it cannot be used."""
    template = TEMPLATES[operation]
    before = len(builder.operands)
    try:
        inputs, outputs = template.make(builder, kind)
        builder.add(operation, inputs, outputs, template.criteria, exact=template.exact)
    except Unsuitable:
        del builder.operands[before:]
        return False
    return True


_NO_INPUT: Final = ("constant", "no_value", "subgraph")


class GraphPart(NamedTuple):
    """Some operations of a graph and the operands around them, by index."""

    operations: list[RandomOperation]
    used: list[int]
    written: set[int]
    inputs: list[int]
    outputs: list[int]


def cut(graph: RandomGraph, keep: Sequence[int]) -> GraphPart:
    """The part of a graph with these operations (numbers, ascending).

    Results of other operations become inputs, and results that are not read any more become outputs.
    """
    operations = [graph.operations[i] for i in keep]
    written = {i for o in operations for i in o.outputs}
    read = {i for o in operations for i in o.inputs}
    used = sorted(written | read)
    inputs = [i for i in used if i not in written and graph.operands[i].source not in _NO_INPUT]
    outputs = [i for i in used if i in written and (i in graph.outputs or i not in read)]
    return GraphPart(operations, used, written, inputs, outputs)


def as_vector(
    graph: RandomGraph, keep: Sequence[int] | None = None, tolerance: Tolerance | None = None
) -> Vector:
    """The vector of a graph, with the naively computed values as expected results.

    Args:
        graph: the graph.
        keep: numbers of the operations to keep (see `cut`); all by default.
        tolerance: the vector's tolerance of results (by default that of other vectors).
    """
    part = cut(graph, range(len(graph.operations)) if keep is None else keep)
    place = {old: new for new, old in enumerate(part.used)}
    buffers: list[bytes] = []
    operands = []
    for index in part.used:
        lifetime = _lifetime(graph, index, part)
        data = None
        if lifetime not in ("TEMPORARY_VARIABLE", "NO_VALUE"):
            data = len(buffers)
            buffers.append(graph.operands[index].value.array.tobytes())
        consumers = sum(o.inputs.count(index) for o in part.operations)
        operands.append(_operand(index, graph.operands[index], lifetime, consumers, data))
    referenced = tuple(_referenced(each, buffers) for each in graph.referenced)
    return Vector(
        name=graph.name,
        spec=graph.name,
        folder="random",
        main=VectorGraph(
            tuple(operands),
            tuple(_operation(o, place) for o in part.operations),
            tuple(place[i] for i in part.inputs),
            tuple(place[i] for i in part.outputs),
        ),
        referenced=referenced,
        tolerance=tolerance or Tolerance(),
        buffers=tuple(buffers),
    )


def _referenced(graph: RandomSubgraph, buffers: list[bytes]) -> VectorGraph:
    """Convert a graph to the vector's form; its constants are appended to `buffers`."""
    operands = []
    for index, operand in enumerate(graph.operands):
        lifetime, data = "TEMPORARY_VARIABLE", None
        if index in graph.inputs:
            lifetime = "SUBGRAPH_INPUT"
        elif index in graph.outputs:
            lifetime = "SUBGRAPH_OUTPUT"
        elif operand.source == "no_value":
            lifetime = "NO_VALUE"
        elif operand.source == "constant":
            lifetime, data = "CONSTANT_COPY", len(buffers)
            buffers.append(operand.value.array.tobytes())
        consumers = sum(o.inputs.count(index) for o in graph.operations)
        found = _operand(index, operand, lifetime, consumers, data)
        operands.append(msgspec.structs.replace(found, dimensions=operand.declared))
    operations = tuple(
        _operation(o, dict(enumerate(range(len(operands))))) for o in graph.operations
    )
    return VectorGraph(tuple(operands), operations, graph.inputs, graph.outputs)


def _lifetime(graph: RandomGraph, index: int, part: GraphPart) -> str:
    if index in part.inputs:
        return "SUBGRAPH_INPUT"
    if index in part.outputs:
        return "SUBGRAPH_OUTPUT"
    if graph.operands[index].source in ("no_value", "subgraph"):
        return graph.operands[index].source.upper()
    return "TEMPORARY_VARIABLE" if index in part.written else "CONSTANT_COPY"


def _operand(
    index: int, operand: RandomOperand, lifetime: str, consumers: int, data: int | None
) -> VectorOperand:
    # Results are compared with the dimensions of outputs, and requests pass those of inputs.
    is_open = lifetime == "TEMPORARY_VARIABLE" or operand.value.is_omitted
    meta = operand.value.meta
    by_channel = operand.kind is OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
    return VectorOperand(
        name=f"op{index}",
        type=operand.kind.name,
        dimensions=operand.declared if is_open else operand.value.dimensions,
        scale=meta.scale,
        zero_point=meta.zero_point,
        lifetime=lifetime,
        number_of_consumers=consumers,
        channel_quant=ChannelQuant(meta.scales, meta.channel) if by_channel else None,
        data=data,
    )


def _operation(operation: RandomOperation, place: dict[int, int]) -> VectorOperation:
    return VectorOperation(
        operation.kind.name,
        tuple(place[i] for i in operation.inputs),
        tuple(place[i] for i in operation.outputs),
    )


class Criterion(NamedTuple):
    """Bounds of one element type.

    Attributes:
        bias: of the absolute mean difference.
        mean_square: of the mean squared difference.
        atol: of each element's difference ...
        rtol: ... together with this share of the expected value.
    """

    bias: float
    mean_square: float
    atol: float
    rtol: float


class Criteria(NamedTuple):
    """Bounds for float32, float16 and quantised results."""

    float32: Criterion
    float16: Criterion
    quantised: Criterion


Bounds = tuple[float, float, float]


def _criteria(f32: Bounds, f16: Bounds, quantised: Bounds) -> Criteria:
    return Criteria(
        Criterion(*f32, rtol=f32[2]), Criterion(*f16, rtol=f16[2]), Criterion(*quantised, rtol=0)
    )


#: device:§13, by kind of operation or size of graph: bias, mean square, atol = rtol.
CRITERIA: Final = {
    "strict": _criteria((1e-7, 1e-10, 1e-6), (1e-4, 1e-8, 1e-3), (0.1, 0.1, 1)),
    "medium": _criteria((1e-6, 1e-8, 1e-5), (1e-3, 1e-5, 1e-2), (1.2, 1.2, 2)),
    "relaxed": _criteria((3e-5, 1e-6, 1e-3), (5e-3, 1e-3, 1), (1.5, 1.5, 10)),
    "conv": _criteria((4e-4, 1e-5, 2e-2), (5e-2, 1e-2, 1), (1.5, 1.5, 10)),
    "small": _criteria((4e-4, 1e-5, 1e-2), (5e-2, 1e-2, 1), (2, 2, 12)),
    "large": _criteria((1e-2, 1e-4, 1e-1), (1e-1, 5e-2, 1), (2, 2, 12)),
    "wide": _criteria((4e-4, 1e-5, 1e-2), (5e-2, 1e-2, 1), (2, 2, 12)),
    "long": _criteria((1e-2, 1e-4, 1e-1), (1e-1, 5e-2, 1), (2, 2, 12)),
}


#: The criteria of operations, from strict to loose.
_LOOSENESS: Final = ("strict", "medium", "relaxed", "conv")


def loosest(names: Sequence[str]) -> str:
    """The name of the widest bounds among those of operations."""
    return max(names, key=_LOOSENESS.index)


def widened(criteria: Criteria, slack: float) -> Criteria:
    """Widen the bounds of elements by `slack`."""
    more = Criterion(slack, slack**2, slack, 0)
    return Criteria(*(Criterion(*(a + b for a, b in zip(c, more, strict=True))) for c in criteria))


def check(graph: RandomGraph, runner: Runner, keep: Sequence[int] | None = None) -> str | None:
    """Run a graph, or a part of it (see `as_vector`), and compare.

    Returns:
        The reason why a result is wrong; None if all are right.

    Raises:
        Unsupported: the executor cannot run some operation.
    """
    kept = range(len(graph.operations)) if keep is None else keep
    criteria = _criteria_for(graph, kept)
    vector = as_vector(graph, keep)
    built = build(vector)
    try:
        prepared = runner.prepare(built.model, built.pools)
        try:
            inputs = [vector.array_of(o) for o in vector.inputs]
            sizes = [max(1, len(vector.buffers[o.data or 0])) for o in vector.outputs]
            result = prepared.run(inputs, sizes)
        finally:
            prepared.close()
    except Unsupported:
        raise
    except NnburstError as error:
        return f"{error.status.name}: {error}"
    if result.status is not ErrorStatus.NONE:
        return f"{result.status.name}: {result.message}"
    results = [graph.operands[i] for i in cut(graph, kept).outputs]
    for number, operand in enumerate(vector.outputs):
        if result.shapes:  # else each shape is as the model declares it
            shape = tuple(result.shapes[number].dimensions)
            if shape != operand.dimensions:
                return (
                    f"{operand.name} ({operand.type} {list(operand.dimensions)}): is {list(shape)}"
                )
        expected = np.frombuffer(vector.buffers[operand.data or 0], DTYPES[operand.kind])
        actual = np.frombuffer(result.outputs[number], DTYPES[operand.kind], expected.size)
        found = results[number]
        bounds = widened(criteria, found.slack)
        reason = difference(operand.kind, expected, actual, bounds, exact=found.exact)
        if reason is not None:
            return f"{operand.name} ({operand.type} {list(operand.dimensions)}): {reason}"
    return None


def difference(
    kind: OperandType, expected: Array, actual: Array, criteria: Criteria, *, exact: bool
) -> str | None:
    """The reason why results of one type are too far off; None if they are not.

    Args:
        kind: their operand type.
        expected: elements, one-dimensional.
        actual: the same number of elements.
        criteria: the bounds.
        exact: whether no inexact operation precedes them, so that integers and booleans must be equal (the
            original allows integers to be off by one, and a tenth of the booleans to be wrong).
    """
    if not expected.size:
        return None
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    if kind in (OperandType.TENSOR_BOOL8, OperandType.BOOL):
        wrong = int((e != a).sum())
        allowed = 0 if exact else math.ceil(0.1 * e.size)
        return None if wrong <= allowed else f"{wrong} of {e.size} booleans differ"
    if kind in (OperandType.TENSOR_INT32, OperandType.INT32):
        return _elements(e, a, Criterion(math.inf, math.inf, 0 if exact else 1, 0))
    if kind in QUANTIZED_RANGES:
        return _statistics(a - e, criteria.quantised) or _elements(e, a, criteria.quantised)
    half = kind in (OperandType.TENSOR_FLOAT16, OperandType.FLOAT16)
    criterion = criteria.float16 if half else criteria.float32
    relative = (a - e) / np.maximum(1, np.abs(e))
    return _elements(e, a, criterion) or _statistics(relative, criterion)


def _elements(expected: Array, actual: Array, criterion: Criterion) -> str | None:
    off = ~(np.abs(actual - expected) <= criterion.atol + criterion.rtol * np.abs(expected))
    if not off.any():
        return None
    at = int(np.argmax(off))
    return (
        f"element {at} is {actual[at]!r}, expected {expected[at]!r}"
        f" ({int(off.sum())} of {off.size} differ)"
    )


def _statistics(differences: Array, criterion: Criterion) -> str | None:
    bias, square = float(np.mean(differences)), float(np.mean(differences**2))
    if abs(bias) > criterion.bias:
        return f"the mean difference is {bias:.3g}, at most {criterion.bias:g} is allowed"
    if square > criterion.mean_square:
        return f"the mean square is {square:.3g}, at most {criterion.mean_square:g} is allowed"
    return None


def _criteria_for(graph: RandomGraph, kept: Sequence[int]) -> Criteria:
    if len(kept) == 1 or graph.size == "pair":
        return CRITERIA[loosest([graph.operations[i].criteria for i in kept])]
    return CRITERIA["small" if graph.size == "single" else graph.size]


def tolerance_for(graph: RandomGraph, kept: Sequence[int]) -> Tolerance:
    """The criteria as a vector file's tolerance, which can only express the bounds of single elements."""
    criteria = _criteria_for(graph, kept)
    return Tolerance(
        float32=criteria.float32[2:],
        float16=criteria.float16[2:],
        quant8=int(criteria.quantised.atol),
        quant16=int(criteria.quantised.atol),
    )


def shrink(graph: RandomGraph, fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Leave out operations as long as the rest fails.

    Every value of the graph is known, so an operation reads its input from the request if the producer is
    left out. First halves are left out, then quarters, down to single operations.

    Args:
        graph: a graph that fails.
        fails: whether the part with these operations (numbers, ascending) fails.

    Returns:
        Numbers of operations, none of which can be left out alone.
    """
    kept = list(range(len(graph.operations)))
    size = len(kept) // 2
    while size:
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if rest and fails(rest):
                kept = rest
                break
        else:
            size //= 2
    return kept
