"""Empty tensors: SLICE makes one inside a graph, and other operations pass it on or refuse it."""

from __future__ import annotations

import numpy as np
import pytest

from nnburst.executor.base import Argument, Outcome
from nnburst.executor.graph.declarations import F32, I32, Q8
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.model_builder import ModelBuilder

Op = OperationType


def run_on_nothing(kind: Op, *others: object, quantised: bool = False) -> Outcome:
    """Cut zero batches out of a [2, 4, 4, 4] tensor and give them to `kind` as its first input.

    `others` are its further inputs: scalars, lists for constant INT32 tensors, or "input" for the
    tensor before the cut.
    """
    element, meta = (Q8, (0.5, 3)) if quantised else (F32, (0.0, 0))
    builder = ModelBuilder()
    x = builder.input(element, (2, 4, 4, 4), *meta)
    begin = builder.constant(I32, [0, 0, 0, 0])
    size = builder.constant(I32, [0, 4, 4, 4])
    empty = builder.temporary(element, (), *meta)
    builder.operation(Op.SLICE, [x, begin, size], [empty])
    inputs = [empty]
    for other in others:
        if other == "input":
            inputs.append(x)
        elif isinstance(other, list):
            inputs.append(builder.constant(I32, other))
        else:
            assert isinstance(other, bool | int | float)
            inputs.append(builder.scalar(other))
    builder.operation(kind, inputs, [builder.output(element, (), *meta)])
    prepared = ReferenceExecutor().prepare(builder.build(), [])
    data = np.ones((2, 4, 4, 4), np.uint8 if quantised else np.float32).reshape(-1)
    memory = np.zeros(1024, np.uint8)
    arguments = [Argument(data.view(np.uint8), (2, 4, 4, 4))], [Argument(memory, ())]
    try:  # shapes that are known when binding fail there already
        return prepared.bind(*arguments).run()
    except NnburstError as error:
        return Outcome(error.status, (), str(error))


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize(
    ("kind", "others", "dimensions"),
    [
        (Op.SLICE, ([0, 1, 0, 0], [-1, 2, 4, 4]), (0, 2, 4, 4)),
        (Op.TRANSPOSE, ([3, 0, 1, 2],), (4, 0, 4, 4)),
        (Op.CONCATENATION, ("input", 0), (2, 4, 4, 4)),
        (Op.RESIZE_BILINEAR, (3, 5), (0, 5, 3, 4)),
        (Op.RESIZE_NEAREST_NEIGHBOR, (3, 5, True), (0, 4, 5, 3)),
    ],
)
def test_these_operations_pass_an_empty_batch_on(
    kind: Op, others: tuple[object, ...], dimensions: tuple[int, ...], quantised: bool
) -> None:
    outcome = run_on_nothing(kind, *others, quantised=quantised)
    assert outcome.status is ErrorStatus.NONE, outcome.message
    assert outcome.output_shapes[0].dimensions == dimensions


@pytest.mark.parametrize(
    ("kind", "others", "status"),
    [
        (Op.RESHAPE, ([0],), ErrorStatus.INVALID_ARGUMENT),
        (Op.DEPTH_TO_SPACE, (2,), ErrorStatus.INVALID_ARGUMENT),
        (Op.SPACE_TO_DEPTH, (2,), ErrorStatus.INVALID_ARGUMENT),
        (Op.BATCH_TO_SPACE_ND, ([1, 1],), ErrorStatus.INVALID_ARGUMENT),
        (Op.SPACE_TO_BATCH_ND, ([1, 1], [[0, 0], [0, 0]]), ErrorStatus.INVALID_ARGUMENT),
        (Op.PAD, ([[0, 0]] * 4,), ErrorStatus.INVALID_ARGUMENT),
        (Op.PAD_V2, ([[0, 0]] * 4, 1.0), ErrorStatus.INVALID_ARGUMENT),
        (Op.EXPAND_DIMS, (0,), ErrorStatus.INVALID_ARGUMENT),
        (Op.SPLIT, (1, 1), ErrorStatus.INVALID_ARGUMENT),
        (Op.TILE, ([1, 1, 1, 1],), ErrorStatus.INVALID_ARGUMENT),
        (Op.SQUEEZE, ([0],), ErrorStatus.GENERAL_FAILURE),
        (Op.GATHER, (1, [0]), ErrorStatus.GENERAL_FAILURE),
        (Op.REVERSE, ([0],), ErrorStatus.GENERAL_FAILURE),
        (Op.MIRROR_PAD, ([[0, 0]] * 4, 1), ErrorStatus.GENERAL_FAILURE),
        (Op.CHANNEL_SHUFFLE, (2, 3), ErrorStatus.GENERAL_FAILURE),
        (Op.STRIDED_SLICE, ([0] * 4, [4] * 4, [1] * 4, 0, 0, 0), ErrorStatus.GENERAL_FAILURE),
    ],
)
def test_these_operations_refuse_an_empty_batch(
    kind: Op, others: tuple[object, ...], status: ErrorStatus
) -> None:
    outcome = run_on_nothing(kind, *others)
    assert outcome.status is status
    assert "is empty" in outcome.message
    assert outcome.output_shapes == ()


def test_concatenating_with_nothing_copies_the_rest() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (2,))
    zero = builder.constant(I32, [0])
    empty = builder.temporary(F32, (0,))
    builder.operation(Op.SLICE, [x, zero, zero], [empty])
    axis = builder.scalar(0, OperandType.INT32)
    builder.operation(Op.CONCATENATION, [empty, x, empty, axis], [builder.output(F32, (2,))])
    memory = np.zeros(8, np.uint8)
    data = np.array([1, 2], np.float32)
    prepared = ReferenceExecutor().prepare(builder.build(), [])
    prepared.bind([Argument(data.view(np.uint8), (2,))], [Argument(memory, (2,))]).run()
    np.testing.assert_array_equal(memory.view(np.float32), data)
