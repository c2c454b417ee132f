"""A request to pack is the model and its pools, or is refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.driver.weights_client import read_pack_request, write_pack_request
from nnburst.executor.base import DEFAULT_OPTIONS, PrepareOptions
from nnburst.fmq.shared_memory import checked_size
from nnburst.hal.enums import OperandType, OperationType, Priority
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder


def model_of(*sizes: int) -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (4,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (4,))
    builder.operation(OperationType.ABS, [x], [y])
    return builder.build(pools=[MemoryPool(size) for size in sizes])


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=4), st.integers(0, 8))
def test_offer_reads_as_it_was_written(pools: list[bytes], threads: int) -> None:
    model = model_of(*map(len, pools))
    options = PrepareOptions(priority=Priority.LOW, num_threads=threads)
    fd = write_pack_request(model, [memoryview(pool) for pool in pools], options)
    try:
        assert checked_size(fd, is_final=True) == os.fstat(fd).st_size
        found, views, found_options = read_pack_request(fd)
    finally:
        os.close(fd)
    assert (found, found_options) == (model, options)
    assert [view.tobytes() for view in views] == pools
    assert all(view.ctypes.data % 64 == 0 for view in views)


@given(st.data())
def test_mutated_offer_is_read_or_refused(data: st.DataObject) -> None:
    fd = write_pack_request(model_of(64), [memoryview(bytes(range(64)))], DEFAULT_OPTIONS)
    content = bytearray(os.pread(fd, 1 << 16, 0))
    os.close(fd)
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(1, len(content))) :]
    mutated = os.memfd_create("pack_request")
    try:
        os.write(mutated, content)
        model, views, _ = read_pack_request(mutated)
        assert [view.size for view in views] == [pool.size for pool in model.pools]
    except InvalidArgument:
        pass
    finally:
        os.close(mutated)


def test_file_that_could_change_is_not_an_offer() -> None:
    fd = os.memfd_create("pack_request", os.MFD_ALLOW_SEALING)
    try:
        with pytest.raises(InvalidArgument, match="seals"):
            checked_size(fd, is_final=True)
    finally:
        os.close(fd)
