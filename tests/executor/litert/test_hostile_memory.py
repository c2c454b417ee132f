"""Another writer changes the request's memory while LiteRT computes: nothing breaks.

As `executor/test_hostile_memory.py` does with the reference executor: each operation that the engine claims
runs in fenced memory that a second thread rewrites. Every operand is an input of the request but those that
the engine claims as constants only (`Role.CONTROL`); so whatever it follows as an index changes under it.

NNBURST_RUNS says how often each operation runs, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np
import pytest

import nnburst.executor.litert.operations  # noqa: F401 - fills the registry
from executor.litert.networks import needs_engine
from executor.test_hostile_memory import RUNS, run, steers
from nnburst.executor.built_in import litert
from nnburst.executor.graph.operation import REGISTRY
from nnburst.executor.graph.plan import Plan
from nnburst.executor.litert.executor import LiteRtPrepared
from nnburst.executor.litert.lowering import LOWERINGS
from nnburst.executor.litert.network import survey
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.signature import Role
from nnburst.testing.conformance.vectors import (
    Vector,
    VectorGraph,
    VectorOperand,
    VectorOperation,
    build,
)
from nnburst.testing.models.random_graphs.builder import SIZES, TEMPLATES, GraphBuilder
from nnburst.testing.models.random_graphs.graphs import as_vector, draw

pytestmark = needs_engine

#: Cases of each operation, and how many are drawn until as many are claimed.
CASES: Final = 4
DRAWN: Final = 60
#: FILL is claimed if its result is a constant: then it reads nothing of a request. An LSTM is claimed if all
#: but its input and states is constant, which steer nothing.
_CONSTANT: Final = (
    OperationType.FILL,
    OperationType.LSTM,
    OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM,
)
STEERED: Final = [o for o in REGISTRY if o in LOWERINGS and steers(o) and o not in _CONSTANT]


def roles(vector: Vector) -> list[Role]:
    """The use that the vector's only operation makes of each input."""
    (step,) = Plan(build(vector).model, []).main.steps
    return [slot.role for slot in step.match.inputs]


def drawn(operation: OperationType, seed: int) -> Vector:
    """A case of the operation with every operand an input but those that steer it by more than an index."""
    kinds = [k for k in TEMPLATES[operation].kinds if k is not OperandType.TENSOR_FLOAT16]
    builder = GraphBuilder(np.random.default_rng([operation, seed]), SIZES["single"])
    while not draw(builder, operation, kinds[seed % len(kinds)]):
        pass
    graph = builder.finish("hostile", "single")
    (only,) = graph.operations  # a vector numbers its operands anew, but keeps their order in it
    does = dict(zip(only.inputs, roles(as_vector(graph)), strict=True))
    operands = tuple(
        replace(o, source="input")
        if o.source == "constant" and does.get(at) is not Role.CONTROL
        else o
        for at, o in enumerate(graph.operands)
    )
    return as_vector(replace(graph, operands=operands))


def claimed(operation: OperationType) -> Iterator[Vector]:
    """Cases that the engine runs alone."""
    vectors = (drawn(operation, seed) for seed in range(DRAWN))
    found = (v for v in vectors if survey(build(v).model, []).network is not None)
    yield from islice(found, CASES)


@pytest.mark.campaign
@pytest.mark.counted
@pytest.mark.parametrize("operation", STEERED, ids=lambda operation: operation.name)
def test_memory_that_changes_all_the_time_breaks_no_operation(
    operation: OperationType, route: str
) -> None:
    cases = 0
    for cases, vector in enumerate(claimed(operation), 1):
        prepared = litert().prepare(build(vector).model, [])
        assert isinstance(prepared, LiteRtPrepared), route
        for status, message in run(vector, prepared, RUNS // CASES, at_end=cases % 2 == 0):
            assert status in (ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE), message
        prepared.close()
    assert cases, "no case of it is claimed"


def test_every_index_that_the_engine_follows_is_an_input_that_changes() -> None:
    for operation in STEERED:
        forms = REGISTRY[operation].signature.forms
        if all(slot.role is not Role.INDEX for form in forms for slot in form.inputs):
            continue
        for vector in claimed(operation):
            (only,) = vector.main.operations
            does = zip(only.inputs, roles(vector), strict=True)
            indexes = {at for at, role in does if role is Role.INDEX}
            assert indexes, operation.name
            assert indexes <= set(vector.main.inputs), operation.name


def gathering(*, reshaped: bool) -> Vector:
    """Rows of a table by indexes that are given, or given in another shape."""
    # Long enough that what has been checked changes before it is followed.
    count, side = 1 << 14, 1 << 7
    table = np.arange(256, dtype=np.float32)
    indexes = np.arange(count, dtype=np.int32) % table.size
    given = (side, side) if reshaped else (count,)
    buffers = [table, indexes, np.array([count], np.int32), np.int32(0), table[indexes]]

    def operand(kind: str, dimensions: tuple[int, ...], lifetime: str, data: int) -> VectorOperand:
        return VectorOperand(
            type=kind,
            dimensions=dimensions,
            scale=0.0,
            zero_point=0,
            lifetime=lifetime,
            number_of_consumers=0 if lifetime == "SUBGRAPH_OUTPUT" else 1,
            data=data if data >= 0 else None,
        )

    operands = [
        operand("TENSOR_FLOAT32", table.shape, "SUBGRAPH_INPUT", 0),
        operand("INT32", (), "CONSTANT_COPY", 3),
        operand("TENSOR_INT32", given, "SUBGRAPH_INPUT", 1),
        operand("TENSOR_FLOAT32", (count,), "SUBGRAPH_OUTPUT", 4),
    ]
    operations = [VectorOperation("GATHER", (0, 1, 2), (3,))]
    if reshaped:
        operands.append(operand("TENSOR_INT32", (1,), "CONSTANT_COPY", 2))
        operands.append(operand("TENSOR_INT32", (count,), "TEMPORARY_VARIABLE", -1))
        operations = [
            VectorOperation("RESHAPE", (2, 4), (5,)),
            VectorOperation("GATHER", (0, 1, 5), (3,)),
        ]
    graph = VectorGraph(tuple(operands), tuple(operations), (0, 2), (3,))
    data = tuple(array.tobytes() for array in buffers)
    return Vector(name="gathering", spec="gathering", folder="test", main=graph, buffers=data)


@pytest.mark.every_day("interpreter-False", "library-False", "library-True")
@pytest.mark.counted
@pytest.mark.parametrize("reshaped", [False, True])
def test_indexes_are_refused_or_followed_whatever_they_change_to(
    reshaped: bool, route: str
) -> None:
    vector = gathering(reshaped=reshaped)
    prepared = litert().prepare(build(vector).model, [])
    assert isinstance(prepared, LiteRtPrepared), route
    ended = {status for status, _ in run(vector, prepared, 40 * RUNS, at_end=False)}
    # Which of them depends on what the other writer had there at the time.
    assert ended
    assert ended <= {ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE}
