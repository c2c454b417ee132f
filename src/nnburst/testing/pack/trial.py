"""Runs one case on a driver in four executions, and compares results within tolerances.

Tolerances are NNAPI's (NNAPI: TestHarness.cpp, TestRandomGraph.cpp). Operations without sums or functions
have the tolerance of conformance vectors; others have that times a factor, which is far less than float16
arithmetic would need.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES
from nnburst.testing.conformance.comparison import Limits, Unsupported, first_mismatch, limits_for
from nnburst.testing.conformance.runners import PreparedRun, Runner
from nnburst.testing.conformance.vectors import BuiltModel, Tolerance, build
from nnburst.testing.models.naive.registry import Array
from nnburst.testing.models.random_graphs.builder import TEMPLATES, Template
from nnburst.testing.models.random_graphs.graphs import CRITERIA, as_vector, cut
from nnburst.testing.pack.cases import Case, Feed

_VECTORS: Final = Tolerance()
#: Factors for sums and transcendental functions, by an operation's criteria.
_FACTORS: Final = {"strict": 1.0, "medium": 1.0, "relaxed": 10.0, "conv": 10.0}


def problem(
    template: Template, kind: OperandType, expected: Array, actual: Array, size: float
) -> str | None:
    """The reason why a result is too far off; None if it is not.

    Args:
        template: template of the operation.
        kind: type of the output.
        expected: expected elements.
        actual: the same number of elements.
        size: magnitude of the largest finite input: sums of large inputs are inexact even if small.
    """
    mismatch = first_mismatch(expected, actual, limits(template, kind, size))
    return None if mismatch is None else str(mismatch)


def limits(template: Template, kind: OperandType, size: float) -> Limits:
    """The largest difference of one element; see `problem`."""
    if kind in QUANTIZED_RANGES:
        return Limits(CRITERIA[template.criteria].quantised.atol, 0)
    if DTYPES[kind].kind != "f":
        return Limits(0 if template.exact else 1, 0)
    found = limits_for(kind, _VECTORS)
    factor = _FACTORS[template.criteria]
    return Limits(found.atol * factor * max(1.0, size if factor > 1 else 1.0), found.rtol * factor)


def largest(arrays: list[Array]) -> float:
    """The largest finite number in floating point arrays."""
    finite = [
        np.abs(a[np.isfinite(a)].astype(np.float64)).max(initial=0.0)
        for a in arrays
        if a.dtype.kind == "f"
    ]
    return float(max(finite, default=0.0))


def model_of(case: Case) -> BuiltModel:
    """The model of a case."""
    return build(as_vector(case.graph))


def inputs_of(case: Case, feed: Feed) -> list[Array | None]:
    """The inputs of a request, in the order of the model's; None if it omits one."""
    indexes = cut(case.graph, range(len(case.graph.operations))).inputs
    found = [feed.inputs.get(i) for i in indexes]
    return [None if array is None or not array.size else array for array in found]


def outputs_of(case: Case) -> list[int]:
    """Operand indexes of the model's outputs, in their order."""
    return cut(case.graph, range(len(case.graph.operations))).outputs


def problem_of(case: Case, runner: Runner) -> str | None:
    """Run a case with three sets of inputs, and again with the first, whose results must have equal bits.

    Returns:
        A description of the fault; None without one.

    Raises:
        Unsupported: the driver reports beforehand that it cannot run the operation.
    """
    built = model_of(case)
    try:
        prepared = runner.prepare(built.model, built.pools)
        try:
            return _run(case, prepared)
        finally:
            prepared.close()
    except Unsupported:
        raise
    except NnburstError as error:
        return f"{error.status.name}: {error}"


def _run(case: Case, prepared: PreparedRun) -> str | None:
    bits = []
    for number, feed in enumerate((*case.feeds, case.feeds[0])):
        which = f"execution {number + 1}"
        found = _execute(case, feed, prepared)
        if isinstance(found, str):
            return f"{which}: {found}"
        for index, actual in zip(feed.outputs, found, strict=True):
            reason = _judged(case, feed, index, actual)
            if reason is not None:
                return f"{which}: {reason}"
        bits.append([array.tobytes() for array in found])
    if bits[0] != bits[-1]:
        return "the first inputs gave other bits when they were executed again after others"
    return None


def _execute(case: Case, feed: Feed, prepared: PreparedRun) -> list[Array] | str:
    outputs = outputs_of(case)
    sizes = [feed.outputs[i].nbytes for i in outputs]
    result = prepared.run(inputs_of(case, feed), sizes)
    if result.status is not ErrorStatus.NONE:
        return f"{result.status.name}: {result.message}"
    if result.changed_inputs:
        return f"input {result.changed_inputs[0]} was written to"
    for number, shape in enumerate(result.shapes):
        wanted = feed.outputs[outputs[number]].shape
        if tuple(shape.dimensions) != wanted:
            return f"output {number} reports {list(shape.dimensions)}, expected {list(wanted)}"
    return [
        np.frombuffer(data, feed.outputs[i].dtype).reshape(feed.outputs[i].shape)
        for i, data in zip(outputs, result.outputs, strict=True)
    ]


def _judged(case: Case, feed: Feed, index: int, actual: Array) -> str | None:
    kind = case.graph.operands[index].kind
    template = TEMPLATES[case.triple.operation]
    expected = feed.outputs[index].astype(DTYPES[kind])
    fed = [o.value.array for o in case.graph.operands if o.source in ("input", "constant")]
    reason = problem(template, kind, expected, actual, largest(fed))
    return None if reason is None else f"{kind.name} {list(expected.shape)} {reason}"
