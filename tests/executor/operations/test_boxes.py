"""AXIS_ALIGNED_BBOX_TRANSFORM and BOX_WITH_NMS_LIMIT."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, FLOAT16, I32, Q8, Q8S, Q16A, Q16S
from nnburst.hal.enums import OperationType

TRANSFORM = OperationType.AXIS_ALIGNED_BBOX_TRANSFORM
LIMIT = OperationType.BOX_WITH_NMS_LIMIT
LN2 = math.log(2)


def transform_inputs(
    roi: Any = ((2, 2, 6, 4),), deltas: Any = ((0, 0, 0, 0),), batches: Any = (0,), **more: Any
) -> list[Given]:
    kind = more.get("kind", F32)
    image = tensor(kind, more.get("images", ((8, 16),)))
    return [tensor(kind, roi), tensor(kind, deltas), tensor(I32, batches), image]


@pytest.mark.parametrize("kind", [F32, F16])
@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ((0, 0, 0, 0), (2, 2, 6, 4)),
        ((0.5, -0.5, 0, 0), (4, 1, 8, 3)),  # half a width right, half a height up
        ((0, 0, LN2, -LN2), (0, 2.5, 8, 3.5)),  # twice as wide, half as high
        ((9, 9, 0, 0), (16, 8, 16, 8)),  # clipped to the image
        ((-9, -9, 0, 0), (0, 0, 0, 0)),
    ],
)
def test_box_is_moved_stretched_and_clipped(kind: Any, deltas: Any, expected: Any) -> None:
    inputs = transform_inputs(deltas=(deltas,), kind=kind)
    [y] = run(TRANSFORM, inputs, [output(kind)])
    np.testing.assert_allclose(y, [expected], rtol=1e-5 if kind == F32 else 2e-3)


def test_each_class_and_each_box_has_its_own_correction() -> None:
    deltas = [[0, 0, 0, 0, 0.25, 0, 0, 0], [0, 0.5, 0, 0, 0, 0, 0, 0]]
    roi = [[0, 0, 4, 4], [0, 0, 4, 4]]
    images = [[3, 100], [100, 3]]
    [y] = run(TRANSFORM, transform_inputs(roi, deltas, (1, 0), images=images), [output(F32)])
    np.testing.assert_allclose(y, [[0, 0, 3, 4, 1, 0, 3, 4], [0, 2, 4, 3, 0, 0, 4, 3]])


@pytest.mark.parametrize(("kind", "zero"), [(Q8, 100), (Q8S, -28)])
def test_quantised_boxes_are_in_eighths(kind: Any, zero: int) -> None:
    """A correction of 10 steps of 0.05 is half a width: from [2, 6] to [4, 8]."""
    inputs = [
        tensor(Q16A, [[16, 16, 48, 32]], 0.125, 0),
        tensor(kind, [[zero + 10, zero, zero, zero]], 0.05, zero),
        tensor(I32, [0]),
        tensor(Q16A, [[64, 128]], 0.125, 0),
    ]
    [y] = run(TRANSFORM, inputs, [output(Q16A, (1, 4), 0.125, 0)])
    assert y.tolist() == [[32, 16, 64, 32]]
    refuses(TRANSFORM, inputs, [output(Q16A, (1, 4), 0.25, 0)], "computes scale 0.125")
    for at, scale, name in ((0, 0.25, "roi"), (3, 0.25, "image_info"), (0, 0.125, "roi")):
        wrong = list(inputs)
        zero_point = 1 if scale == 0.125 else 0
        wrong[at] = tensor(Q16A, inputs[at].array, scale, zero_point)
        wanted = [output(Q16A, (1, 4), 0.125, 0)]
        refuses(TRANSFORM, wrong, wanted, f"'{name}' has scale {scale} and zero point {zero_point}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": (1,)}, "'batches' has an index outside [0, 1)"),
        ({"batches": (-1,)}, "'batches' has an index outside [0, 1)"),
        ({"roi": ((6, 2, 2, 4),)}, "'roi' has boxes with x1 > x2 or y1 > y2: [0]"),
        ({"roi": ((2, 4, 6, 2),)}, "'roi' has boxes with x1 > x2 or y1 > y2: [0]"),
        ({"roi": ((math.nan, 2, 6, 4),)}, "'roi' has boxes"),
        ({"roi": ((2, 2, 6),)}, "'roi' has dimensions [1, 3], expected [1, 4]"),
        ({"deltas": ((0, 0, 0, 0, 0),)}, "'bounding_box_deltas' has 5 columns"),
        ({"deltas": ((0,) * 4,) * 2}, "'bounding_box_deltas' has dimensions [2, 4]"),
        ({"deltas": (0, 0, 0, 0)}, "'bounding_box_deltas' has rank 1, expected 2"),
        ({"batches": (0, 0)}, "'batches' has dimensions [2], expected [1]"),
        ({"images": ((8, 16, 1),)}, "'image_info' has dimensions [1, 3], expected [1, 2]"),
    ],
)
def test_malformed_boxes_fail(change: dict[str, Any], message: str) -> None:
    refuses(TRANSFORM, transform_inputs(**change), [output(F32)], message)


def test_types_of_boxes_and_corrections_belong_together() -> None:
    inputs = transform_inputs()
    rejects(TRANSFORM, [tensor(F16, [[0] * 4]), *inputs[1:]], [output(F32)], "TRANSFORM")
    rejects(TRANSFORM, inputs[:3], [output(F32)], "TRANSFORM")


# BOX_WITH_NMS_LIMIT. Class 0 is the background; three boxes in a row, each 4 wide and 2 apart from
# the next, overlap by 2 of 6 (1/3).

APART = [[0, 0, 4, 1], [10, 0, 14, 1], [20, 0, 24, 1]]
NEAR = [[0, 0, 4, 1], [2, 0, 6, 1], [20, 0, 24, 1]]
THIRD = float(np.float32(2) / np.float32(6))


def limit_inputs(scores: Any, boxes: Any, batches: Any = None, **more: Any) -> list[Given]:
    """`scores` [n, classes] and `boxes` [n, 4], the same for every class."""
    scores = np.asarray(scores, np.float32)
    roi = np.tile(np.asarray(boxes, np.float32), scores.shape[1])
    real = more.get("kind", F32)
    number = FLOAT16 if real == F16 else None
    return [
        tensor(real, scores),
        tensor(real, more.get("roi", roi)),
        tensor(I32, [0] * len(scores) if batches is None else batches),
        scalar(more.get("score_threshold", 0.0), number),
        scalar(more.get("limit", -1)),
        scalar(more.get("kernel", 0)),
        scalar(more.get("iou_threshold", 0.3), number),
        scalar(more.get("sigma", 0.5), number),
        scalar(more.get("nms_threshold", 0.01), number),
    ]


def limited(scores: Any, boxes: Any, batches: Any = None, **more: Any) -> list[Any]:
    """Scores, boxes' left edges, classes, batches."""
    kind = more.get("kind", F32)
    wanted = [output(kind), output(kind), output(I32), output(I32)]
    found = run(LIMIT, limit_inputs(scores, boxes, batches, **more), wanted)
    return [found[0].tolist(), found[1][:, 0].tolist(), found[2].tolist(), found[3].tolist()]


