"""HEATMAP_MAX_KEYPOINT: maxima between cells, borders, degenerate maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, Q8, Q8S, Q16A
from nnburst.hal.enums import OperationType

KIND = OperationType.HEATMAP_MAX_KEYPOINT


def inputs_of(maps: Any, boxes: Any = None, kind: Any = F32, nchw: bool = False) -> list[Given]:
    """`maps` [boxes, side, side, keypoints]; without boxes a cell is 1 x 1."""
    maps = np.asarray(maps)
    side = maps.shape[1]
    boxes = [[0, 0, side, side]] * len(maps) if boxes is None else boxes
    maps = np.moveaxis(maps, 3, 1) if nchw else maps
    return [tensor(kind, maps), tensor(kind, boxes), scalar(nchw)]


def keypoints(maps: Any, boxes: Any = None, kind: Any = F32, nchw: bool = False) -> Any:
    """Scores [boxes, keypoints], positions [boxes, keypoints, 2]."""
    return run(KIND, inputs_of(maps, boxes, kind, nchw), [output(kind), output(kind)])


def single(values: Any) -> Any:
    """One box, one keypoint."""
    return np.asarray(values, float)[None, :, :, None]


def hill(side: int, x: float, y: float, height: float = 10) -> Any:
    rows, columns = np.indices((side, side))
    return single(height - 2 * (columns - x) ** 2 - (rows - y) ** 2 - (columns - x) * (rows - y))


@pytest.mark.parametrize("nchw", [False, True])
@given(x=st.floats(1, 4), y=st.floats(1, 4))
def test_top_of_a_quadratic_hill_is_found_between_cells(nchw: bool, x: float, y: float) -> None:
    score, position = keypoints(hill(6, x, y), nchw=nchw)
    np.testing.assert_allclose(position, [[[x + 0.5, y + 0.5]]], atol=1e-4)
    np.testing.assert_allclose(score, [[10]], rtol=1e-5)


def test_position_is_relative_to_the_box() -> None:
    _, position = keypoints(hill(4, 1, 2), [[10, 100, 18, 140]])
    np.testing.assert_allclose(position, [[[10 + 1.5 / 4 * 8, 100 + 2.5 / 4 * 40]]], rtol=1e-6)


def test_each_keypoint_of_each_box_has_its_own_map() -> None:
    maps = np.concatenate([hill(4, 1, 2), hill(4, 2, 1, 20)], axis=3)
    maps = np.concatenate([maps, maps[..., ::-1]])
    score, position = keypoints(maps)
    np.testing.assert_allclose(score, [[10, 20], [20, 10]], rtol=1e-5)
    np.testing.assert_allclose(position[1], [[2.5, 1.5], [1.5, 2.5]], atol=1e-5)


def test_flat_map_has_its_maximum_in_the_first_cell() -> None:
    score, position = keypoints(np.full((1, 3, 3, 1), 7.0))
    assert score == 7
    assert position.tolist() == [[[0.5, 0.5]]]


def test_first_of_equal_cells_wins_row_by_row() -> None:
    ties = single([[0, 0, 5], [5, 0, 0], [0, 0, 0]])
    _, position = keypoints(ties)
    assert position[0, 0, 0] > 2
    assert position[0, 0, 1] < 1


def test_neighbours_are_mirrored_at_the_border() -> None:
    """A ridge along the top with its end in the corner: the slopes on both sides are equal."""
    score, position = keypoints(single([[5, 4, 3], [4, 3, 2], [3, 2, 1]]))
    assert position.tolist() == [[[0.5, 0.5]]]
    assert score == 5
    score, position = keypoints(single([[1, 2, 3], [2, 3, 4], [3, 4, 5]]))
    assert position.tolist() == [[[2.5, 2.5]]]
    assert score == 5


def test_maximum_of_two_by_two_cells() -> None:
    _, position = keypoints(single([[1, 2], [3, 4]]))
    assert position.tolist() == [[[1.5, 1.5]]]


def refined(grid: Any, tolerance: float = 1e-5) -> tuple[float, float, float]:
    """Score and distance (x, y) by definition, in float64."""
    g = np.asarray(grid, float)
    b = np.array([g[1, 0] - g[1, 2], g[0, 1] - g[2, 1]]) / 2
    xy = (g[2, 2] - g[2, 0] - g[0, 2] + g[0, 0]) / 4
    a = np.array([[g[1, 0] - 2 * g[1, 1] + g[1, 2], xy], [xy, g[0, 1] - 2 * g[1, 1] + g[2, 1]]])
    determinant = a[0, 0] * a[1, 1] - xy * xy
    if abs(determinant) < tolerance + tolerance * a[0, 0] * a[1, 1]:
        return g[1, 1], 0.0, 0.0
    d = np.linalg.solve(a, b)
    if abs(d).max() > 1.5:
        d = d * 1.5 / abs(d).max()
    return g[1, 1] - b @ d + d @ a @ d / 2, d[0], d[1]


def test_distance_is_at_most_one_and_a_half_cells() -> None:
    """A narrow ridge along the diagonal has its top 5 cells away."""
    grid = [[4.9, 4, 3.1], [4, 5, 5], [3.1, 5, 4.9]]
    score, dx, dy = refined(grid)
    assert max(abs(dx), abs(dy)) == 1.5
    found, position = keypoints(single(grid))
    np.testing.assert_allclose(found, [[score]], rtol=1e-4)
    np.testing.assert_allclose(position, [[[1.5 + dx, 1.5 + dy]]], rtol=1e-4)


@given(seed=st.integers(0, 2**32 - 1))
def test_refinement_follows_the_definition(seed: int) -> None:
    grid = np.random.default_rng(seed).integers(-9, 9, (3, 3))
    grid[1, 1] = 10
    score, dx, dy = refined(grid)
    found, position = keypoints(single(grid))
    np.testing.assert_allclose(found, [[score]], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(position, [[[1.5 + dx, 1.5 + dy]]], rtol=1e-3, atol=1e-3)


def test_determinant_is_compared_with_the_curvature() -> None:
    """Curvatures of -2000 make a product of 4e6: a determinant of 20 is as good as 0, 100 is not."""
    for corner, is_refined in ((-7999.98, False), (-7999.9, True)):
        steep = np.array([[0, 9000, corner], [9100, 10000, 8900], [0, 9000, 0]])
        assert (refined(steep)[1] != 0) == is_refined
        _, found = keypoints(single(steep))
        assert (found[0, 0, 0] != 1.5) == is_refined


def test_float16_refines_only_well_determined_maxima() -> None:
    """Two equal cells of height h have the determinant 2 h²; h = 1/64 is between the limits."""
    small = single([[0, 0, 0], [0, 1, 1], [0, 0, 0]]) * 2.0**-6
    _, wide = keypoints(small)
    _, narrow = keypoints(small, kind=F16)
    assert wide[0, 0, 0] == 2.0
    assert narrow[0, 0, 0] == 1.5
    _, high = keypoints(small * 8, kind=F16)
    assert high[0, 0, 0] == 2.0


def test_nan_is_never_the_maximum() -> None:
    score, position = keypoints(single([[math.nan, 0, 0], [0, 0, 0], [0, 0, 3]]))
    assert score == 3
    assert position.tolist() == [[[2.5, 2.5]]]


@pytest.mark.parametrize(("kind", "zero"), [(Q8, 10), (Q8S, -118)])
def test_quantised_scores_and_positions(kind: Any, zero: int) -> None:
    """A symmetric hill at x = 1, y = 1 of four cells in a box of 8 x 4, in eighths."""
    maps = np.zeros((1, 4, 4, 1))
    maps[0, 1, 1] = 40
    inputs = [
        tensor(kind, maps + zero, 0.5, zero),
        tensor(Q16A, [[16, 8, 80, 40]], 0.125, 0),
        scalar(False),
    ]
    wanted = [output(kind, (), 0.25, zero), output(Q16A, (), 0.125, 0)]
    score, position = run(KIND, inputs, wanted)
    assert score == zero + 80
    assert position.tolist() == [[[16 + 24, 8 + 12]]]
    refuses(KIND, inputs, [wanted[0], output(Q16A, (), 0.25, 0)], "computes scale 0.125")
    inputs[1] = tensor(Q16A, [[16, 8, 80, 40]], 0.25, 0)
    refuses(KIND, inputs, wanted, "'boxes' has scale 0.25")


@pytest.mark.parametrize(
    ("maps", "boxes", "message"),
    [
        (np.zeros((1, 3, 4, 1)), [[0, 0, 1, 1]], "maps of 3 x 4, expected squares"),
        (np.zeros((1, 1, 1, 1)), [[0, 0, 1, 1]], "maps of 1 x 1, expected squares"),
        (np.zeros((1, 3, 3, 1)), [[0, 0, 1, 1]] * 2, "'boxes' has dimensions [2, 4]"),
        (np.zeros((1, 3, 3, 1)), [[0, 0, 1]], "'boxes' has dimensions [1, 3]"),
        (np.zeros((1, 3, 3, 1)), [[1, 0, 0, 1]], "'boxes' has boxes with x1 > x2 or y1 > y2"),
        (np.zeros((1, 3, 3, 1)), [[0, 1, 1, 0]], "'boxes' has boxes with x1 > x2 or y1 > y2"),
    ],
)
def test_malformed_operands_fail(maps: Any, boxes: Any, message: str) -> None:
    refuses(KIND, inputs_of(maps, boxes), [output(F32), output(F32)], message)


def test_heatmap_has_four_dimensions() -> None:
    inputs = [tensor(F32, np.zeros((3, 3, 1))), tensor(F32, [[0, 0, 1, 1]]), scalar(False)]
    refuses(KIND, inputs, [output(F32), output(F32)], "'heatmap' has rank 3, expected 4")
    rejects(KIND, inputs[:2], [output(F32), output(F32)], "HEATMAP_MAX_KEYPOINT")
