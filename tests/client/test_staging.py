from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst import Device, MissedDeadline, Model
from nnburst.client.staging import ALIGNMENT, Layout, StagingPools


@given(st.lists(st.integers(1, 1000), min_size=1))
def test_layout_places_tensors_aligned_and_apart(lengths: list[int]) -> None:
    layout = Layout()
    offsets = [layout.place(length) for length in lengths]
    ends = [offset + length for offset, length in zip(offsets, lengths, strict=True)]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert all(end <= offset for end, offset in zip(ends, offsets[1:], strict=False))
    assert layout.size == ends[-1]


def test_pool_is_used_again_and_replaced_where_it_is_too_small(device: Device) -> None:
    pools = StagingPools(device.allocate)
    small = pools.take(100)
    pools.release(small)
    assert pools.take(200) is small
    pools.release(small)
    large = pools.take(10_000)
    assert small.closed
    assert large.size >= 10_000
    pools.release(large)
    pools.close()
    assert large.closed


def test_pool_given_back_after_the_end_is_freed(device: Device) -> None:
    pools = StagingPools(device.allocate)
    late = pools.take(1)
    pools.close()
    pools.release(late)
    assert late.closed


def test_two_executions_at_once_have_a_pool_each(device: Device) -> None:
    pools = StagingPools(device.allocate)
    assert pools.take(1) is not pools.take(1)


def test_many_executions_at_once_leave_few_pools_behind(device: Device) -> None:
    pools = StagingPools(device.allocate)
    taken = [pools.take(1) for _ in range(100)]
    for pool in taken:
        pools.release(pool)
    assert [pool.closed for pool in taken] == [False] * 32 + [True] * 68
    assert pools.take(1) is taken[31]


def test_pool_is_not_used_again_after_a_timeout(
    device: Device, make_model: Callable[..., Model]
) -> None:
    a = np.zeros((2, 3), np.float32)
    with device.prepare(make_model()) as model:
        model.execute([a, a])
        used = model._prepared.staging.take(1)
        model._prepared.staging.release(used)
        with pytest.raises(MissedDeadline):
            model.execute([a, a], timeout=1e-9)
        fresh = model._prepared.staging.take(1)
        assert fresh is not used
        model._prepared.staging.release(fresh)
        np.testing.assert_array_equal(model.execute([a, a]).outputs[0], a)