def columns(*scores: float) -> Any:
    """Scores of class 1, with a background that would win."""
    return [[9, s] for s in scores]


def test_scores_above_the_threshold_are_selected_best_first_without_background() -> None:
    found = limited(columns(1, 3, 2), APART)
    assert found == [[3, 2, 1], [10, 20, 0], [1, 1, 1], [0, 0, 0]]


def test_score_equal_to_the_threshold_is_left_out() -> None:
    assert limited(columns(1, 3, 2), APART, score_threshold=2.0)[0] == [3]


def test_hard_kernel_drops_what_overlaps() -> None:
    assert limited(columns(1, 3, 2), NEAR)[1] == [2, 20]
    assert limited(columns(1, 3, 2), NEAR, iou_threshold=THIRD)[1] == [2, 20]  # not below it
    assert limited(columns(1, 3, 2), NEAR, iou_threshold=0.34)[1] == [2, 20, 0]


def test_hard_kernel_keeps_a_score_of_zero_that_is_not_below_the_nms_threshold() -> None:
    found = limited(columns(1, 3, 2), NEAR, nms_threshold=0.0)
    assert found[:2] == [[3, 2, 0], [2, 20, 0]]


def test_linear_kernel_lowers_scores_by_the_overlap() -> None:
    found = limited(columns(1.5, 3, 0.5), NEAR, kernel=1)
    np.testing.assert_allclose(found[0], [3, 1, 0.5])
    assert found[1] == [2, 0, 20]
    assert limited(columns(1.5, 3, 0.5), NEAR, kernel=1, iou_threshold=0.34)[0] == [3, 1.5, 0.5]


