"""Suppression: what stays and in which order, against a list that is swapped in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.executor.reference.operations.detection import (
    best_first,
    hard_suppression,
    overlap,
    soft_suppression,
)


def test_overlap_is_intersection_over_union() -> None:
    box = np.array([0, 0, 4, 2], np.float32)
    others = [[0, 0, 4, 2], [2, 0, 6, 2], [4, 0, 8, 2], [1, 1, 2, 2], [9, 9, 9, 9]]
    found = overlap(np.array(others, np.float32), box)
    np.testing.assert_allclose(found, [1, 4 / 12, 0, 1 / 8, 0])


def test_overlap_of_two_empty_boxes_is_nan_and_never_suppresses() -> None:
    point = np.array([[1, 1, 1, 1], [1, 1, 1, 1]], np.float32)
    assert np.isnan(overlap(point, point[0])).all()
    scores = np.array([1, 2], np.float32)
    assert hard_suppression(scores, point, 0.0, -1).tolist() == [1, 0]


def swapped_in_place(
    scores: Any, boxes: Any, limit: int, drops: Callable[[float, int], bool]
) -> list[int]:
    """The reference's way: swap picks to the front and what is dropped with the last."""
    order = list(range(len(scores)))
    start, end = 0, len(order)
    while start < end and (limit < 0 or start < limit):
        best = max(range(start, end), key=lambda i: (scores[order[i]], -i))
        order[start], order[best] = order[best], order[start]
        i = start + 1
        while i < end:
            iou = float(overlap(boxes[order[i]][None], boxes[order[start]])[0])
            if drops(iou, order[i]):
                end -= 1
                order[i], order[end] = order[end], order[i]
            else:
                i += 1
        start += 1
    return order[:start]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any]:
    """Scores with many ties, boxes on a coarse grid."""
    count = draw(st.integers(0, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    corners = rng.integers(0, 6, (count, 2)), rng.integers(1, 4, (count, 2))
    boxes = np.concatenate([corners[0], corners[0] + corners[1]], axis=1).astype(np.float32)
    return rng.integers(1, 3, count).astype(np.float32), boxes


@given(case=cases(), threshold=st.sampled_from([0.2, 0.25, 0.5, 1.0]), limit=st.integers(-1, 5))
def test_hard_suppression_picks_in_the_reference_order(
    case: tuple[Any, Any], threshold: float, limit: int
) -> None:
    scores, boxes = case
    expected = swapped_in_place(scores, boxes, limit, lambda iou, _: iou >= threshold)
    assert hard_suppression(scores, boxes, threshold, limit).tolist() == expected


@given(case=cases(), threshold=st.sampled_from([0.0, 0.5, 1.0, 1.5]), limit=st.integers(-1, 5))
def test_soft_suppression_picks_in_the_reference_order(
    case: tuple[Any, Any], threshold: float, limit: int
) -> None:
    scores, boxes = case
    lowered = scores.copy()

    def drops(iou: float, at: int) -> bool:
        lowered[at] *= np.float32(1) - np.float32(iou)
        return bool(lowered[at] < threshold)

    expected = swapped_in_place(lowered, boxes, limit, drops)
    found = soft_suppression(scores, boxes, lambda iou: 1 - iou, threshold, limit)
    assert found.tolist() == expected
    np.testing.assert_array_equal(scores, lowered)


@pytest.mark.parametrize("overlaps", [0.25, 0.24])
def test_overlap_equal_to_the_threshold_suppresses(overlaps: float) -> None:
    boxes = np.array([[0, 0, 5, 1], [3, 0, 8, 1]], np.float32)  # 2 of 8
    scores = np.array([2, 1], np.float32)
    assert len(hard_suppression(scores, boxes, overlaps, -1)) == 1
    assert len(hard_suppression(scores, boxes, 0.26, -1)) == 2


def test_equal_scores_stay_in_order() -> None:
    assert best_first(np.array([1, 3, 2, 3, 1], np.float32)).tolist() == [1, 3, 2, 0, 4]
