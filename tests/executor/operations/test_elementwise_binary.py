"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from executor.exact_integers import c_mbqm, c_multiplier
from executor.refusal import refuses, rejects
from executor.run_operation import output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, Q8, Q8S
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType

ADD, SUB, MUL, DIV = (OperationType[name] for name in ("ADD", "SUB", "MUL", "DIV"))
MAXIMUM, MINIMUM, POW = OperationType.MAXIMUM, OperationType.MINIMUM, OperationType.POW
ARITHMETIC = {ADD: np.add, SUB: np.subtract, MUL: np.multiply, DIV: np.divide}
EXTREMA = {MAXIMUM: np.maximum, MINIMUM: np.minimum}
NONE, RELU, RELU1, RELU6 = (scalar(code) for code in range(4))
FLOAT32_MAX = np.finfo(np.float32).max

octets = st.integers(0, 255)
scales = st.sampled_from([0.125, 0.5, 0.007843138, 1.25])
shape_pairs = hnp.mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, max_side=3)


def quantized(kind: OperationType, values: npt.ArrayLike, scale: float, zero_point: int) -> Any:
    """Values of uint8, moved by -128 for the signed type."""
    offset = 128 if kind == Q8S else 0
    return tensor(kind, np.asarray(values, int) - offset, scale, zero_point - offset)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(ADD, [5, 1, -1]), (SUB, [3, -3, 3]), (MUL, [4, -2, -2]), (DIV, [4, -0.5, -0.5])],
)
def test_arithmetic_of_floats(kind: OperationType, expected: Any) -> None:
    inputs = [tensor(F32, [4, -1, 1]), tensor(F32, [1, 2, -2]), NONE]
    [y] = run(kind, inputs, [output(F32, [3])])
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [(NONE, [-2, 0.5, 8]), (RELU, [0, 0.5, 8]), (RELU1, [-1, 0.5, 1]), (RELU6, [0, 0.5, 6])],
)
@pytest.mark.parametrize("kind", [F32, F16])
def test_fused_activation_clamps_floats_also_when_broadcasting(
    kind: OperationType, activation: Any, expected: Any
) -> None:
    for operation, other in ((ADD, 0), (SUB, 0), (MUL, 1), (DIV, 1)):
        inputs = [tensor(kind, [[-2, 0.5, 8]]), tensor(kind, [other]), activation]
        [y] = run(operation, inputs, [output(kind)])
        np.testing.assert_array_equal(y, [expected])


@pytest.mark.parametrize("kind", [*ARITHMETIC, *EXTREMA])
@given(shapes=shape_pairs, data=st.data())
def test_broadcasting_follows_the_aligned_extents(
    kind: OperationType, shapes: Any, data: Any
) -> None:
    x, y = (
        data.draw(hnp.arrays(np.float32, s, elements=st.floats(0.5, 4, width=32)))
        for s in shapes.input_shapes
    )
    ufunc = (ARITHMETIC | EXTREMA)[kind]
    inputs = [tensor(F32, x), tensor(F32, y)] + ([NONE] if kind in ARITHMETIC else [])
    [z] = run(kind, inputs, [output(F32)])
    assert z.shape == shapes.result_shape
    np.testing.assert_array_equal(z, ufunc(x, y))


@pytest.mark.parametrize("kind", [*ARITHMETIC, *EXTREMA, POW])
def test_extents_that_do_not_broadcast_fail(kind: OperationType) -> None:
    inputs = [tensor(F32, np.ones((2, 3))), tensor(F32, np.ones((2, 1, 2)))]
    inputs += [NONE] if kind in ARITHMETIC else []
    refuses(kind, inputs, [output(F32)], "do not broadcast")


@pytest.mark.parametrize("kind", ARITHMETIC)
def test_rank_above_four_is_rejected(kind: OperationType) -> None:
    five = tensor(F32, np.ones((1, 1, 1, 1, 2)))
    rejects(
        kind,
        [five, tensor(F32, [1]), NONE],
        [output(F32)],
        f"{kind.name}: operands 'input0' and 'input1' have ranks [5, 1]",
    )


@pytest.mark.parametrize("kind", EXTREMA)
def test_rank_above_four_is_fine_for_extrema(kind: OperationType) -> None:
    five = np.arange(2, dtype=np.float32).reshape(1, 1, 1, 1, 2)
    [y] = run(kind, [tensor(F32, five), tensor(F32, five)], [output(F32)])
    np.testing.assert_array_equal(y, five)


