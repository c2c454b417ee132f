"""Graphs in which BOX_WITH_NMS_LIMIT selects nothing: what the next operation makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from nnburst.executor.base import Argument, Outcome
from nnburst.executor.graph.declarations import F32, FLOAT32, I32
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.model_builder import ModelBuilder

Op = OperationType
SCORES = np.array([[1, 2], [3, 4]], np.float32)


def select(builder: ModelBuilder, inputs: list[int], outputs: list[int]) -> None:
    """Select boxes that score above 5: none does."""
    floats = [builder.scalar(v, FLOAT32) for v in (5.0, 0.5, 1.0, 0.0)]
    settings = [floats[0], builder.scalar(-1), builder.scalar(0), *floats[1:]]
    builder.operation(Op.BOX_WITH_NMS_LIMIT, [*inputs, *settings], outputs)


def run_on_nothing(kind: Op) -> Outcome:
    """Give `kind` no boxes, in whatever role boxes have there."""
    builder = ModelBuilder()
    scores = builder.input(F32, (2, 2))
    roi = builder.constant(F32, np.tile(np.array([0, 0, 1, 1], np.float32), (2, 2)))
    selected = {
        "scores": builder.temporary(F32, ()),
        "roi": builder.temporary(F32, ()),
        "classes": builder.temporary(I32, ()),
        "batches": builder.temporary(I32, ()),
    }
    select(builder, [scores, roi, builder.constant(I32, [0, 0])], list(selected.values()))
    outputs = _operation(builder, kind, selected["roi"], selected["batches"])
    prepared = ReferenceExecutor().prepare(builder.build(), [])
    memory = [Argument(np.zeros(256, np.uint8), ()) for _ in outputs]
    given = [Argument(SCORES.reshape(-1).view(np.uint8), SCORES.shape)]
    try:
        return prepared.bind(given, memory).run()
    except NnburstError as error:
        return Outcome(error.status, (), str(error))


def _operation(builder: ModelBuilder, kind: Op, roi: int, batches: int) -> list[int]:
    def output(element: OperandType = F32) -> int:
        return builder.output(element, ())

    def zeros(*dimensions: int) -> int:
        return builder.constant(F32, np.zeros(dimensions, np.float32))

    maps = [zeros(1, 4, 4, 3), roi, batches, builder.scalar(2), builder.scalar(3)]
    strides = [builder.scalar(1.0), builder.scalar(1.0)]
    inputs = {
        Op.ROI_ALIGN: [
            *maps,
            *strides,
            builder.scalar(0),
            builder.scalar(0),
            builder.scalar(False),
        ],
        Op.ROI_POOLING: [*maps, *strides, builder.scalar(False)],
        Op.AXIS_ALIGNED_BBOX_TRANSFORM: [roi, roi, batches, zeros(1, 2)],
        Op.HEATMAP_MAX_KEYPOINT: [zeros(1, 4, 4, 3), roi, builder.scalar(False)],
        Op.RNN: [roi, zeros(2, 4), zeros(2, 2), zeros(2), zeros(1, 2), builder.scalar(0)],
    }[kind]
    outputs = [output() for _ in range(2 if kind in (Op.HEATMAP_MAX_KEYPOINT, Op.RNN) else 1)]
    builder.operation(kind, inputs, outputs)
    return outputs


@pytest.mark.parametrize(
    ("kind", "dimensions"),
    [(Op.ROI_ALIGN, (0, 2, 3, 3)), (Op.AXIS_ALIGNED_BBOX_TRANSFORM, (0, 4))],
)
def test_these_operations_pass_an_empty_selection_on(kind: Op, dimensions: tuple[int, ...]) -> None:
    outcome = run_on_nothing(kind)
    assert outcome.status is ErrorStatus.NONE, outcome.message
    assert outcome.output_shapes[0].dimensions == dimensions


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Op.ROI_POOLING, ErrorStatus.GENERAL_FAILURE),
        (Op.HEATMAP_MAX_KEYPOINT, ErrorStatus.GENERAL_FAILURE),
        (Op.RNN, ErrorStatus.INVALID_ARGUMENT),
    ],
)
def test_these_operations_refuse_an_empty_selection(kind: Op, status: ErrorStatus) -> None:
    outcome = run_on_nothing(kind)
    assert outcome.status is status
    assert "is empty" in outcome.message


def test_an_empty_selection_can_be_selected_from() -> None:
    builder = ModelBuilder()
    scores = builder.input(F32, (2, 2))
    roi = builder.constant(F32, np.tile(np.array([0, 0, 1, 1], np.float32), (2, 2)))
    nothing = builder.temporary(F32, ())
    outputs = [builder.output(kind, ()) for kind in (F32, F32, I32, I32)]
    select(
        builder,
        [scores, roi, builder.constant(I32, [0, 0])],
        [builder.temporary(F32, ()), nothing, builder.temporary(I32, ()), builder.output(I32, ())],
    )
    # The empty selection [0, 4] serves as scores of 4 classes; 16 columns of boxes belong to it.
    roi_of_four = builder.temporary(F32, ())
    repeated = [nothing] * 4
    builder.operation(Op.CONCATENATION, [*repeated, builder.scalar(1)], [roi_of_four])
    batches = builder.temporary(I32, ())
    begin, size = builder.constant(I32, [0]), builder.constant(I32, [0])
    given_batches = builder.constant(I32, [0, 0])
    builder.operation(Op.SLICE, [given_batches, begin, size], [batches])
    select(builder, [nothing, roi_of_four, batches], outputs)
    prepared = ReferenceExecutor().prepare(builder.build(), [])
    memory = [Argument(np.zeros(64, np.uint8), ()) for _ in range(5)]
    given = [Argument(SCORES.reshape(-1).view(np.uint8), SCORES.shape)]
    outcome = prepared.bind(given, memory).run()
    assert outcome.status is ErrorStatus.NONE, outcome.message
    assert sorted(s.dimensions for s in outcome.output_shapes) == [(0,)] * 4 + [(0, 4)]
