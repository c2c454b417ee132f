"""ROI_ALIGN and ROI_POOLING: by hand, against loops over samples and cells, and what both refuse."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.exact_integers import c_mbqm, c_multiplier, half_away
from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, FLOAT16, FLOAT32, I32, Q8, Q8S, Q16A
from nnburst.hal.enums import OperationType

ALIGN, POOL = OperationType.ROI_ALIGN, OperationType.ROI_POOLING

seeds = st.integers(0, 2**32 - 1)


def inputs_of(
    kind: OperationType, x: Given, roi: Given, batches: Any = None, **more: Any
) -> list[Given]:
    """Maps are NHWC; `size` is (height, width) of the grid, `strides` and `ratio` likewise."""
    nchw = more.get("nchw", False)
    assert x.array is not None
    assert roi.array is not None
    if nchw:
        x = tensor(x.type, np.moveaxis(x.array, 3, 1), x.scale, x.zero_point)
    number = FLOAT16 if x.type == F16 else FLOAT32
    ratio = more.get("ratio", (0, 0)) if kind == ALIGN else ()
    return [
        x,
        roi,
        tensor(I32, [0] * len(roi.array) if batches is None else batches),
        *(scalar(s) for s in more.get("size", (2, 2))),
        *(scalar(s, number) for s in more.get("strides", (1.0, 1.0))),
        *(scalar(r) for r in ratio),
        scalar(nchw),
    ]


def regions(kind: OperationType, x: Any, roi: Any, batches: Any = None, **more: Any) -> Any:
    type_ = more.pop("type_", F32)
    inputs = inputs_of(kind, tensor(type_, x), tensor(type_, roi), batches, **more)
    [y] = run(kind, inputs, [output(type_)])
    return np.moveaxis(y, 1, 3) if more.get("nchw") else y


def plane(height: int, width: int) -> Any:
    """A map whose value at (y, x) is 10 y + x."""
    y, x = np.indices((height, width))
    return (10.0 * y + x)[None, :, :, None]


# ROI_ALIGN


@pytest.mark.parametrize("type_", [F32, F16])
def test_align_averages_a_plane_at_the_centres_of_the_cells(type_: Any) -> None:
    """From 1 to 5 in two cells: centres at 2 and 4; from 0 to 3: at 0.75 and 2.25."""
    y = regions(ALIGN, plane(5, 7), [[1, 0, 5, 3]], type_=type_)
    np.testing.assert_allclose(y[0, :, :, 0], [[9.5, 11.5], [24.5, 26.5]], rtol=2e-3)


def test_align_takes_as_many_samples_as_asked_for() -> None:
    """A cell from 0 to 4 on the squares 0, 1, 4, 9, 16: sampled at 2, or at 1 and 3."""
    squares = (np.arange(5.0) ** 2)[None, None, :, None]
    for ratio, expected in (
        ((1, 1), 4),
        ((1, 2), (1 + 9) / 2),
        ((1, 4), (0.5 + 2.5 + 6.5 + 12.5) / 4),
    ):
        y = regions(ALIGN, squares, [[0, 0, 4, 1]], size=(1, 1), ratio=ratio)
        assert y == expected


def test_align_takes_one_sample_for_each_cell_of_the_map_where_the_ratio_is_0() -> None:
    squares = (np.arange(8.0) ** 2)[None, None, :, None]
    for width, ratio in ((4.0, 4), (3.5, 4), (3.0, 3), (0.5, 1)):
        roi = [[0, 0, width, 1]]
        adaptive = regions(ALIGN, squares, roi, size=(1, 1))
        assert adaptive == regions(ALIGN, squares, roi, size=(1, 1), ratio=(1, ratio))


def test_align_of_a_tiny_region_is_one_cell_wide() -> None:
    y = regions(ALIGN, plane(4, 4), [[1, 2, 1, 2]], size=(1, 1), ratio=(1, 1))
    assert y == 10 * 2.5 + 1.5


def test_align_repeats_the_last_row_and_column() -> None:
    """The region ends at the border of 3 x 3 cells: samples at 2.5 see the cells at 2."""
    y = regions(ALIGN, plane(3, 3), [[1, 1, 3, 3]], ratio=(1, 1))
    assert y[0, :, :, 0].tolist() == [[16.5, 17], [21.5, 22]]
    assert regions(ALIGN, plane(3, 3), [[3, 3, 3, 3]], size=(1, 1)) == 22


def test_strides_divide_coordinates_height_first() -> None:
    a = regions(ALIGN, plane(4, 6), [[2, 4, 10, 12]], strides=(4.0, 2.0))
    b = regions(ALIGN, plane(4, 6), [[1, 1, 5, 3]])
    np.testing.assert_array_equal(a, b)


def align_by_definition(x: Any, roi: Any, batches: Any, size: Any, ratio: Any, weigh: Any) -> Any:
    """Float32 coordinates, one sample after the other; `weigh` sums up four weighted cells."""
    f = np.float32
    limits = x.shape[1:3]
    result = np.empty((len(roi), *size, x.shape[3]), object)
    for n, region in enumerate(np.asarray(roi, f)):
        starts, ends = (region[1], region[0]), (region[3], region[2])
        axes = []
        for axis in range(2):
            step = max(f(ends[axis] - starts[axis]), f(1)) / f(size[axis])
            count = ratio[axis] or math.ceil(step)
            own = []
            for i in range(size[axis]):
                points = [
                    step * f(i) + starts[axis] + step / f(count) / f(2) + step / f(count) * f(k)
                    for k in range(count)
                ]
                own.append([_neighbours(p, limits[axis]) for p in points])
            axes.append(own)
        for i, j in np.ndindex(*size):
            samples = [(y, xs) for y in axes[0][i] for xs in axes[1][j]]
            for c in range(x.shape[3]):
                cells = x[batches[n], :, :, c]
                result[n, i, j, c] = (sum(weigh(cells, y, xs) for y, xs in samples), len(samples))
    return result


def _neighbours(point: Any, limit: int) -> tuple[int, int, Any]:
    before = math.floor(point)
    if before >= limit - 1:
        return limit - 1, limit - 1, np.float32(0)
    return before, before + 1, point - np.float32(before)


def _corners(cells: Any, y: Any, x: Any) -> list[tuple[Any, Any]]:
    one = np.float32(1)
    return [
        (cells[y[0], x[0]], (one - x[2]) * (one - y[2])),
        (cells[y[0], x[1]], x[2] * (one - y[2])),
        (cells[y[1], x[0]], (one - x[2]) * y[2]),
        (cells[y[1], x[1]], x[2] * y[2]),
    ]


def random_regions(rng: np.random.Generator, height: int, width: int) -> tuple[Any, Any]:
    """Regions within the map in eighths, and their batches."""
    corners = [np.sort(rng.integers(0, 8 * e + 1, (3, 2)), axis=1) for e in (width, height)]
    roi = np.stack([corners[0], corners[1]], axis=2).reshape(3, 4) / 8
    return roi, rng.integers(0, 2, 3)


@given(
    seed=seeds,
    size=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    ratio=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    nchw=st.booleans(),
)
def test_align_follows_the_definition(seed: int, size: Any, ratio: Any, nchw: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (2, 4, 5, 2)).astype(np.float32)
    roi, batches = random_regions(rng, 4, 5)
    y = regions(ALIGN, x, roi, batches, size=size, ratio=ratio, nchw=nchw)

    def weigh(cells: Any, line: Any, column: Any) -> Any:
        return sum(float(v) * float(w) for v, w in _corners(cells, line, column))

    sums = align_by_definition(x, roi, batches, size, ratio, weigh)
    expected = np.vectorize(lambda s: s[0] / s[1], otypes=[float])(sums)
    np.testing.assert_allclose(y, expected, atol=1e-5)


@given(
    seed=seeds,
    size=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    ratio=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    zero=st.integers(0, 255),
    kind=st.sampled_from([Q8, Q8S]),
)
def test_quantised_align_weighs_in_steps_of_a_255th(
    seed: int, size: Any, ratio: Any, zero: int, kind: Any
) -> None:
    rng = np.random.default_rng(seed)
    offset = 128 if kind == Q8S else 0
    x = rng.integers(0, 256, (2, 4, 5, 2))
    roi, batches = random_regions(rng, 4, 5)
    scale, out_scale, out_zero = np.float32(0.1), np.float32(0.07), 90
    given = tensor(kind, x - offset, float(scale), zero - offset)
    inputs = inputs_of(
        ALIGN, given, tensor(Q16A, roi * 8, 0.125, 0), batches, size=size, ratio=ratio
    )
    [y] = run(ALIGN, inputs, [output(kind, (), float(out_scale), out_zero - offset)])
    step = np.float32(1) / np.float32(255)

    def weigh(cells: Any, line: Any, column: Any) -> int:
        corners = _corners(cells, line, column)
        return sum(half_away(Fraction(float(w / step))) * (int(v) - zero) for v, w in corners)

    def stored(found: Any) -> int:
        multiplier = c_multiplier(float(scale * step / out_scale / np.float32(found[1])))
        return int(np.clip(c_mbqm(found[0], *multiplier) + out_zero, 0, 255)) - offset

    sums = align_by_definition(x, roi, batches, size, ratio, weigh)
    np.testing.assert_array_equal(y, np.vectorize(stored, otypes=[int])(sums))


def test_quantised_align_needs_a_multiplier_below_1() -> None:
    inputs = inputs_of(
        ALIGN, tensor(Q8, np.ones((1, 2, 2, 1)), 1.0, 0), tensor(Q16A, [[0, 0, 8, 8]], 0.125, 0)
    )
    refuses(ALIGN, inputs, [output(Q8, (), 0.003, 0)], "must lie between 0 and 1")


def test_align_of_nan_and_infinity_leaves_other_cells_alone() -> None:
    x = plane(4, 4)
    x[0, 0, 0, 0], x[0, 3, 3, 0] = math.nan, math.inf
    y = regions(ALIGN, x, [[0, 0, 1, 1], [1, 1, 2, 2]], size=(1, 1), ratio=(1, 1))
    assert np.isnan(y[0]).all()
    assert y[1] == 16.5


@pytest.mark.parametrize("ratio", [-1, 65537])
def test_sampling_ratio_has_bounds(ratio: int) -> None:
    inputs = inputs_of(
        ALIGN, tensor(F32, plane(4, 4)), tensor(F32, [[0, 0, 2, 2]]), ratio=(1, ratio)
    )
    refuses(ALIGN, inputs, [output(F32)], f"'width_ratio' is {ratio}, expected 0 to 32768")


# ROI_POOLING


@pytest.mark.parametrize("type_", [F32, F16])
def test_pooling_includes_the_rounded_end(type_: Any) -> None:
    """Columns 1 to 3.4, rounded 1 to 3, are three wide: windows [1, 2.5) and [2.5, 4)."""
    y = regions(POOL, plane(4, 6), [[1, 0, 3.4, 1]], type_=type_)
    assert y[0, :, :, 0].tolist() == [[2, 3], [12, 13]]


def test_pooling_rounds_halves_away_from_zero() -> None:
    assert regions(POOL, plane(4, 6), [[0.5, 0, 2.5, 0]], size=(1, 1)) == 3
    assert regions(POOL, plane(4, 6), [[0.5, 0, 2.5, 0]], size=(1, 3))[0, 0, :, 0].tolist() == [
        1,
        2,
        3,
    ]


def test_pooling_window_behind_the_map_is_empty() -> None:
    """A region that starts at the right border has no cell left."""
    x = plane(3, 3) - 100
    assert regions(POOL, x, [[3, 0, 3, 0]], size=(1, 1)) == 0
    inputs = inputs_of(
        POOL,
        tensor(Q8, plane(3, 3), 0.5, 77),
        tensor(Q16A, [[24, 0, 24, 0]], 0.125, 0),
        size=(1, 1),
    )
    [y] = run(POOL, inputs, [output(Q8, (), 0.5, 77)])
    assert y == 77


def pool_by_definition(x: Any, roi: Any, batches: Any, size: Any) -> Any:
    f = np.float32
    result = np.zeros((len(roi), *size, x.shape[3]), x.dtype)
    for n, region in enumerate(roi):
        first = [half_away(Fraction(float(v))) for v in region]
        for i, j in np.ndindex(*size):
            window = []
            for at, low, high, count, limit in (
                (i, first[1], first[3], size[0], x.shape[1]),
                (j, first[0], first[2], size[1], x.shape[2]),
            ):
                step = f(max(high - low + 1, 1)) / f(count)
                begin = math.floor(step * f(at) + f(low))
                end = math.ceil(step * f(at + 1) + f(low))
                window.append(slice(min(begin, limit), min(end, limit)))
            cells = x[batches[n]][tuple(window)]
            if cells.shape[0] and cells.shape[1]:
                result[n, i, j] = cells.max(axis=(0, 1))
    return result


@given(
    seed=seeds,
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    nchw=st.booleans(),
    kind=st.sampled_from([Q8, Q8S, F32]),
)
def test_pooling_follows_the_definition(seed: int, size: Any, nchw: bool, kind: Any) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 127, (2, 4, 5, 2))
    roi, batches = random_regions(rng, 4, 5)
    scale = () if kind == F32 else (0.5, 0)
    boxes = tensor(F32, roi) if kind == F32 else tensor(Q16A, roi * 8, 0.125, 0)
    inputs = inputs_of(POOL, tensor(kind, x, *scale), boxes, batches, size=size, nchw=nchw)
    [y] = run(POOL, inputs, [output(kind, (), *scale)])
    expected = pool_by_definition(x, roi, batches, size)
    np.testing.assert_array_equal(np.moveaxis(y, 1, 3) if nchw else y, expected)


def test_pooling_keeps_the_quantisation_of_its_input() -> None:
    inputs = inputs_of(
        POOL, tensor(Q8, plane(3, 3), 0.5, 7), tensor(Q16A, [[0, 0, 8, 8]], 0.125, 0)
    )
    refuses(POOL, inputs, [output(Q8, (), 0.25, 7)], "computes scale 0.5")


# What both refuse.


@pytest.mark.parametrize("kind", [ALIGN, POOL])
@pytest.mark.parametrize(
    ("roi", "message"),
    [
        ([[2, 0, 1, 1]], "'roi' has boxes with x1 > x2 or y1 > y2: [0]"),
        ([[0, 2, 1, 1]], "'roi' has boxes with x1 > x2 or y1 > y2: [0]"),
        ([[0, 0, 1, 1], [-1, 0, 1, 1]], "'roi' has regions outside of the feature map: [1]"),
        ([[0, -0.5, 1, 1]], "'roi' has regions outside of the feature map: [0]"),
        ([[0, 0, 12.5, 1]], "'roi' has regions outside of the feature map: [0]"),
        ([[0, 0, 1, 8.25]], "'roi' has regions outside of the feature map: [0]"),
        ([[0, 0, math.nan, 1]], "'roi' has boxes"),
        ([[0, 0, 1]], "'roi' has dimensions [1, 3], expected [1, 4]"),
    ],
)
def test_regions_lie_within_the_map(kind: OperationType, roi: Any, message: str) -> None:
    """The map is 4 high and 6 wide, with strides of 2."""
    inputs = inputs_of(kind, tensor(F32, plane(4, 6)), tensor(F32, roi), strides=(2.0, 2.0))
    refuses(kind, inputs, [output(F32)], message)


@pytest.mark.parametrize("kind", [ALIGN, POOL])
def test_regions_may_end_at_the_border(kind: OperationType) -> None:
    y = regions(kind, plane(4, 6), [[0, 0, 12, 8]], strides=(2.0, 2.0))
    assert y.shape == (1, 2, 2, 1)


@pytest.mark.parametrize("kind", [ALIGN, POOL])
@pytest.mark.parametrize("batches", [[2], [-1]])
def test_batch_indexes_are_those_of_maps(kind: OperationType, batches: Any) -> None:
    x = tensor(F32, np.zeros((2, 4, 6, 1)))
    inputs = inputs_of(kind, x, tensor(F32, [[0, 0, 1, 1]]), batches)
    refuses(kind, inputs, [output(F32)], "'batches' has an index outside [0, 2)")


@pytest.mark.parametrize("kind", [ALIGN, POOL])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": (0, 2)}, "'output_height' is 0"),
        ({"size": (2, -1)}, "'output_width' is -1"),
        ({"strides": (0.0, 1.0)}, "'height_stride' is 0.0"),
        ({"strides": (1.0, -1.0)}, "'width_stride' is -1.0"),
        ({"strides": (math.nan, 1.0)}, "'height_stride' is nan"),
        ({"batches": [0, 0]}, "'batches' has dimensions [2], expected [1]"),
    ],
)
def test_sizes_and_strides_are_positive(
    kind: OperationType, change: dict[str, Any], message: str
) -> None:
    x, roi = tensor(F32, plane(4, 6)), tensor(F32, [[0, 0, 1, 1]])
    refuses(kind, inputs_of(kind, x, roi, **change), [output(F32)], message)


@pytest.mark.parametrize("kind", [ALIGN, POOL])
def test_quantised_regions_are_in_eighths(kind: OperationType) -> None:
    for scale, zero in ((0.25, 0), (0.125, 1)):
        x, roi = tensor(Q8, plane(4, 4), 0.5, 0), tensor(Q16A, [[1, 1, 8, 8]], scale, zero)
        message = f"'roi' has scale {scale} and zero point {zero}, expected 0.125 and 0"
        refuses(kind, inputs_of(kind, x, roi), [output(Q8, (), 0.5, 0)], message)


@pytest.mark.parametrize("kind", [ALIGN, POOL])
def test_model_needs_all_operands_of_matching_types(kind: OperationType) -> None:
    inputs = inputs_of(kind, tensor(F32, plane(4, 4)), tensor(F32, [[0, 0, 1, 1]]))
    rejects(kind, inputs[:-1], [output(F32)], kind.name)
    rejects(
        kind, [inputs[0], tensor(Q16A, [[0] * 4], 0.125), *inputs[2:]], [output(F32)], kind.name
    )
    refuses(kind, [tensor(F32, np.zeros((4, 4, 1))), *inputs[1:]], [output(F32)], "has rank 3")
