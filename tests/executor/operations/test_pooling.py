from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.exact_integers import c_divide
from executor.plain_windows import Plain, laid_out, pool, same_padding
from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.reference.operations import pooling
from nnburst.hal.enums import OperandType, OperationType

AVERAGE, MAX, L2 = (
    OperationType.AVERAGE_POOL_2D,
    OperationType.MAX_POOL_2D,
    OperationType.L2_POOL_2D,
)
F32, F16 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16
Q8, Q8S = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED

small = st.integers(1, 3)


def rounded_mean(cells: list[Any]) -> int:
    total, half = int(sum(int(c) for c in cells)), len(cells) // 2
    return c_divide(total + half if total > 0 else total - half, len(cells))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Plain, tuple[int, int]]:
    """An image of integers from -128 to 127 (NHWC), a window and its extents."""
    extents = draw(small), draw(small)
    pads = [draw(st.integers(0, f - 1)) for f in (extents[0], extents[0], extents[1], extents[1])]
    size = [
        draw(st.integers(max(1, f - head - tail), 6))
        for f, head, tail in zip(extents, pads[::2], pads[1::2], strict=True)
    ]
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    image = random.integers(-128, 128, (draw(small), *size, draw(small)))
    return image, Plain((draw(small), draw(small)), *pads), extents


def scalars(
    plain: Plain, extents: tuple[int, int], activation: int = 0, nchw: bool = False
) -> list[Given]:
    numbers = [plain.left, plain.right, plain.top, plain.bottom, plain.stride[1], plain.stride[0]]
    return [*(scalar(n) for n in [*numbers, extents[1], extents[0], activation]), scalar(nchw)]


@pytest.mark.parametrize(
    ("kind", "reduce"),
    [
        (AVERAGE, lambda cells: sum(cells) / len(cells)),
        (MAX, max),
        (L2, lambda cells: math.sqrt(sum(c * c for c in cells) / len(cells))),
    ],
)
@given(cases(), st.booleans(), st.sampled_from([(F32, 1e-6), (F16, 1e-3)]))
def test_pooling_of_floats_leaves_padding_out(
    kind: OperationType, reduce: Any, case: Any, nchw: bool, precision: tuple[OperandType, float]
) -> None:
    (image, plain, extents), (type_, tolerance) = case, precision
    given_image = tensor(type_, laid_out(image, nchw))
    [found] = run(kind, [given_image, *scalars(plain, extents, 0, nchw)], [output(type_)])
    wanted = laid_out(pool(image.astype(np.float64), plain, extents, reduce), nchw)
    np.testing.assert_allclose(found, wanted, tolerance, 1e-4)


@pytest.mark.parametrize(("kind", "reduce"), [(AVERAGE, rounded_mean), (MAX, max)])
@given(cases(), st.booleans(), st.sampled_from([Q8, Q8S]))
def test_pooling_of_stored_values_is_exact(
    kind: OperationType, reduce: Any, case: Any, nchw: bool, type_: OperandType
) -> None:
    image, plain, extents = case
    image = image + 128 if type_ is Q8 else image
    source = tensor(type_, laid_out(image, nchw), 0.5, 3)
    [found] = run(kind, [source, *scalars(plain, extents, 0, nchw)], [output(type_, (), 0.5, 3)])
    assert (found == laid_out(pool(image, plain, extents, reduce), nchw)).all()


@pytest.mark.parametrize("kind", [AVERAGE, MAX])
@pytest.mark.parametrize(("activation", "low", "high"), [(1, 3, 255), (2, 1, 5), (3, 3, 15)])
def test_activation_clamps_stored_values_to_its_range(
    kind: OperationType, activation: int, low: int, high: int
) -> None:
    image = np.arange(0, 256).reshape(1, 16, 16, 1)
    operands = [tensor(Q8, image, 0.5, 3), *scalars(Plain(), (1, 1), activation)]
    [found] = run(kind, operands, [output(Q8, (), 0.5, 3)])
    assert (found == image.clip(low, high)).all()


@pytest.mark.parametrize("kind", [AVERAGE, MAX, L2])
@given(st.integers(1, 9), st.integers(1, 9), small)
def test_same_padding_is_the_explicit_padding_it_stands_for(
    kind: OperationType, size: int, filter_size: int, stride: int
) -> None:
    image = tensor(F32, np.random.default_rng(1).uniform(-1, 1, (1, size, size, 2)))
    numbers = [1, stride, stride, filter_size, filter_size, 0]
    [implicit] = run(kind, [image, *(scalar(n) for n in numbers)], [output(F32)])
    head, tail = same_padding(size, filter_size, stride)
    plain = Plain((stride, stride), head, tail, head, tail)
    operands = [image, *scalars(plain, (filter_size, filter_size))]
    [explicit] = run(kind, operands[:-1], [output(F32)])
    np.testing.assert_array_equal(implicit, explicit)


