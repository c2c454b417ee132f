"""EMBEDDING_LOOKUP, HASHTABLE_LOOKUP, LSH_PROJECTION."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, omitted, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, Q8, Q8S
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.operations import lookup
from nnburst.executor.reference.operations.lookup import fingerprint64
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType

EMBEDDING = OperationType.EMBEDDING_LOOKUP
HASHTABLE = OperationType.HASHTABLE_LOOKUP
LSH = OperationType.LSH_PROJECTION

SPARSE_DEPRECATED, DENSE, SPARSE = 1, 2, 3


def ints(*values: int) -> Given:
    return tensor(I32, values)


@pytest.mark.parametrize("kind", [F32, F16, I32, Q8, Q8S])
def test_embedding_lookup_picks_rows(kind: OperandType) -> None:
    meta = (0.5, 1) if kind in (Q8, Q8S) else (0.0, 0)
    values = np.arange(12).reshape(3, 2, 2)
    args = [ints(2, 0, 2), tensor(kind, values, *meta)]
    [y] = run(EMBEDDING, args, [output(kind, (0, 0, 0), *meta)])
    np.testing.assert_array_equal(y, values[[2, 0, 2]])


@pytest.mark.parametrize("row", [-1, 2, 2**31 - 1])
def test_embedding_lookup_refuses_a_row_outside(row: int) -> None:
    args = [ints(0, row), tensor(F32, [[1], [2]])]
    refuses(EMBEDDING, args, [output(F32)], "expected [0, 1]")


def test_embedding_lookup_refuses_other_ranks_and_quantisation() -> None:
    refuses(EMBEDDING, [ints(0), tensor(F32, [1.0])], [output(F32)], "at least 2")
    args = [tensor(I32, [[0]]), tensor(F32, [[1.0]])]
    refuses(EMBEDDING, args, [output(F32)], "'lookups' has rank 2")
    args = [ints(0), tensor(Q8, [[1]], 0.5, 1)]
    refuses(EMBEDDING, args, [output(Q8, (1, 1), 0.5, 2)], "zero point 1")
    args = [omitted(I32), tensor(F32, [[1.0]])]
    refuses(EMBEDDING, args, [output(F32)], "omitted", ErrorStatus.INVALID_ARGUMENT)


def test_hashtable_lookup_gives_zero_bytes_for_a_miss() -> None:
    values = tensor(Q8, [[1, 2], [3, 4], [5, 6]], 0.5, 9)
    args = [ints(20, 15, 30, 99, -5), ints(10, 20, 30), values]
    y, hits = run(HASHTABLE, args, [output(Q8, (5, 2), 0.5, 9), output(Q8, (5,), 1.0, 0)])
    np.testing.assert_array_equal(y, [[3, 4], [0, 0], [5, 6], [0, 0], [0, 0]])
    np.testing.assert_array_equal(hits, [1, 0, 1, 0, 0])


@given(
    st.sets(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4),
    st.data(),
)
def test_hashtable_lookup_finds_exactly_its_keys(
    keys: set[int], strangers: list[int], draw: st.DataObject
) -> None:
    table = sorted(keys)
    lookups = [*strangers, *draw.draw(st.lists(st.sampled_from(table), min_size=1, max_size=8))]
    values = np.arange(1.0, len(table) + 1)
    args = [ints(*lookups), ints(*table), tensor(F32, values)]
    y, hits = run(HASHTABLE, args, [output(F32), output(Q8, (0,), 1.0, 0)])
    assert hits.tolist() == [int(x in keys) for x in lookups]
    wanted = [values[table.index(x)] if x in keys else 0 for x in lookups]
    np.testing.assert_array_equal(y, wanted)


def test_hashtable_lookup_survives_keys_out_of_order() -> None:
    args = [ints(*range(9)), ints(5, 1, 8, 3), tensor(I32, [[1], [2], [3], [4]])]
    y, hits = run(HASHTABLE, args, [output(I32), output(Q8, (0,), 1.0, 0)])
    assert set(y.reshape(-1).tolist()) <= {0, 1, 2, 3, 4}
    assert hits.tolist() == (y.reshape(-1) > 0).tolist()


def test_hashtable_lookup_refuses_keys_and_hits_that_do_not_fit() -> None:
    hits = output(Q8, (1,), 1.0, 0)
    args = [ints(1), ints(1, 2), tensor(F32, [[1.0]])]
    refuses(HASHTABLE, args, [output(F32), hits], "'keys' has shape (2,)")
    args = [ints(1), ints(1), tensor(F32, [[1.0]])]
    refuses(HASHTABLE, args, [output(F32), output(Q8, (1,), 0.5, 0)], "computes scale 1.0")
    rejects(HASHTABLE, [*args[:2], tensor(F16, [[1.0]])], [output(F16), hits], "TENSOR_FLOAT16")


def lsh_bit(seed: float, x: Array, weights: Sequence[float]) -> bool:
    """One bit, key by key."""
    score = 0.0
    for row, weight in zip(x, weights, strict=True):
        key = struct.pack("<f", seed) + row.tobytes()
        [value] = fingerprint64(np.frombuffer(key, np.uint8).reshape(1, -1))
        score += weight * float(value.astype(np.int64))
    return score > 0


@pytest.mark.parametrize("kind", [F32, F16, I32, Q8])
@pytest.mark.parametrize("width", [1, 3, 9, 20])
def test_lsh_dense_gives_the_sign_of_weighted_hashes(kind: OperandType, width: int) -> None:
    table = np.random.default_rng(width).normal(size=(3, 4)).astype(np.float32)
    meta = (0.5, 3) if kind == Q8 else (0.0, 0)
    x = tensor(kind, np.arange(5 * width).reshape(5, width), *meta)
    assert x.array is not None
    weights = [1.0, -2.0, 0.5, 0.25, 3.0]
    args = [tensor(F32, table), x, tensor(F32, weights), scalar(DENSE)]
    [y] = run(LSH, args, [output(I32)])
    wanted = [lsh_bit(seed, x.array, weights) for seed in table.reshape(-1)]
    assert y.tolist() == wanted
    assert 0 < sum(wanted) < len(wanted)


def test_lsh_sparse_packs_the_first_bit_highest_and_adds_an_offset() -> None:
    table = np.random.default_rng(7).normal(size=(4, 5)).astype(np.float32)
    x = np.arange(6, dtype=np.int32).reshape(3, 2)
    signatures = []
    for seeds in table:
        bits = [lsh_bit(seed, x, [1.0] * 3) for seed in seeds]
        signatures.append(sum(bit << (4 - i) for i, bit in enumerate(bits)))
    args = [tensor(F32, table), tensor(I32, x), omitted(F32)]
    [y] = run(LSH, [*args, scalar(SPARSE_DEPRECATED)], [output(I32)])
    assert y.tolist() == signatures
    [y] = run(LSH, [*args, scalar(SPARSE)], [output(I32)])
    assert y.tolist() == [s + (i << 5) for i, s in enumerate(signatures)]


def test_lsh_of_float16_seeds_hashes_them_as_float32() -> None:
    table = np.random.default_rng(3).normal(size=(2, 8)).astype(np.float16)
    x, none = ints(1, 2, 3), scalar(SPARSE)
    [a] = run(LSH, [tensor(F16, table), x, omitted(F16), none], [output(I32)])
    [b] = run(LSH, [tensor(F32, table), x, omitted(F32), none], [output(I32)])
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("key_bytes", [1, 16, 5 * 16, 31 * 16, 70 * 16])
def test_lsh_does_not_depend_on_how_many_keys_are_hashed_at_once(
    monkeypatch: pytest.MonkeyPatch, key_bytes: int
) -> None:
    table = np.random.default_rng(1).normal(size=(4, 8))
    x = tensor(F32, np.random.default_rng(2).normal(size=(50, 3)))
    weights = tensor(F32, np.random.default_rng(3).normal(size=50))
    args = [tensor(F32, table), x, weights, scalar(DENSE)]
    [together] = run(LSH, args, [output(I32)])
    monkeypatch.setattr(lookup, "_KEY_BYTES", key_bytes)
    [in_pieces] = run(LSH, args, [output(I32)])
    np.testing.assert_array_equal(together, in_pieces)


@pytest.mark.campaign
def test_lsh_of_many_seeds_and_long_rows_takes_no_more_memory_than_both() -> None:
    table = np.random.default_rng(1).normal(size=(3000, 1)).astype(np.float32)
    x = np.arange(2000, dtype=np.int32).reshape(1, -1)
    args = [tensor(F32, table), tensor(I32, x), omitted(F32), scalar(SPARSE_DEPRECATED)]
    tracemalloc.start()
    try:
        [found] = run(LSH, args, [output(I32)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**23  # all keys together are 24 MB
    assert found[::100].tolist() == [lsh_bit(row[0], x, [1.0]) for row in table[::100]]


def test_lsh_signatures_of_32_bits_wrap_into_int32() -> None:
    table = np.random.default_rng(1).normal(size=(8, 32)).astype(np.float32)
    args = [tensor(F32, table), ints(1), omitted(F32), scalar(SPARSE_DEPRECATED)]
    [y] = run(LSH, args, [output(I32)])
    highest = [lsh_bit(row[0], np.array([[1]], np.int32), [1.0]) for row in table]
    assert (y < 0).tolist() == highest


@pytest.mark.parametrize("kind", [0, 4, -1])
def test_lsh_refuses_other_types_of_projection(kind: int) -> None:
    args = [tensor(F32, [[1.0]]), ints(1), omitted(F32), scalar(kind)]
    refuses(LSH, args, [output(I32)], f"'type' is {kind}")


def test_lsh_refuses_weights_and_hashes_that_do_not_fit() -> None:
    one, weight = tensor(F32, [[1.0]]), tensor(F32, [1.0])
    args = [one, ints(1), omitted(F32), scalar(DENSE)]
    refuses(LSH, args, [output(I32)], "'weight' must have shape (1,)")
    refuses(LSH, [one, ints(1, 2), weight, scalar(DENSE)], [output(I32)], "shape (2,)")
    refuses(LSH, [one, ints(1), weight, scalar(SPARSE)], [output(I32)], "must be omitted")
    wide = tensor(F32, np.zeros((1, 33)))
    refuses(LSH, [wide, ints(1), omitted(F32), scalar(SPARSE)], [output(I32)], "up to 32")


def test_lsh_rejects_a_weight_of_another_type_than_the_hash() -> None:
    args = [tensor(F32, [[1.0]]), ints(1), tensor(F16, [1.0]), scalar(DENSE)]
    rejects(LSH, args, [output(I32)], "'weight' is TENSOR_FLOAT16")
