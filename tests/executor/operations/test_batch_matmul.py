from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.plain_windows import requantise
from executor.refusal import refuses, rejects
from executor.run_operation import output, run, scalar, tensor
from nnburst.hal.enums import OperandType, OperationType

MATMUL = OperationType.BATCH_MATMUL
F32, F16, I32 = (
    OperandType.TENSOR_FLOAT32,
    OperandType.TENSOR_FLOAT16,
    OperandType.TENSOR_INT32,
)
Q8, Q8S = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED


@st.composite
def factors(draw: st.DrawFn) -> tuple[Any, Any, bool, bool, Any]:
    """Two stacks of matrices, which of them are stored transposed, and their product."""
    extent = st.integers(1, 4)
    batches = draw(st.lists(extent, max_size=2))
    rows, inner, columns = draw(extent), draw(extent), draw(extent)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    left = random.integers(-9, 10, (*batches, rows, inner))
    right = random.integers(-9, 10, (*batches, inner, columns))
    adj_x, adj_y = draw(st.booleans()), draw(st.booleans())
    stored = [
        np.swapaxes(m, -1, -2) if flag else m
        for m, flag in zip((left, right), (adj_x, adj_y), strict=True)
    ]
    return *stored, adj_x, adj_y, left @ right


@pytest.mark.parametrize("kind", [F32, F16, I32])
@given(factors())
def test_products_of_whole_numbers_are_exact(kind: OperandType, case: Any) -> None:
    left, right, adj_x, adj_y, product = case
    flags = [scalar(adj_x), scalar(adj_y)]
    [found] = run(MATMUL, [tensor(kind, left), tensor(kind, right), *flags], [output(kind)])
    assert (found == product).all()
    assert found.shape == product.shape


@given(factors(), st.floats(0.01, 20), st.integers(-128, 127))
def test_quantised_products_are_exact(case: Any, scale: float, zero_point: int) -> None:
    left, right, adj_x, adj_y, product = case
    scale = float(np.float32(scale))
    operands = [tensor(Q8S, left + 7, 0.5, 7), tensor(Q8S, right - 5, 0.25, -5)]
    [found] = run(
        MATMUL,
        [*operands, scalar(adj_x), scalar(adj_y)],
        [output(Q8S, (), scale, zero_point)],
    )
    wanted = requantise(product, np.float32(0.125), scale, zero_point, -128, 127)
    assert (found == wanted).all()


def test_sums_beyond_what_float32_holds_are_exact() -> None:
    left, right = np.full((1, 2**18), 127), np.full((2**18, 1), 127)
    right[2**17 :] = -127
    right[-1] = -126
    operands = [tensor(Q8S, left, 1, 0), tensor(Q8S, right, 1, 0), scalar(False), scalar(False)]
    [found] = run(MATMUL, operands, [output(Q8S, (), 1, -60)])
    assert found.item() == 127 - 60


def test_whole_numbers_wrap() -> None:
    operands = [tensor(I32, [[2**30, 2**30]]), tensor(I32, [[1], [1]])]
    [found] = run(MATMUL, [*operands, scalar(False), scalar(False)], [output(I32)])
    assert found.item() == -(2**31)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((2, 3), (2, 3), "columns of 'input0' (3) and rows of 'input1' (2) differ"),
        ((2, 3), (1, 3, 2), "ranks 2 and 3"),
        ((3,), (3,), "ranks 1 and 1"),
        ((2, 2, 3), (1, 3, 2), "batches [2] and [1]"),
        ((0, 3), (3, 2), "empty"),
    ],
)
def test_matrices_that_do_not_fit_fail(left: Any, right: Any, message: str) -> None:
    operands = [tensor(F32, np.ones(left)), tensor(F32, np.ones(right))]
    refuses(MATMUL, [*operands, scalar(False), scalar(False)], [output(F32)], message)


def test_flags_are_not_optional_and_unsigned_bytes_are_unknown() -> None:
    operands = [tensor(F32, [[1]]), tensor(F32, [[1]])]
    rejects(MATMUL, operands, [output(F32)], "P4")
    stored = [tensor(Q8, [[1]], 1, 0), tensor(Q8, [[1]], 1, 0), scalar(False), scalar(False)]
    rejects(MATMUL, stored, [output(Q8, (), 1, 0)], "P4")
