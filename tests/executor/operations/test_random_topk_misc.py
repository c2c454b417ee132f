"""RANDOM_MULTINOMIAL and TOPK_V2."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, Q8, Q8S
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType

MULTINOMIAL = OperationType.RANDOM_MULTINOMIAL
TOPK = OperationType.TOPK_V2


def drawn(
    logits: object, count: int, seeds: tuple[int, int] = (37, 42), kind: OperandType = F32
) -> Array:
    args = [tensor(kind, np.array(logits)), scalar(count), tensor(I32, seeds)]
    [y] = run(MULTINOMIAL, args, [output(I32)])
    return y


@pytest.mark.parametrize("kind", [F32, F16])
def test_classes_come_as_often_as_their_probabilities_say(kind: OperandType) -> None:
    logits = np.array([[0.0, 1.0, 2.0, -1.0], [5.0, 5.0, -9.0, 4.0]])
    y = drawn(logits, 20_000, kind=kind)
    assert y.shape == (2, 20_000)
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = [np.bincount(row, minlength=4) / len(row) for row in y]
    np.testing.assert_allclose(found, wanted, atol=0.02)


def test_equal_seeds_repeat_the_draw_and_others_do_not() -> None:
    logits = np.zeros((1, 1000))
    first = drawn(logits, 50)
    np.testing.assert_array_equal(first, drawn(logits, 50))
    for seeds in ((37, 43), (38, 42), (-37, 42)):
        assert not np.array_equal(first, drawn(logits, 50, seeds))


def test_seeds_of_zero_draw_anew_each_time() -> None:
    logits = np.zeros((1, 1000))
    assert not np.array_equal(drawn(logits, 50, (0, 0)), drawn(logits, 50, (0, 0)))


def test_batches_draw_independently() -> None:
    y = drawn(np.zeros((2, 1000)), 50)
    assert not np.array_equal(y[0], y[1])


def test_logits_that_are_not_finite_are_never_drawn() -> None:
    y = drawn([[np.nan, 1.0, np.inf, 1.0, -np.inf]], 200)
    assert set(y.reshape(-1).tolist()) == {1, 3}


def test_a_batch_without_finite_logits_gives_the_last_class() -> None:
    np.testing.assert_array_equal(drawn([[np.nan, np.inf, -np.inf]], 3), [[2, 2, 2]])


def test_large_logits_do_not_overflow() -> None:
    np.testing.assert_array_equal(drawn([[3e38, -3e38]], 3), [[0, 0, 0]])


@pytest.mark.parametrize(
    ("logits", "count", "seeds", "message"),
    [
        ([1.0], 1, (1, 2), "'logits' has rank 1"),
        ([[1.0]], 0, (1, 2), "'sample_count' is 0"),
        ([[1.0]], -1, (1, 2), "'sample_count' is -1"),
        ([[1.0]], 1, (1, 2, 3), "'seeds' has shape (3,)"),
    ],
)
def test_random_multinomial_refuses_operands_that_do_not_fit(
    logits: list[float] | list[list[float]], count: int, seeds: tuple[int, ...], message: str
) -> None:
    args = [tensor(F32, logits), scalar(count), tensor(I32, seeds)]
    refuses(MULTINOMIAL, args, [output(I32)], message)


def test_random_multinomial_without_seeds_is_an_invalid_argument() -> None:
    args = [tensor(F32, [[1.0]]), scalar(1), Given(I32, None)]
    refuses(MULTINOMIAL, args, [output(I32)], "omitted", ErrorStatus.INVALID_ARGUMENT)


def test_topk_gives_the_largest_first_and_where_they_are() -> None:
    x = tensor(F32, [[1, 3, 2], [6, 4, 5]])
    values, indices = run(TOPK, [x, scalar(2)], [output(F32), output(I32)])
    np.testing.assert_array_equal(values, [[3, 2], [6, 5]])
    np.testing.assert_array_equal(indices, [[1, 2], [0, 2]])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.data())
def test_of_equal_elements_the_larger_index_comes_first(
    elements: list[int], draw: st.DataObject
) -> None:
    k = draw.draw(st.integers(1, len(elements)))
    wanted = sorted(((v, i) for i, v in enumerate(elements)), reverse=True)[:k]
    for kind in (F32, F16, I32):
        args = [tensor(kind, elements), scalar(k)]
        values, indices = run(TOPK, args, [output(kind), output(I32)])
        assert list(zip(values.tolist(), indices.tolist(), strict=True)) == wanted


@pytest.mark.parametrize(("kind", "shift"), [(Q8, 0), (Q8S, -128)])
def test_topk_compares_stored_values(kind: OperandType, shift: int) -> None:
    x = tensor(kind, np.array([200, 3, 250]) + shift, 0.5, 4)
    values, indices = run(TOPK, [x, scalar(2)], [output(kind, (2,), 0.5, 4), output(I32)])
    np.testing.assert_array_equal(values, np.array([250, 200]) + shift)
    np.testing.assert_array_equal(indices, [2, 0])


@pytest.mark.parametrize("k", [0, -1, 4])
def test_topk_refuses_a_k_outside(k: int) -> None:
    args = [tensor(F32, [[1, 2, 3]]), scalar(k)]
    refuses(TOPK, args, [output(F32), output(I32)], f"'k' is {k}, expected [1, 3]")


def test_topk_forces_the_quantisation_of_the_values() -> None:
    args = [tensor(Q8, [1], 0.5, 4), scalar(1)]
    refuses(TOPK, args, [output(Q8, (1,), 0.5, 5), output(I32)], "zero point 4")


def test_topk_rejects_indices_of_another_type() -> None:
    rejects(TOPK, [tensor(F16, [1]), scalar(1)], [output(F16), output(F16)], "'indices'")
