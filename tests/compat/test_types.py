"""Extension type encodings, and the originals' helpers on types and performance tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compat.strategies import EXTENSION, FL, T, flt_max
from nnburst.compat.layouts import (
    is_extension_operand_type,
    is_extension_operation_type,
    non_extension_operand_size_of_data,
    non_extension_operand_size_of_data_overflows_uint32,
    non_extension_operand_type_is_scalar,
    non_extension_size_of_data,
    tensor_has_unspecified_dimensions,
)
from nnburst.compat.model import decode, encode
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import Operand
from nnburst.hal.types import (
    FLT_MAX,
    UNLISTED,
    OperandPerformance,
    PerformanceInfo,
    lookup,
    non_extension_operand_performance,
    update,
)

FAST = PerformanceInfo(0.5, 0.25)


def test_halves_of_the_specification_s_example() -> None:
    assert decode(0xAAAABBBB) == (0xAAAA, 0xBBBB)
    assert encode(0xAAAA, 0xBBBB) == 0xAAAABBBB


@given(st.integers(1, 0xFFFF), st.integers(0, 0xFFFF))
def test_hidl_has_16_bits_of_prefix(prefix: int, kind: int) -> None:
    code = encode(prefix, kind, FL.V1_2)
    assert decode(code) == decode(code - 2**32 if code >= 2**31 else code) == (prefix, kind)


def test_aidl_has_15_bits_of_prefix() -> None:
    assert decode(encode(0x7FFF, 0xFFFF, FL.AIDL_V1)) == (0x7FFF, 0xFFFF)
    with pytest.raises(InvalidArgument, match="prefix"):
        encode(0x8000, 0, FL.AIDL_V1)


@pytest.mark.parametrize(("prefix", "kind"), [(0, 1), (-1, 1), (0x10000, 1), (1, -1), (1, 0x10000)])
def test_halves_out_of_range_are_not_encoded(prefix: int, kind: int) -> None:
    with pytest.raises(InvalidArgument, match=r"prefix|type_within"):
        encode(prefix, kind)


@pytest.mark.parametrize("code", [0, 15, 10001, 0xFFFF, 2**32, -(2**31) - 1])
def test_core_types_and_longer_numbers_are_not_decoded(code: int) -> None:
    with pytest.raises(InvalidArgument, match="no extension"):
        decode(code)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, False), (0xFFFF, False), (0x10000, True), (0xFFFFFFFF, True), (-1, True)],
)
def test_extension_types_are_recognised_by_unsigned_comparison(code: int, expected: bool) -> None:
    assert is_extension_operand_type(code) is expected
    assert is_extension_operation_type(code) is expected


def test_scalars_and_tensors_are_distinguished() -> None:
    assert non_extension_operand_type_is_scalar(T.BOOL)
    assert not non_extension_operand_type_is_scalar(T.TENSOR_BOOL8)
    with pytest.raises(InvalidArgument, match="core"):
        non_extension_operand_type_is_scalar(EXTENSION)


def test_size_is_elements_times_element_size_or_0() -> None:
    assert non_extension_size_of_data(T.TENSOR_FLOAT16, (2, 3)) == 12
    assert non_extension_size_of_data(T.INT32, ()) == 4
    assert non_extension_size_of_data(T.TENSOR_INT32, ()) == 0
    assert non_extension_size_of_data(T.TENSOR_INT32, (2, 0)) == 0
    assert non_extension_operand_size_of_data(Operand(T.TENSOR_INT32, (5,))) == 20


def test_size_beyond_uint32_is_an_error_and_no_abort() -> None:
    largest = (UINT32_MAX,)
    assert non_extension_size_of_data(T.TENSOR_BOOL8, largest) == UINT32_MAX
    assert not non_extension_operand_size_of_data_overflows_uint32(T.TENSOR_BOOL8, largest)
    for kind, shape in ((T.TENSOR_BOOL8, (65536, 65536)), (T.TENSOR_FLOAT32, (2**30,))):
        assert non_extension_operand_size_of_data_overflows_uint32(kind, shape)
        with pytest.raises(InvalidArgument, match="O5"):
            non_extension_size_of_data(kind, shape)


def test_unspecified_dimensions_are_empty_or_zeros() -> None:
    assert tensor_has_unspecified_dimensions(T.TENSOR_FLOAT32, ())
    assert tensor_has_unspecified_dimensions(T.TENSOR_FLOAT32, (2, 0))
    assert not tensor_has_unspecified_dimensions(T.TENSOR_FLOAT32, (2, 1))
    assert tensor_has_unspecified_dimensions(EXTENSION, ())


def test_scalar_has_no_dimensions_to_ask_for_and_nothing_aborts() -> None:
    with pytest.raises(InvalidArgument, match="FLOAT32 is not a tensor"):
        tensor_has_unspecified_dimensions(T.FLOAT32, ())


@pytest.mark.parametrize(
    ("level", "last", "count"),
    [(FL.V1_0, 5, 8), (FL.V1_2, 13, 16), (FL.V1_3, 14, 17)],
)
def test_performance_table_lists_every_type_but_subgraph(level: FL, last: int, count: int) -> None:
    table = non_extension_operand_performance(FAST, level)
    types = [entry.type for entry in table]
    assert types == [*range(last + 1), 10000, 10001]
    assert len(types) == count
    assert {entry.info for entry in table} == {FAST}


def test_update_replaces_one_entry() -> None:
    table = non_extension_operand_performance(FAST)
    slow = PerformanceInfo(9.0, 9.0)
    updated = update(table, T.TENSOR_BOOL8, slow)
    assert lookup(updated, T.TENSOR_BOOL8) == slow
    assert sum(a != b for a, b in zip(table, updated, strict=True)) == 1


def test_update_of_an_unlisted_type_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="SUBGRAPH"):
        update(non_extension_operand_performance(FAST), T.SUBGRAPH, FAST)


def test_lookup_of_an_unlisted_type_is_float_max_and_not_the_next_entry() -> None:
    table = (OperandPerformance(T.TENSOR_FLOAT32, FAST), OperandPerformance(T.OEM, FAST))
    assert lookup(table, T.TENSOR_INT32) == UNLISTED == PerformanceInfo(flt_max(), flt_max())
    assert lookup(table, T.TENSOR_OEM_BYTE) == UNLISTED
    assert lookup(table, T.TENSOR_FLOAT32) == FAST
    assert flt_max() == FLT_MAX
