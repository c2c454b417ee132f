"""One case on a driver: four executions of one prepared model, and what they must have in common."""

from __future__ import annotations

import numpy as np

from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import NnburstError
from nnburst.hal.operand_types import DTYPES
from nnburst.testing.conformance.run_result import Unsupported
from nnburst.testing.conformance.runners import PreparedRun, Runner
from nnburst.testing.conformance.vectors import BuiltModel, build
from nnburst.testing.models.naive.values import Array
from nnburst.testing.models.random_graphs.as_vector import as_vector, cut
from nnburst.testing.models.random_graphs.templates import TEMPLATES
from nnburst.testing.pack.bounds import largest, problem
from nnburst.testing.pack.cases import Case, Feed


def model_of(case: Case) -> BuiltModel:
    """The model of a case."""
    return build(as_vector(case.graph))


def inputs_of(case: Case, feed: Feed) -> list[Array | None]:
    """What a request feeds, in the order of the model's inputs; None if it omits one."""
    indexes = cut(case.graph, range(len(case.graph.operations))).inputs
    found = [feed.inputs.get(i) for i in indexes]
    return [None if array is None or not array.size else array for array in found]


def outputs_of(case: Case) -> list[int]:
    """Operand indexes of the model's outputs, in their order."""
    return cut(case.graph, range(len(case.graph.operations))).outputs


def problem_of(case: Case, runner: Runner) -> str | None:
    """Run a case: three sets of inputs, then the first again, with equal bits.

    Returns:
        What is wrong; None if nothing is.

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
