"""GENERATE_PROPOSALS: anchors, strict limits, order, layouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, FLOAT16, FLOAT32, I32, Q8, Q8S, Q16A, Q16S
from nnburst.hal.enums import OperationType

KIND = OperationType.GENERATE_PROPOSALS
OUTPUTS = [output(F32), output(F32), output(I32)]


def inputs_of(scores: Any, anchors: Any = ((0, 0, 4, 4),), **more: Any) -> list[Given]:
    """`scores` [batch, height, width, anchors]; cells lie 10 apart in images of 100 x 100."""
    scores = np.asarray(scores, np.float32)
    deltas = more.get("deltas", np.zeros((*scores.shape[:3], 4 * scores.shape[3])))
    images = more.get("images", [[100, 100]] * len(scores))
    nchw = more.get("nchw", False)
    if nchw:
        scores, deltas = (np.moveaxis(np.asarray(a), 3, 1) for a in (scores, deltas))
    kind = more.get("kind", F32)
    number = FLOAT16 if kind == F16 else FLOAT32
    return [
        tensor(kind, scores),
        tensor(kind, deltas),
        tensor(kind, anchors),
        tensor(kind, images),
        *(scalar(s, number) for s in more.get("strides", (10.0, 10.0))),
        scalar(more.get("before", 0)),
        scalar(more.get("after", 0)),
        scalar(more.get("iou_threshold", 0.5), number),
        scalar(more.get("min_size", 0.0), number),
        scalar(nchw),
    ]


def proposals(scores: Any, *given: Any, **more: Any) -> tuple[Any, Any, Any]:
    kind = more.get("kind", F32)
    found = run(KIND, inputs_of(scores, *given, **more), [output(kind), output(kind), output(I32)])
    return found[0].tolist(), found[1].tolist(), found[2].tolist()


ROW = [[[[1], [3], [2]]]]  # one image, one row of three cells


@pytest.mark.parametrize("kind", [F32, F16])
def test_anchors_stand_in_every_cell_and_the_best_come_first(kind: Any) -> None:
    scores, boxes, batches = proposals(ROW, kind=kind)
    assert scores == [3, 2, 1]
    assert boxes == [[10, 0, 14, 4], [20, 0, 24, 4], [0, 0, 4, 4]]
    assert batches == [0, 0, 0]


def test_strides_are_height_then_width() -> None:
    _, boxes, _ = proposals([[[[4], [3]], [[2], [1]]]], strides=(7.0, 10.0))
    assert [b[:2] for b in boxes] == [[0, 0], [10, 0], [0, 7], [10, 7]]


def test_each_anchor_of_a_cell_has_a_score_and_a_correction() -> None:
    deltas = [[[[0.25, 0, 0, 0, 0, 0.5, 0, 0]]]]
    anchors = [[0, 0, 4, 4], [30, 30, 32, 38]]
    scores, boxes, _ = proposals([[[[1, 2]]]], anchors, deltas=deltas)
    assert scores == [2, 1]
    assert boxes == [[30, 34, 32, 42], [1, 0, 5, 4]]


def test_overlap_equal_to_the_threshold_suppresses() -> None:
    """Cells 2 apart: neighbours overlap by 2 of 6."""
    third = float(np.float32(8) / np.float32(24))
    more: dict[str, Any] = {"strides": (10.0, 2.0)}
    assert proposals(ROW, iou_threshold=third, **more)[0] == [3]
    assert proposals(ROW, iou_threshold=0.34, **more)[0] == [3, 2, 1]


def test_size_equal_to_the_least_is_too_small() -> None:
    assert proposals(ROW, min_size=4.0)[0] == []
    assert proposals(ROW, min_size=3.99)[0] == [3, 2, 1]
    assert proposals(ROW, [[0, 0, 4, 5]], min_size=4.0)[0] == []
    assert proposals(ROW, [[0, 0, 5, 4]], min_size=4.0)[0] == []


def test_size_counts_after_clipping() -> None:
    """The image ends at 12: of the middle box 2 are left, of the last one nothing."""
    assert proposals(ROW, images=[[100, 12]], min_size=2.0)[0] == [1]
    assert proposals(ROW, images=[[100, 12]], min_size=1.0)[0] == [3, 1]


def test_centre_on_the_border_is_outside() -> None:
    """Boxes of no width at the right border have their centre on it; a negative size lets them."""
    _, boxes, _ = proposals(ROW, images=[[100, 10]], min_size=-1.0)
    assert boxes == [[0, 0, 4, 4]]
    _, boxes, _ = proposals([[[[1]], [[2]]]], images=[[10, 100]], min_size=-1.0)
    assert boxes == [[0, 0, 4, 4]]


def test_limit_before_suppression_counts_small_boxes_too() -> None:
    anchors = [[0, 0, 4, 4], [0, 0, 1, 1]]
    more: dict[str, Any] = {"min_size": 2.0}
    assert proposals([[[[1, 2]]]], anchors, **more)[0] == [1]
    assert proposals([[[[1, 2]]]], anchors, before=1, **more)[0] == []
    assert proposals([[[[1, 2]]]], anchors, before=2, **more)[0] == [1]


@pytest.mark.parametrize("limit", [0, -1])
def test_limits_that_are_not_positive_do_not_limit(limit: int) -> None:
    assert proposals(ROW, before=limit, after=limit)[0] == [3, 2, 1]


def test_limit_after_suppression_holds_for_each_image() -> None:
    scores, _, batches = proposals([ROW[0], [[[4], [5], [6]]]], after=2)
    assert scores == [3, 2, 6, 5]
    assert batches == [0, 0, 1, 1]


def test_images_have_their_own_size() -> None:
    _, boxes, batches = proposals([ROW[0], ROW[0]], images=[[100, 100], [3, 12]])
    assert batches == [0, 0, 0, 1, 1]
    assert boxes[3:] == [[10, 0, 12, 3], [0, 0, 4, 3]]


@given(seed=st.integers(0, 2**32 - 1))
def test_both_layouts_give_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0, 1, (2, 3, 2, 2))
    deltas = rng.uniform(-0.5, 0.5, (2, 3, 2, 8))
    anchors = [[0, 0, 15, 12], [3, 3, 20, 30]]
    found = [proposals(scores, anchors, deltas=deltas, nchw=nchw) for nchw in (False, True)]
    assert found[0] == found[1]
    assert found[0][2] == sorted(found[0][2])


def quantised(kind: Any, anchor_scale: float = 0.125, image_scale: float = 0.125) -> list[Given]:
    zero = 0 if kind == Q8 else -128
    inputs = inputs_of(ROW)
    inputs[0] = tensor(kind, np.array([[[[10], [30], [20]]]]) + zero, 0.1, zero)
    inputs[1] = tensor(kind, np.full((1, 1, 3, 4), 100 + zero), 0.05, 100 + zero)
    inputs[2] = tensor(Q16S, [[0, 0, 32, 32]], anchor_scale, 0)
    inputs[3] = tensor(Q16A, [[800, 800]], image_scale, 0)
    return inputs


@pytest.mark.parametrize(("kind", "zero"), [(Q8, 0), (Q8S, -128)])
def test_quantised_boxes_are_in_eighths(kind: Any, zero: int) -> None:
    wanted = [output(kind, (0,), 0.1, zero), output(Q16A, (0, 4), 0.125, 0), output(I32)]
    scores, boxes, _ = run(KIND, quantised(kind), wanted)
    assert (scores.astype(int) - zero).tolist() == [30, 20, 10]
    assert boxes.tolist() == [[80, 0, 112, 32], [160, 0, 192, 32], [0, 0, 32, 32]]


def test_only_unsigned_models_prescribe_the_scales_of_boxes() -> None:
    def wanted(kind: Any, scale: float) -> Any:
        return [output(kind, (0,), 0.1, 0), output(Q16A, (0, 4), scale, 0), output(I32)]

    message = "'anchors' has scale 0.25, expected 0.125"
    refuses(KIND, quantised(Q8, 0.25), wanted(Q8, 0.125), message)
    refuses(KIND, quantised(Q8, 0.125, 0.25), wanted(Q8, 0.125), "'image_info' has scale 0.25")
    refuses(KIND, quantised(Q8), wanted(Q8, 0.25), "computes scale 0.125")
    _, boxes, _ = run(KIND, quantised(Q8S, 0.25, 0.25), wanted(Q8S, 0.5))
    assert boxes[0].tolist() == [20, 0, 36, 16]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"anchors": ((4, 0, 0, 4),)}, "'anchors' has boxes with x1 > x2 or y1 > y2"),
        ({"anchors": ((0, 0, 4, 4),) * 2}, "'anchors' has dimensions [2, 4], expected [1, 4]"),
        ({"deltas": np.zeros((1, 1, 3, 8))}, "'bounding_box_deltas' has dimensions [1, 1, 3, 8]"),
        ({"deltas": np.zeros((1, 3, 1, 4))}, "'bounding_box_deltas' has dimensions [1, 3, 1, 4]"),
        ({"images": [[100, 100, 1]]}, "'image_info' has dimensions [1, 3], expected [1, 2]"),
        ({"images": [[100, 100]] * 2}, "'image_info' has dimensions [2, 2], expected [1, 2]"),
    ],
)
def test_malformed_operands_fail(change: dict[str, Any], message: str) -> None:
    refuses(KIND, inputs_of(ROW, **change), OUTPUTS, message)


def test_infinite_corrections_do_not_stop_the_others() -> None:
    deltas = np.zeros((1, 1, 3, 4))
    deltas[0, 0, 1] = [0, 0, math.inf, math.nan]
    scores, _, _ = proposals(ROW, deltas=deltas)
    assert scores == [2, 1]


def test_scores_have_four_dimensions() -> None:
    inputs = inputs_of(ROW)
    inputs[0] = tensor(F32, np.zeros((1, 3, 1)))
    refuses(KIND, inputs, OUTPUTS, "'scores' has rank 3, expected 4")
    rejects(KIND, inputs[:-1], OUTPUTS, "GENERATE_PROPOSALS")
