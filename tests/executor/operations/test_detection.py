"""DETECTION_POSTPROCESSING: decoding, both ways of suppression, unused slots."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, FLOAT16, FLOAT32, I32
from nnburst.hal.enums import OperationType

KIND = OperationType.DETECTION_POSTPROCESSING
#: y, x of the centre, height, width: three squares in a row, 2 high and wide, 10 apart.
ANCHORS = [[1, 1, 2, 2], [1, 11, 2, 2], [1, 21, 2, 2]]
BOXES = [[0, 0, 2, 2], [0, 10, 2, 12], [0, 20, 2, 22]]
#: The second one overlaps with the first by 2 of 6.
NEAR = [[1, 1, 2, 2], [1, 2, 2, 2], [1, 21, 2, 2]]
SCORES = [[9, 1, 2], [9, 6, 5], [9, 3, 4]]


def inputs_of(scores: Any, anchors: Any = ANCHORS, **more: Any) -> list[Given]:
    """`scores` [anchors, classes] of one image, or of several."""
    scores = np.asarray(scores, np.float32)
    scores = scores[None] if scores.ndim == 2 else scores
    kind = more.get("kind", F32)
    number = FLOAT16 if kind == F16 else FLOAT32
    deltas = more.get("deltas", np.zeros((*scores.shape[:2], 4)))
    return [
        tensor(kind, scores),
        tensor(kind, deltas),
        tensor(kind, anchors),
        *(scalar(s, number) for s in more.get("scales", (1.0, 1.0, 1.0, 1.0))),
        scalar(more.get("regular", True)),
        scalar(more.get("most", 4)),
        scalar(more.get("classes", 1)),
        scalar(more.get("each", 4)),
        scalar(more.get("score_threshold", 0.0), number),
        scalar(more.get("iou_threshold", 0.5), number),
        scalar(more.get("background", False)),
    ]


def detect(scores: Any, anchors: Any = ANCHORS, **more: Any) -> list[Any]:
    """Scores, boxes, classes, counts."""
    kind = more.get("kind", F32)
    wanted = [output(kind), output(kind), output(I32), output(I32)]
    return [a.tolist() for a in run(KIND, inputs_of(scores, anchors, **more), wanted)]


@pytest.mark.parametrize("kind", [F32, F16])
def test_regular_suppression_reports_the_best_of_all_classes(kind: Any) -> None:
    scores, boxes, classes, counts = detect(SCORES, kind=kind)
    assert scores == [[6, 5, 4, 3]]
    assert boxes == [[BOXES[1], BOXES[1], BOXES[2], BOXES[2]]]
    assert classes == [[0, 1, 1, 0]]
    assert counts == [4]


def test_classes_count_from_the_background_where_labels_have_it() -> None:
    assert detect(SCORES, background=True)[2] == [[1, 2, 2, 1]]
    assert detect(SCORES, regular=False, background=True)[2] == [[1, 2, 2, 0]]


def test_limit_per_class_comes_before_the_limit_of_all() -> None:
    scores, _, classes, counts = detect(SCORES, each=1)
    assert scores == [[6, 5, 0, 0]]
    assert classes == [[0, 1, 0, 0]]
    assert counts == [2]


def test_unused_slots_are_zero() -> None:
    scores, boxes, classes, counts = detect(SCORES, score_threshold=5.0)
    assert scores == [[6, 0, 0, 0]]  # 5 is not above the threshold
    assert boxes[0][1:] == [[0, 0, 0, 0]] * 3
    assert classes == [[0, 0, 0, 0]]
    assert counts == [1]


def test_overlap_equal_to_the_threshold_suppresses() -> None:
    third = float(np.float32(2) / np.float32(6))
    assert detect(SCORES, NEAR, iou_threshold=third)[0] == [[6, 5, 4, 3]]
    assert detect([[0, 2], [0, 3], [0, 1]], NEAR, iou_threshold=third)[0] == [[3, 1, 0, 0]]
    assert detect([[0, 2], [0, 3], [0, 1]], NEAR, iou_threshold=0.34)[0] == [[3, 2, 1, 0]]


def test_fast_suppression_compares_anchors_by_their_best_class() -> None:
    scores, boxes, classes, counts = detect(SCORES, regular=False)
    assert scores == [[6, 4, 2, 0]]
    assert boxes == [[BOXES[1], BOXES[2], BOXES[0], [0, 0, 0, 0]]]
    assert classes == [[0, 1, 1, 0]]
    assert counts == [3]


def test_fast_suppression_reports_several_classes_of_an_anchor() -> None:
    scores, boxes, classes, counts = detect(SCORES, regular=False, most=2, classes=2)
    assert scores == [[6, 5, 4, 3]]
    assert boxes == [[BOXES[1], BOXES[1], BOXES[2], BOXES[2]]]
    assert classes == [[0, 1, 1, 0]]
    assert counts == [4]


def test_no_more_classes_are_reported_than_there_are_but_room_for_them_is() -> None:
    scores, _, _, counts = detect(SCORES, regular=False, most=1, classes=5)
    assert scores == [[6, 5, 0, 0, 0]]
    assert counts == [2]


def test_fast_suppression_needs_only_the_best_class_above_the_threshold() -> None:
    more: dict[str, Any] = {"regular": False, "classes": 2, "score_threshold": 4.5}
    assert detect(SCORES, most=2, **more)[0] == [[6, 5, 0, 0]]
    assert detect(SCORES, most=2, **(more | {"score_threshold": 5.5}))[0] == [[6, 5, 0, 0]]
    assert detect(SCORES, most=2, **(more | {"score_threshold": 6.0}))[0] == [[0, 0, 0, 0]]


def test_corrections_are_divided_by_their_scales() -> None:
    """Centre moved by 1/4 of the height and 1/2 of the width; height doubled, width halved."""
    ln2 = math.log(2)
    deltas = [[[2.5, 1, 3 * ln2, -4 * ln2, 99]]]
    more: dict[str, Any] = {"scales": (10.0, 2.0, 3.0, 4.0), "deltas": deltas}
    _, boxes, _, _ = detect([[0, 1]], [[8, 20, 4, 8]], most=1, **more)
    np.testing.assert_allclose(boxes, [[[9 - 4, 24 - 2, 9 + 4, 24 + 2]]], rtol=1e-6)


def test_images_are_independent() -> None:
    other = [[9, 0, 0], [9, 0, 8], [9, 0, 0]]
    scores, _, classes, counts = detect([SCORES, other])
    assert scores == [[6, 5, 4, 3], [8, 0, 0, 0]]
    assert classes[1] == [1, 0, 0, 0]
    assert counts == [4, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": (0.0, 1.0, 1.0, 1.0)}, "'scale_y' is not above 0"),
        ({"scales": (1.0, 1.0, 1.0, -1.0)}, "'scale_w' is not above 0"),
        ({"scales": (1.0, math.nan, 1.0, 1.0)}, "'scale_x' is not above 0"),
        ({"score_threshold": -0.1}, "'score_threshold' is below 0"),
        ({"iou_threshold": -0.1}, "'iou_threshold' is below 0"),
        ({"most": 0}, "'max_num_detections' is not above 0"),
        ({"each": 0}, "'max_detections_per_class' is not above 0"),
        ({"regular": False, "classes": 0}, "'max_classes_per_detection' is not above 0"),
        ({"deltas": np.zeros((1, 3, 3))}, "'bounding_box_deltas' has 3 columns"),
        ({"deltas": np.zeros((1, 2, 4))}, "'bounding_box_deltas' has dimensions [1, 2, 4]"),
        ({"anchors": ANCHORS[:2]}, "'anchors' has dimensions [2, 4], expected [3, 4]"),
    ],
)
def test_malformed_operands_fail(change: dict[str, Any], message: str) -> None:
    wanted = [output(F32), output(F32), output(I32), output(I32)]
    refuses(KIND, inputs_of(SCORES, **change), wanted, message)


def test_limits_of_the_other_way_do_not_matter() -> None:
    assert detect(SCORES, classes=0)[3] == [4]
    assert detect(SCORES, regular=False, each=0)[3] == [3]


def test_one_class_is_not_enough() -> None:
    wanted = [output(F32), output(F32), output(I32), output(I32)]
    refuses(KIND, inputs_of([[1], [1], [1]]), wanted, "has 1 classes, expected at least 2")
    rejects(KIND, inputs_of(SCORES)[:-1], wanted, "DETECTION_POSTPROCESSING")
