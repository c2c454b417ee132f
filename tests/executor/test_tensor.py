"""A tensor's elements are the same whether they are known as an array, as bytes or as numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.executor.base import Argument, Pools, memory_of
from nnburst.executor.graph.tensor import Tensor, TensorType, float32, float32_products
from nnburst.hal.enums import OperandType
from nnburst.hal.model import DTYPES, ELEMENT_BYTES


@pytest.mark.parametrize("kind", DTYPES, ids=lambda kind: kind.name)
@given(data=st.data())
def test_elements_are_the_same_as_bytes_as_numbers_and_as_an_array(
    kind: OperandType, data: st.DataObject
) -> None:
    dtype = DTYPES[kind]
    meta = TensorType(kind, (2, 3))
    stored = data.draw(st.binary(min_size=6 * dtype.itemsize, max_size=6 * dtype.itemsize))
    array = np.frombuffer(stored, dtype).reshape(2, 3)
    tensor = Tensor.of_stored(meta, stored)
    assert dtype.itemsize == ELEMENT_BYTES[kind] == meta.element_bytes
    assert len(stored) == meta.byte_size
    np.testing.assert_array_equal(tensor.numbers, Tensor(meta, array).numbers)
    np.testing.assert_array_equal(tensor.array, array)
    assert (tensor.array.dtype, tensor.array.flags.writeable) == (dtype, False)


@pytest.mark.parametrize("kind", DTYPES, ids=lambda kind: kind.name)
def test_bytes_at_an_odd_address_become_an_aligned_array(kind: OperandType) -> None:
    meta = TensorType(kind, (4,))
    stored = memoryview(bytes(range(1 + meta.byte_size)))[1:]
    array = Tensor.of_stored(meta, stored).array
    assert array.flags.aligned
    assert array.tobytes() == bytes(stored)


def test_scalar_and_empty_tensor_have_as_many_numbers_as_elements() -> None:
    scalar = TensorType(OperandType.INT32, ())
    empty = TensorType(OperandType.TENSOR_INT32, (2, 0))
    assert Tensor.of_numbers(scalar, [-7]).numbers == [-7]
    assert Tensor.of_numbers(scalar, [-7]).array.shape == ()
    assert Tensor.of_numbers(empty, []).numbers == []
    assert Tensor.of_numbers(empty, []).array.shape == (2, 0)


def test_tensor_of_a_known_type_alone_has_zeros_that_take_no_memory() -> None:
    tensor = Tensor.of_unknown(TensorType(OperandType.TENSOR_FLOAT32, (1 << 20, 1 << 20)))
    assert tensor.stored is None
    assert tensor.array.strides == (0, 0)
    assert tensor.array[-1, -1] == 0


@pytest.mark.filterwarnings("ignore:overflow")
@given(st.floats(allow_nan=False), st.lists(st.floats(allow_nan=False)))
def test_products_are_those_of_float32(x: float, others: list[float]) -> None:
    with np.errstate(all="ignore"):
        wanted = np.float32(x) * np.array(others, np.float32)
    np.testing.assert_array_equal(np.array(float32_products(x, others), np.float32), wanted)


@pytest.mark.filterwarnings("ignore:overflow")
@given(st.floats(allow_nan=False))
def test_number_is_rounded_to_float32(number: float) -> None:
    with np.errstate(all="ignore"):
        assert float32(number) == np.float32(number)


def test_argument_is_the_same_memory_as_bytes_and_as_an_array() -> None:
    content = bytearray(8)
    for argument in (
        Argument(memoryview(content)[2:6], (4,)),
        Argument(np.frombuffer(content, np.uint8)[2:6], (4,)),
    ):
        assert argument.buffer is not None
        assert argument.memory is not None
        argument.buffer[0] += 1
        argument.memory[1] += 2
        assert argument.buffer is argument.buffer
        assert argument.dimensions == (4,)
    assert list(content) == [0, 0, 2, 4, 0, 0, 0, 0]
    assert (Argument(None, ()).buffer, Argument(None, ()).memory) == (None, None)
    inputs = Argument(memoryview(content).toreadonly(), (8,))
    assert inputs.buffer is not None
    assert not inputs.buffer.flags.writeable


def test_pools_are_a_sequence_of_arrays_over_the_same_memory() -> None:
    contents = [bytearray(b"abc"), bytearray(b"de")]
    pools = Pools([memoryview(content) for content in contents])
    arrays = [np.frombuffer(content, np.uint8) for content in contents]
    assert [bytes(pool) for pool in pools] == [b"abc", b"de"]
    assert bytes(pools[-1]) == b"de"
    assert [bytes(pool) for pool in pools[1:]] == [b"de"]
    assert len(pools) == 2
    assert pools[0] is pools[0]
    with pytest.raises(IndexError):
        _ = pools[2]
    assert [bytes(memory_of(given, 1)) for given in (pools, arrays)] == [b"de", b"de"]