def test_signed_and_unsigned_means_may_differ_by_their_ties() -> None:
    window = scalars(Plain((1, 2)), (1, 2))
    [unsigned] = run(
        AVERAGE, [tensor(Q8, [[[[125], [126]]]], 1, 128), *window], [output(Q8, (), 1, 128)]
    )
    [signed] = run(AVERAGE, [tensor(Q8S, [[[[-3], [-2]]]], 1, 0), *window], [output(Q8S, (), 1, 0)])
    assert (unsigned.item(), signed.item()) == (126, -3)


def test_largest_sums_do_not_overflow() -> None:
    image = np.full((1, 2900, 2900, 1), 255, np.uint8)
    [found] = run(
        AVERAGE, [tensor(Q8, image, 1, 0), *scalars(Plain(), (2900, 2900))], [output(Q8, (), 1, 0)]
    )
    assert found.item() == 255


@pytest.mark.parametrize("kind", [AVERAGE, MAX, L2])
def test_no_images_give_no_images(kind: OperationType) -> None:
    operands = [tensor(F32, np.zeros((0, 3, 3, 2))), *scalars(Plain(), (2, 2))]
    [found] = run(kind, operands, [output(F32)])
    assert found.shape == (0, 2, 2, 2)


@pytest.mark.parametrize("kind", [AVERAGE, MAX])
@pytest.mark.parametrize(("scale", "zero_point"), [(0.25, 3), (0.5, 4)])
def test_output_must_be_quantised_like_the_input(
    kind: OperationType, scale: float, zero_point: int
) -> None:
    operands = [tensor(Q8, [[[[1]]]], 0.5, 3), *scalars(Plain(), (1, 1))]
    refuses(kind, operands, [output(Q8, (), scale, zero_point)], "declared are")


@pytest.mark.parametrize("kind", [AVERAGE, MAX, L2])
@pytest.mark.parametrize(
    ("plain", "extents", "activation", "message"),
    [
        (Plain((0, 1)), (1, 1), 0, "'stride_height' is 0"),
        (Plain(), (1, 0), 0, "'filter_width' is 0"),
        (Plain(left=2), (2, 2), 0, "padding at the left is 2, expected 0 to 1"),
        (Plain(bottom=-1), (2, 2), 0, "padding at the bottom is -1"),
        (Plain(), (5, 1), 0, "too small"),
        (Plain(), (1, 1), 4, "'activation' is 4"),
    ],
)
def test_windows_that_do_not_fit_fail(
    kind: OperationType, plain: Plain, extents: tuple[int, int], activation: int, message: str
) -> None:
    operands = [tensor(F32, np.ones((1, 4, 4, 1))), *scalars(plain, extents, activation)]
    refuses(kind, operands, [output(F32)], message)


@pytest.mark.parametrize("kind", [AVERAGE, MAX, L2])
def test_images_of_another_rank_or_without_cells_are_refused(kind: OperationType) -> None:
    window = scalars(Plain(), (1, 1))
    rejects(kind, [tensor(F32, np.ones((4, 4, 1))), *window], [output(F32)], "has rank 3")
    empty = tensor(F32, np.ones((1, 0, 4, 1)))
    refuses(kind, [empty, *window], [output(F32)], "only the batches may be empty")


def test_roots_of_mean_squares_are_for_floats_only() -> None:
    operands = [tensor(Q8, [[[[1]]]], 1, 0), *scalars(Plain(), (1, 1))]
    rejects(L2, operands, [output(Q8, (), 1, 0)], "P4")


def test_a_filter_of_two_billion_cells_ends_soon() -> None:
    most = 2**31 - 1
    plain = Plain(top=most - 2, left=most - 2)
    [found] = run(
        MAX, [tensor(F32, [[[[1], [2]], [[3], [4]]]]), *scalars(plain, (most, most))], [output(F32)]
    )
    assert found.tolist() == [[[[4.0]]]]


@pytest.mark.parametrize("kind", [AVERAGE, MAX])
def test_windows_that_share_no_cell_of_an_enormous_filter_end_soon(kind: OperationType) -> None:
    """As far apart as they are wide: the cells in between meet padding only, in both windows."""
    most = 2**31 - 1
    plain = Plain((1, most), left=most - 1, right=most - 1)
    image = tensor(F32, [[[[3], [4]]]])
    [found] = run(kind, [image, *scalars(plain, (1, most))], [output(F32)])
    assert found.tolist() == [[[[3.0], [4.0]]]]


@pytest.mark.parametrize("kind", [AVERAGE, MAX])
@given(cases(), st.booleans(), st.sampled_from([Q8, Q8S, F32]))
def test_steps_by_windows_give_what_steps_by_cells_give(
    kind: OperationType, case: Any, nchw: bool, type_: OperandType
) -> None:
    image, plain, extents = case
    image = image + 128 if type_ is Q8 else image
    scaled = (0.0, 0) if type_ is F32 else (0.5, 3)
    source = tensor(type_, laid_out(image, nchw), *scaled)
    operands = [source, *scalars(plain, extents, 0, nchw)]
    [by_cells] = run(kind, operands, [output(type_, (), *scaled)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooling, "_CELLS_AT_LEAST", 0)
        [found] = run(kind, operands, [output(type_, (), *scaled)])
    assert (found == by_cells).all()
