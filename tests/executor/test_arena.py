"""Planned memory never overlaps while it is in use."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nnburst.executor.graph.memory import ALIGNMENT, Block, Scratch, aligned_bytes, carve, plan

_BLOCKS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 9), st.integers(0, 9)).map(
        lambda t: Block(t[0], min(t[1:]), max(t[1:]))
    ),
    max_size=12,
)


@given(_BLOCKS)
def test_blocks_alive_at_the_same_step_do_not_overlap(blocks: list[Block]) -> None:
    offsets, total = plan(blocks)
    for i, a in enumerate(blocks):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] + a.size <= total
        for j, b in enumerate(blocks[:i]):
            together = a.first <= b.last and b.first <= a.last
            apart = offsets[i] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[i]
            assert not together or apart or not a.size or not b.size


def test_memory_of_a_dead_block_is_used_again() -> None:
    _, total = plan([Block(1000, 0, 1), Block(1000, 1, 2), Block(1000, 2, 3), Block(1000, 3, 4)])
    assert total < 3000


def test_arena_memory_is_aligned() -> None:
    memory = aligned_bytes(100)
    assert memory.size == 100
    assert memory.ctypes.data % ALIGNMENT == 0


@given(st.lists(st.lists(st.integers(0, 9000), max_size=4), min_size=1, max_size=6))
def test_scratch_of_one_operation_does_not_overlap(operations: list[list[int]]) -> None:
    scratch = Scratch()
    for sizes in operations:
        scratch.reset()
        arrays = [scratch.allocate((size,), np.dtype(np.uint8)) for size in sizes]
        for number, array in enumerate(arrays):
            array[...] = number
        assert all((array == number).all() for number, array in enumerate(arrays))


def test_scratch_is_shared_by_operations_and_earlier_arrays_stay_valid() -> None:
    scratch = Scratch()
    scratch.reset()
    first = scratch.allocate((1000,), np.dtype(np.float32))
    scratch.reset()
    second = scratch.allocate((1000,), np.dtype(np.float32))
    assert np.shares_memory(first, second)
    scratch.reset()
    bigger = scratch.allocate((100_000,), np.dtype(np.float32))
    bigger[...] = 1
    first[...] = 2
    assert (bigger == 1).all()


def test_carved_arrays_lie_at_their_offset_even_unaligned() -> None:
    memory = np.zeros(64, np.uint8)
    carve(memory, 3, (2, 2), np.dtype("<i2"))[...] = [[1, 2], [3, 4]]
    assert memory[3:11].view("<i2").tolist() == [1, 2, 3, 4]
    assert not memory[11:].any()
