"""Pieces of one operation: the scratch memory that they share, and their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.arena import byte_size
from nnburst.executor.graph.operation import Node, Run
from nnburst.executor.graph.tensor import Array

#: NNAPI: the CPU implementation refuses larger intermediate buffers (kMaxIm2colBufferSizeBytes).
LARGEST_INTERMEDIATE: Final = 2**31 - 1


class Workspace:
    """Arrays by purpose: the same purpose gets the same memory."""

    def __init__(self, node: Node) -> None:
        """Hold nothing yet; memory comes from `node`."""
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
    """A run that does all steps, one after the other."""
    if len(steps) == 1:
        return steps[0]
    every = tuple(steps)

    def run() -> None:
        for step in every:
            step()

    return run