@pytest.mark.parametrize("kind", ARITHMETIC)
def test_empty_input_gives_empty_output(kind: OperationType) -> None:
    inputs = [tensor(F32, np.ones((0, 2))), tensor(F32, np.ones((1, 2))), NONE]
    [y] = run(kind, inputs, [output(F32)])
    assert y.shape == (0, 2)


@pytest.mark.parametrize("kind", [*EXTREMA, POW])
def test_empty_input_is_an_invalid_argument_for_older_operations(kind: OperationType) -> None:
    inputs = [tensor(F32, np.ones((0, 2))), tensor(F32, np.ones((1, 2)))]
    refuses(kind, inputs, [output(F32)], "is empty", ErrorStatus.INVALID_ARGUMENT)


@pytest.mark.parametrize("code", [-1, 4])
@pytest.mark.parametrize("kind", [F32, Q8])
def test_unknown_activation_fails(kind: OperationType, code: int) -> None:
    x = tensor(kind, [1], 1.0 if kind == Q8 else 0.0)
    outputs = [output(kind, [1], 2.0 if kind == Q8 else 0.0)]
    refuses(ADD, [x, x, scalar(code)], outputs, "operand 'activation'")
    refuses(ADD, [x, x, scalar(code, constant=False)], outputs, "operand 'activation'")


def test_activation_may_be_a_model_input() -> None:
    inputs = [tensor(F32, [-3, 3]), tensor(F32, [0, 0]), scalar(2, constant=False)]
    [y] = run(ADD, inputs, [output(F32)])
    np.testing.assert_array_equal(y, [-1, 1])


def test_infinite_results_are_clamped_and_nan_stays() -> None:
    x, y = tensor(F32, [1, -1, 0, np.nan]), tensor(F32, [0, 0, 0, 1])
    [z] = run(DIV, [x, y, NONE], [output(F32)])
    np.testing.assert_array_equal(z, [FLOAT32_MAX, -FLOAT32_MAX, np.nan, np.nan])


def test_float16_rounds_once() -> None:
    # In half precision 2048 + 1 is a tie; with the activation of float32 it is rounded at the end.
    [y] = run(ADD, [tensor(F16, [2048, 2050]), tensor(F16, [1, 1]), NONE], [output(F16)])
    np.testing.assert_array_equal(y, np.array([2048, 2052], np.float16))


# TENSOR_INT32


@pytest.mark.parametrize("kind", [ADD, SUB, MUL])
@given(
    data=hnp.arrays(np.int32, (2, 5)),
)
def test_arithmetic_of_int32_wraps(kind: OperationType, data: Any) -> None:
    [z] = run(kind, [tensor(I32, data[0]), tensor(I32, data[1]), NONE], [output(I32)])
    exact = ARITHMETIC[kind](data[0].astype(object), data[1].astype(object))
    np.testing.assert_array_equal(z, [(v + 2**31) % 2**32 - 2**31 for v in exact])