def test_gaussian_kernel_ignores_the_iou_threshold() -> None:
    found = limited(columns(1.5, 3, 0.5), NEAR, kernel=2, iou_threshold=0.9)
    np.testing.assert_allclose(found[0], [3, 1.5 * math.exp(-1 / 9 / 0.5), 0.5], rtol=1e-6)


def test_score_equal_to_the_nms_threshold_stays() -> None:
    lowered = float(np.float32(1.5) * (np.float32(1) - np.float32(THIRD)))
    assert len(limited(columns(1.5, 3), NEAR[:2], kernel=1, nms_threshold=lowered)[0]) == 2
    above = float(np.nextafter(np.float32(lowered), np.float32(9)))
    assert len(limited(columns(1.5, 3), NEAR[:2], kernel=1, nms_threshold=above)[0]) == 1


def test_nms_threshold_does_not_drop_scores_that_nothing_lowers_before_the_first_pick() -> None:
    assert limited(columns(1), APART[:1], nms_threshold=5.0)[0] == [1]
    assert limited(columns(1, 2), APART[:2], nms_threshold=5.0)[0] == [2]


def test_limit_holds_for_each_class_and_for_all_classes_together() -> None:
    scores = [[9, 1, 6], [9, 3, 5], [9, 2, 4]]
    found = limited(scores, APART, limit=4)
    assert found[0] == [3, 6, 5, 4]  # sorted by class after the best four are taken
    assert found[2] == [1, 2, 2, 2]
    assert limited(scores, APART, limit=1)[0] == [6]
    assert limited(scores, APART, limit=0)[0] == []


def test_each_run_of_equal_batch_indexes_is_a_group() -> None:
    found = limited(columns(1, 3, 2), NEAR, batches=[5, 2, 2])
    assert found == [[1, 3, 2], [0, 2, 20], [1, 1, 1], [5, 2, 2]]
    assert limited(columns(1, 3, 2), [NEAR[0]] * 3, batches=[0, 1, 0])[3] == [0, 1, 0]


def test_nothing_selected_gives_empty_outputs() -> None:
    wanted = [output(F32), output(F32), output(I32), output(I32)]
    found = run(LIMIT, limit_inputs(columns(1, 2), APART[:2], score_threshold=5.0), wanted)
    assert [a.shape for a in found] == [(0,), (0, 4), (0,), (0,)]


