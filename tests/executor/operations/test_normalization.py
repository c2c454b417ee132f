from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.hal.enums import OperandType, OperationType

L2, LRN, INSTANCE = (
    OperationType.L2_NORMALIZATION,
    OperationType.LOCAL_RESPONSE_NORMALIZATION,
    OperationType.INSTANCE_NORMALIZATION,
)
F32, F16 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16
Q8, Q8S = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED
FLOATS = st.sampled_from([(F32, 1e-5), (F16, 4e-3)])


def number(value: float, kind: OperandType) -> Given:
    return scalar(value, OperandType.FLOAT16 if kind is F16 else OperandType.FLOAT32)


@st.composite
def inputs(draw: st.DrawFn, low: int = -8, high: int = 9) -> tuple[Any, int]:
    """Whole numbers and an axis, which may count from the end."""
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=4, max_side=5))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return random.integers(low, high, shape), axis


@given(inputs(), FLOATS)
def test_slices_get_the_norm_one(case: Any, precision: Any) -> None:
    (x, axis), (kind, tolerance) = case, precision
    [found] = run(L2, [tensor(kind, x), scalar(axis)], [output(kind)])
    norm = np.sqrt((x * x).sum(axis=axis, keepdims=True))
    np.testing.assert_allclose(found, x / np.maximum(norm, 1e-6), tolerance, 1e-6)


@given(inputs(-100, 101), st.sampled_from([Q8, Q8S]))
def test_stored_slices_are_within_a_step_of_the_norm_one(case: Any, kind: OperandType) -> None:
    x, axis = case
    shift, middle = (128, 128) if kind is Q8 else (0, 0)
    [found] = run(
        L2, [tensor(kind, x + shift, 0.3, shift), scalar(axis)], [output(kind, (), 1 / 128, middle)]
    )
    norm = np.maximum(np.sqrt((x * x).sum(axis=axis, keepdims=True)), 1e-6)
    wanted = np.clip(128 * x / norm, -128, 127)
    assert np.abs(found.astype(int) - middle - wanted).max() <= 1


def test_normalisation_by_hand() -> None:
    [found] = run(L2, [tensor(F32, [[3, 4], [0, 0]])], [output(F32)])
    assert found.tolist() == [[np.float32(0.6), np.float32(0.8)], [0, 0]]
    [stored] = run(
        L2, [tensor(Q8, [[131, 132], [128, 128]], 0.5, 128)], [output(Q8, (), 1 / 128, 128)]
    )
    assert stored.tolist() == [[205, 230], [128, 128]]


@pytest.mark.parametrize(("kind", "zero_point"), [(Q8, 128), (Q8S, 0)])
def test_output_of_normalisation_has_one_quantisation(kind: OperandType, zero_point: int) -> None:
    refuses(
        L2, [tensor(kind, [[1]], 0.5, 0)], [output(kind, (), 1 / 256, zero_point)], "declared are"
    )
    refuses(L2, [tensor(kind, [[1]], 0.5, 0)], [output(kind, (), 1 / 128, 1)], "declared are")


@given(inputs(), st.integers(0, 8), st.sampled_from([0.5, 1.0]), FLOATS)
def test_neighbours_within_the_radius_count(
    case: Any, radius: int, beta: float, precision: Any
) -> None:
    (x, axis), (kind, tolerance) = case, precision
    operands = [scalar(radius), number(2.0, kind), number(0.25, kind), number(beta, kind)]
    [found] = run(LRN, [tensor(kind, x), *operands, scalar(axis)], [output(kind)])
    rows = np.moveaxis(x, axis, -1)
    wanted = np.empty(rows.shape)
    for i in range(rows.shape[-1]):
        near = rows[..., max(0, i - radius) : i + radius + 1]
        wanted[..., i] = rows[..., i] * (2 + 0.25 * (near**2).sum(axis=-1)) ** -beta
    np.testing.assert_allclose(found, np.moveaxis(wanted, -1, axis), tolerance, 1e-5)


def test_a_radius_beyond_the_axis_sees_all_of_it() -> None:
    operands = [scalar(2**31 - 1), scalar(0.0), scalar(1.0), scalar(1.0)]
    [found] = run(LRN, [tensor(F32, [[1, 2, 2]]), *operands], [output(F32)])
    np.testing.assert_allclose(found, [[1 / 9, 2 / 9, 2 / 9]], 1e-6)


@given(
    arrays.array_shapes(min_dims=4, max_dims=4, max_side=4),
    st.booleans(),
    st.integers(0, 2**32),
    FLOATS,
)
def test_every_channel_of_every_image_is_normalised_by_itself(
    shape: tuple[int, ...], nchw: bool, seed: int, precision: Any
) -> None:
    kind, tolerance = precision
    x = np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float64)
    pixels = (2, 3) if nchw else (1, 2)
    operands = [number(2.0, kind), number(0.5, kind), number(0.125, kind), scalar(nchw)]
    [found] = run(INSTANCE, [tensor(kind, x), *operands], [output(kind)])
    mean, variance = x.mean(pixels, keepdims=True), x.var(pixels, keepdims=True)
    wanted = (x - mean) * 2 / np.sqrt(variance + 0.125) + 0.5
    np.testing.assert_allclose(found, wanted, tolerance, 1e-4)


def floats(kind: OperationType, shape: Any, **changes: Any) -> list[Given]:
    """Operands of a normalisation of ones."""
    named = {
        L2: {"axis": scalar(-1)},
        LRN: {
            "radius": scalar(1),
            "bias": scalar(1.0),
            "alpha": scalar(1.0),
            "beta": scalar(1.0),
            "axis": scalar(-1),
        },
        INSTANCE: {
            "gamma": scalar(1.0),
            "beta": scalar(1.0),
            "epsilon": scalar(1.0),
            "nchw": scalar(False),
        },
    }[kind]
    return [tensor(F32, np.ones(shape)), *(named | changes).values()]


@pytest.mark.parametrize("kind", [L2, LRN])
@pytest.mark.parametrize("axis", [-3, 2])
def test_axes_outside_the_rank_fail(kind: OperationType, axis: int) -> None:
    operands = floats(kind, (2, 2), axis=scalar(axis))
    refuses(kind, operands, [output(F32)], f"'axis' is {axis}")


@pytest.mark.parametrize("kind", [L2, LRN, INSTANCE])
def test_empty_tensors_fail(kind: OperationType) -> None:
    refuses(kind, floats(kind, (0, 2, 2, 1)), [output(F32)], "empty")


@pytest.mark.parametrize(("kind", "rank"), [(L2, 5), (LRN, 5), (INSTANCE, 3)])
def test_other_ranks_are_rejected(kind: OperationType, rank: int) -> None:
    rejects(kind, floats(kind, (1,) * rank), [output(F32)], f"has rank {rank}")


def test_a_negative_radius_fails_and_missing_operands_are_rejected() -> None:
    refuses(LRN, floats(LRN, (2, 2), radius=scalar(-1)), [output(F32)], "'radius' is -1")
    rejects(LRN, floats(LRN, (2, 2))[:4], [output(F32)], "P4")
    rejects(INSTANCE, floats(INSTANCE, (1, 2, 2, 1))[:4], [output(F32)], "P4")
