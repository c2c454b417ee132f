"""Allocates the memory of a bound request: temporaries share one arena, operations share scratch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nnburst.executor.graph.operation import Node, Run
from nnburst.executor.graph.tensor import Array
from nnburst.hal import late_numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


#: Arrays start at multiples of this: a cache line, and enough for any vector unit.
ALIGNMENT: Final = 64


def aligned_bytes(size: int) -> Array:
    """Uninitialised uint8 memory that starts at a multiple of ALIGNMENT."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def carve(memory: Array, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """The array of `shape` and `dtype` that lies in `memory` (uint8) from `offset` on."""
    return memory[offset : offset + byte_size(shape, dtype)].view(dtype).reshape(shape)


def byte_size(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Bytes of a dense array."""
    return math.prod(shape) * dtype.itemsize


class Block(NamedTuple):
    """The memory that a value needs, and the steps during which it is in use.

    Attributes:
        size: bytes.
        first: number of the step that writes it.
        last: number of the last step that reads it; at least `first`.
    """

    size: int
    first: int
    last: int


def plan(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Place blocks in one arena so that those in use at the same step never overlap.

    Places the largest block first, and each one at the lowest offset that is free while it is in use.

    Returns:
        The offset of each block, and the size of the arena in bytes.
    """
    offsets = [0] * len(blocks)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(blocks)), key=lambda i: -blocks[i].size):
        block = blocks[index]
        rivals = sorted(
            (offsets[i], blocks[i].size)
            for i in placed
            if blocks[i].first <= block.last and block.first <= blocks[i].last
        )
        offset = 0
        for start, size in rivals:
            if offset + block.size <= start:
                break
            offset = max(offset, _aligned(start + size))
        offsets[index] = offset
        placed.append(index)
        total = max(total, offset + block.size)
    return offsets, total


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Scratch:
    """Scratch memory: one operation uses it during its run, and the next one overwrites it.

    `reset` starts the next operation; blocks are only ever added, so that arrays handed out to
    operations that are already bound stay valid. Not thread-safe: one per execution.
    """

    def __init__(self) -> None:
        """Start without memory."""
        self._blocks: list[Array] = []
        self._used: list[int] = []

    def reset(self) -> None:
        """Make all memory free for the next operation."""
        self._used = [0] * len(self._blocks)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Uninitialised memory that no other array of this operation overlaps."""
        size = byte_size(shape, dtype)
        for index, block in enumerate(self._blocks):
            if self._used[index] + size <= block.size:
                break
        else:
            # Doubling keeps the number of blocks small while operations get bigger.
            grown = max(size, 4096, 2 * max((b.size for b in self._blocks), default=0))
            self._blocks.append(aligned_bytes(min(grown, max(4 * size, 4096))))
            self._used.append(0)
            index = len(self._blocks) - 1
        offset = self._used[index]
        self._used[index] = _aligned(offset + size)
        return carve(self._blocks[index], offset, shape, dtype)

    def fill(self, value: int) -> None:
        """Overwrite everything, as other operations do between two runs (for tests)."""
        for block in self._blocks:
            block[...] = value


#: NNAPI: the CPU implementation refuses larger intermediate buffers (kMaxIm2colBufferSizeBytes).
LARGEST_INTERMEDIATE: Final = 2**31 - 1


class Workspace:
    """Arrays by purpose: the same purpose gets the same memory."""

    def __init__(self, node: Node) -> None:
        """Start without memory; arrays come from the scratch memory of `node`."""
        self._node = node
        self._held: dict[str, Array] = {}

    def array(self, purpose: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Uninitialised memory, contiguous.

        Raises:
            OperationFailed: it would take 2**31 - 1 bytes or more (hostile paddings or dilations).
        """
        wanted = np.dtype(dtype)
        held = self._held.get(purpose)
        if held is None or held.size < math.prod(shape) or held.dtype != wanted:
            size = byte_size(shape, wanted)
            self._node.require(
                size < LARGEST_INTERMEDIATE,
                f"an intermediate buffer of {size} bytes exceeds {LARGEST_INTERMEDIATE - 1}",
            )
            held = self._node.scratch((math.prod(shape),), wanted)
            self._held[purpose] = held
        return held[: math.prod(shape)].reshape(shape)


def in_order(steps: Sequence[Run]) -> Run:
    """Return a function that runs all steps, one after the other."""
    if len(steps) == 1:
        return steps[0]
    every = tuple(steps)

    def run() -> None:
        for step in every:
            step()

    return run
