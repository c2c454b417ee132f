"""Another writer changes the request's memory while onnxruntime computes: nothing breaks.

As `executor/test_hostile_memory.py` does with the reference executor: each operation that the engine claims
runs in fenced memory that a second thread rewrites. Every operand is an input of the request but those that
steer the operation, which are claimed as constants only. Real numbers are used where they lie.

NNBURST_RUNS says how often each operation runs, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import pytest

pytest.importorskip("onnxruntime", reason="the executor's engine")

from executor.litert.networks import aligned
from executor.litert.test_hostile_memory import drawn, gathering
from executor.onnxruntime.networks import F32, I32
from executor.test_hostile_memory import RUNS, run
from nnburst.executor.base import Argument
from nnburst.executor.built_in import onnxruntime
from nnburst.executor.graph.operation import REGISTRY
from nnburst.executor.onnxruntime.executor import NetworkPrepared, SessionPrepared
from nnburst.executor.onnxruntime.lowering import LOWERINGS
from nnburst.executor.onnxruntime.network import survey
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.conformance.vectors import Vector, build
from nnburst.testing.models.random_graphs.builder import TEMPLATES

#: Cases of each operation, and how many are drawn until as many are claimed.
CASES: Final = 2
DRAWN: Final = 40
#: FILL and RANK are claimed as constants: they read nothing of a request. LSTMs are drawn with operands that
#: have no value, which are inputs of unknown extents here.
_NOT_DRAWN: Final = (
    OperationType.FILL,
    OperationType.RANK,
    OperationType.LSTM,
    OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM,
)
DRAWABLE: Final = [o for o in REGISTRY if o in LOWERINGS and o in TEMPLATES and o not in _NOT_DRAWN]


def claimed(operation: OperationType) -> Iterator[Vector]:
    """Cases that the engine runs."""
    vectors = (drawn(operation, seed) for seed in range(DRAWN))
    found = (v for v in vectors if all(survey(build(v).model).lowered))
    yield from islice(found, CASES)


@pytest.mark.campaign
@pytest.mark.counted
@pytest.mark.parametrize("operation", DRAWABLE, ids=lambda operation: operation.name)
def test_memory_that_changes_all_the_time_breaks_no_operation(operation: OperationType) -> None:
    cases = 0
    for cases, vector in enumerate(claimed(operation), 1):
        prepared = onnxruntime().prepare(build(vector).model, [])
        assert isinstance(prepared, NetworkPrepared)
        for status, message in run(vector, prepared, RUNS // CASES, at_end=cases % 2 == 0):
            assert status in (ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE), message
        prepared.close()
    assert cases, "no case of it is claimed"


def test_indices_are_copied_before_they_are_used() -> None:
    builder = ModelBuilder()
    table, places = builder.input(F32, (32, 4)), builder.input(I32, (2,))
    y = builder.output(F32, (2, 4))
    builder.operation(OperationType.GATHER, [table, builder.scalar(0), places], [y])
    prepared = onnxruntime().prepare(builder.build(), [])
    inputs = [Argument(aligned(512), (32, 4)), Argument(aligned(8), (2,))]
    execution = prepared.bind(inputs, [Argument(aligned(32), (2, 4))])
    assert execution._binding.copied_bytes == 8  # type: ignore[attr-defined]


@pytest.mark.every_day("False")
@pytest.mark.counted
@pytest.mark.parametrize("reshaped", [False, True])
def test_indices_are_refused_or_followed_whatever_they_change_to(reshaped: bool) -> None:
    vector = gathering(reshaped=reshaped)
    prepared = onnxruntime().prepare(build(vector).model, [])
    assert isinstance(prepared, SessionPrepared)
    ended = {status for status, _ in run(vector, prepared, 20 * RUNS, at_end=False)}
    # Which of them depends on what the other writer had there at the time.
    assert ended
    assert ended <= {ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE}