@given(hnp.arrays(np.int32, (2, 5), elements=st.integers(-20, 20)))
def test_division_of_int32_rounds_down_and_zero_divisor_gives_zero(data: Any) -> None:
    [z] = run(DIV, [tensor(I32, data[0]), tensor(I32, data[1]), NONE], [output(I32)])
    expected = [int(a) // int(b) if b else 0 for a, b in zip(*data, strict=True)]
    np.testing.assert_array_equal(z, expected)


@pytest.mark.parametrize("divisor", [[-1], [0], [-1, 0, 3]])
def test_division_of_smallest_int32_does_not_crash(divisor: Any) -> None:
    [z] = run(DIV, [tensor(I32, [-(2**31)]), tensor(I32, divisor), NONE], [output(I32)])
    assert z.shape == (len(divisor),)


@pytest.mark.parametrize("kind", ARITHMETIC)
def test_activation_of_int32_fails(kind: OperationType) -> None:
    inputs = [tensor(I32, [1]), tensor(I32, [2]), RELU]
    refuses(kind, inputs, [output(I32)], "operand 'activation' is 1")


# Quantised


@given(octets, octets, octets, octets, octets, st.lists(scales, min_size=3, max_size=3))
def test_quantised_sum_and_difference_follow_their_definition(
    x: Any, y: Any, zx: Any, zy: Any, zo: Any, steps: Any
) -> None:
    sx, sy, so = (float(np.float32(s)) for s in steps)
    twice = 2 * max(sx, sy)
    a = c_mbqm((x - zx) << 20, *c_multiplier(sx / twice))
    m, shift = c_multiplier(sy / twice)
    for kind, sign in ((ADD, 1), (SUB, -1)):
        total = a + c_mbqm((y - zy) << 20, sign * m, shift)
        exact = c_mbqm(total, *c_multiplier(twice / (2**20 * so))) + zo
        for type_, offset in ((Q8, 0), (Q8S, 128)):
            inputs = [quantized(type_, [x], sx, zx), quantized(type_, [y], sy, zy), NONE]
            [z] = run(kind, inputs, [output(type_, [1], so, zo - offset)])
            assert int(z[0]) == min(max(exact, 0), 255) - offset


@given(octets, octets, octets, octets, octets, st.lists(scales, min_size=2, max_size=2))
def test_quantised_product_follows_its_definition(
    x: Any, y: Any, zx: Any, zy: Any, zo: Any, steps: Any
) -> None:
    sx, sy = (float(np.float32(s)) for s in steps)
    so = float(np.float32(1.5 * sx * sy))
    m, shift = c_multiplier(float(np.float32(sx) * np.float32(sy)) / so)
    exact = c_mbqm((x - zx) * (y - zy), m, shift) + zo
    for type_, offset in ((Q8, 0), (Q8S, 128)):
        inputs = [quantized(type_, [x], sx, zx), quantized(type_, [y], sy, zy), NONE]
        [z] = run(MUL, inputs, [output(type_, [1], so, zo - offset)])
        assert int(z[0]) == min(max(exact, 0), 255) - offset


def test_quantised_sum_of_worked_example() -> None:
    inputs = [tensor(Q8, [3], 0.5), tensor(Q8, [4], 0.5), NONE]
    [z] = run(ADD, inputs, [output(Q8, [1], 1.0)])
    np.testing.assert_array_equal(z, [4])


@given(
    hnp.arrays(np.uint8, (2, 6)), octets, octets, octets, st.lists(scales, min_size=3, max_size=3)
)
def test_quantised_arithmetic_is_within_a_step_of_real_arithmetic(
    data: Any, zx: Any, zy: Any, zo: Any, steps: Any
) -> None:
    sx, sy, so = steps
    x, y = (data[0] - float(zx)) * sx, (data[1] - float(zy)) * sy
    inputs = [tensor(Q8, data[0], sx, zx), tensor(Q8, data[1], sy, zy), NONE]
    for kind in (ADD, SUB, MUL):
        step = 1.5 * sx * sy if kind is MUL else so
        [z] = run(kind, inputs, [output(Q8, [6], step, zo)])
        real = np.clip(ARITHMETIC[kind](x, y) / step + zo, 0, 255)
        assert np.abs(z - real).max() <= 1


def test_fused_activation_clamps_stored_values_after_the_zero_point() -> None:
    inputs = [tensor(Q8, [0, 20, 60], 0.5, 20), tensor(Q8, [20], 0.5, 20), RELU6]
    [z] = run(ADD, inputs, [output(Q8, [3], 0.5, 100)])
    np.testing.assert_array_equal(z, [100, 100, 112])


def test_quantised_operands_broadcast() -> None:
    inputs = [tensor(Q8, [[1], [2]], 1.0), tensor(Q8, [10, 20, 30], 1.0), NONE]
    [z] = run(ADD, inputs, [output(Q8, [2, 3], 1.0)])
    np.testing.assert_array_equal(z, [[11, 21, 31], [12, 22, 32]])


@pytest.mark.parametrize("kind", [Q8, Q8S])
def test_product_whose_scale_is_not_above_both_scales_is_rejected(kind: OperationType) -> None:
    x = tensor(kind, [1], 0.5)
    rejects(MUL, [x, x, NONE], [output(kind, [1], 0.25)], "must exceed")
    run(MUL, [x, x, NONE], [output(kind, [1], 0.2500001)])


@pytest.mark.parametrize("kind", [ADD, SUB])
def test_sum_whose_scale_is_far_too_small_fails(kind: OperationType) -> None:
    x = tensor(Q8, [1], 1.0)
    refuses(kind, [x, x, NONE], [output(Q8, [1], 2.0**-19)], "between 0 and 1")
    run(kind, [x, x, NONE], [output(Q8, [1], 2.0**-18)])


def test_quantised_division_is_refused_at_the_stage_of_its_type() -> None:
    unsigned, signed = tensor(Q8, [1], 1.0), tensor(Q8S, [1], 1.0)
    rejects(DIV, [unsigned, unsigned, NONE], [output(Q8, [1], 1.0)], "operand 'input0'")
    refuses(DIV, [signed, signed, NONE], [output(Q8S, [1], 1.0)], "operand 'input0'")


def test_types_of_both_inputs_must_agree() -> None:
    rejects(ADD, [tensor(F32, [1]), tensor(I32, [1]), NONE], [output(F32)], "P4")
    rejects(MAXIMUM, [tensor(F32, [1]), tensor(F16, [1])], [output(F32)], "P4")


# MAXIMUM, MINIMUM


@pytest.mark.parametrize("kind", EXTREMA)
@pytest.mark.parametrize("type_", [F32, F16, I32])
def test_extrema_element_by_element(kind: OperationType, type_: OperandType) -> None:
    inputs = [tensor(type_, [1, 5, -3]), tensor(type_, [2, 4, -3])]
    [z] = run(kind, inputs, [output(type_)])
    np.testing.assert_array_equal(z, EXTREMA[kind]([1, 5, -3], [2, 4, -3]))


@pytest.mark.parametrize("kind", EXTREMA)
def test_extrema_of_nan_take_the_first_operand(kind: OperationType) -> None:
    x, y = tensor(F32, [np.nan, 1, np.nan]), tensor(F32, [1, np.nan, np.nan])
    [z] = run(kind, [x, y], [output(F32)])
    np.testing.assert_array_equal(z, [np.nan, 1, np.nan])


@pytest.mark.parametrize("kind", EXTREMA)
@given(
    data=hnp.arrays(np.uint8, (2, 6)),
    zeros=st.tuples(octets, octets, octets),
    steps=st.tuples(scales, scales, scales),
)
def test_extrema_compare_what_both_inputs_are_in_the_output(
    kind: OperationType, data: Any, zeros: Any, steps: Any
) -> None:
    inputs = [tensor(Q8, data[i], steps[i], zeros[i]) for i in (0, 1)]
    [z] = run(kind, inputs, [output(Q8, [6], steps[2], zeros[2])])
    both = [(data[i] - float(zeros[i])) * steps[i] / steps[2] + zeros[2] for i in (0, 1)]
    assert np.abs(z - np.clip(EXTREMA[kind](*both), 0, 255)).max() <= 0.5001
    signed = [quantized(Q8S, data[i], steps[i], zeros[i]) for i in (0, 1)]
    [twin] = run(kind, signed, [output(Q8S, [6], steps[2], zeros[2] - 128)])
    assert np.abs(twin.astype(int) + 128 - z).max() <= 1


def test_extrema_round_ties_of_the_stored_value_away_from_zero() -> None:
    inputs = [tensor(Q8, [1, 3], 0.5, 0), tensor(Q8, [0, 0], 0.5, 0)]
    [z] = run(MAXIMUM, inputs, [output(Q8, [2], 1.0, 10)])
    np.testing.assert_array_equal(z, [11, 12])


# POW


def test_power_of_floats() -> None:
    base, exponent = [2, 4, -2, -2, 0, 0], [3, 0.5, 3, 0.5, 0, 2]
    [z] = run(POW, [tensor(F32, base), tensor(F32, exponent)], [output(F32)])
    np.testing.assert_allclose(z, [8, 2, -8, np.nan, 1, 0])


def test_power_broadcasts() -> None:
    [z] = run(POW, [tensor(F16, [[1], [2]]), tensor(F16, [2, 3])], [output(F16)])
    np.testing.assert_array_equal(z, [[1, 1], [4, 8]])


def test_power_of_stored_values_is_rejected() -> None:
    x = tensor(Q8, [1], 1.0)
    rejects(POW, [x, x], [output(Q8, [1], 1.0)], "operand 'base'")