@pytest.mark.parametrize(("kind", "zero"), [(Q8, 0), (Q8S, -128)])
def test_quantised_scores_keep_their_scale_and_boxes_their_bytes(kind: Any, zero: int) -> None:
    inputs = limit_inputs(columns(1.5, 3, 0.5), NEAR, kernel=1)
    inputs[0] = tensor(kind, np.array([[200, 30], [200, 60], [200, 10]]) + zero, 0.05, zero)
    inputs[1] = tensor(Q16A, np.tile(np.array(NEAR) * 8, 2), 0.125, 0)
    wanted = [output(kind, (0,), 0.05, zero), output(Q16A, (0, 4), 0.125, 0)]
    wanted += [output(I32), output(I32)]
    scores, boxes, _, _ = run(LIMIT, inputs, wanted)
    assert (scores.astype(int) - zero).tolist() == [60, 20, 10]
    assert boxes[:, 0].tolist() == [16, 0, 160]
    other = [output(kind, (0,), 0.1, zero), *wanted[1:]]
    refuses(LIMIT, inputs, other, "computes scale")
    inputs[1] = tensor(Q16A, inputs[1].array, 0.25, 0)
    refuses(LIMIT, inputs, wanted, "'roi' has scale 0.25")


def test_float16_models_select_in_float32() -> None:
    found = limited(columns(1.5, 3, 0.5), NEAR, kernel=1, kind=F16)
    assert found[0] == [3, 1, 0.5]


def test_reversed_boxes_fail_among_as_many_boxes_as_the_group_has_rows() -> None:
    roi = np.tile(np.array(APART[:2], np.float32), 2)
    for row, column, fails in ((0, 0, True), (0, 4, True), (1, 0, False), (1, 4, False)):
        wrong = roi.copy()
        wrong[row, column] = 99
        inputs = limit_inputs(columns(1, 2), APART[:2], roi=wrong)
        wanted = [output(F32), output(F32), output(I32), output(I32)]
        if fails:
            refuses(LIMIT, inputs, wanted, "'roi' has boxes with x1 > x2 or y1 > y2")
        else:
            run(LIMIT, inputs, wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": 3}, "'soft_nms_kernel' is 3, expected 0 to 2"),
        ({"kernel": -1}, "'soft_nms_kernel' is -1"),
        ({"roi": np.zeros((3, 4))}, "'roi' has dimensions [3, 4], expected [3, 8]"),
        ({"batches": [0, 0]}, "'batches' has dimensions [2], expected [3]"),
    ],
)
def test_malformed_operands_fail(change: dict[str, Any], message: str) -> None:
    wanted = [output(F32), output(F32), output(I32), output(I32)]
    refuses(LIMIT, limit_inputs(columns(1, 3, 2), APART, **change), wanted, message)


def test_one_class_is_not_enough() -> None:
    wanted = [output(F32), output(F32), output(I32), output(I32)]
    refuses(
        LIMIT, limit_inputs([[1], [2]], APART[:2]), wanted, "has 1 classes, expected at least 2"
    )
    rejects(LIMIT, limit_inputs([[1], [2]], APART[:2])[:8], wanted, "BOX_WITH_NMS_LIMIT")
    inputs = limit_inputs([[1], [2]], APART[:2])
    inputs[1] = tensor(Q16S, inputs[1].array, 0.125, 0)
    rejects(LIMIT, inputs, wanted, "BOX_WITH_NMS_LIMIT")


@given(seed=st.integers(0, 2**32 - 1), kernel=st.integers(0, 2), limit=st.integers(-1, 4))
def test_selection_is_ordered_by_class_then_score_and_obeys_the_limit(
    seed: int, kernel: int, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    start = rng.uniform(0, 8, (9, 2))
    boxes = np.concatenate([start, start + rng.uniform(1, 8, (9, 2))], axis=1)
    batches = np.repeat([0, 1, 2], 3)
    scores, _, classes, groups = limited(
        rng.uniform(0, 1, (9, 3)), boxes, batches, kernel=kernel, limit=limit, score_threshold=0.2
    )
    keys = list(zip(groups, classes, [-s for s in scores], strict=True))
    assert keys == sorted(keys)
    assert set(classes) <= {1, 2}
    assert limit < 0 or max((groups.count(g) for g in groups), default=0) <= limit
