"""What operations that only move elements have in common.

Kernels of such operations bind pairs of views of equal shape, destination and source; running
copies them. All arrays of a `Node` are C-contiguous, so `reshape` on them is a view.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run
from nnburst.executor.graph.tensor import Array


def copies(*pairs: tuple[Array, Array]) -> Run:
    """A run that copies each (destination, source), in order."""
    if len(pairs) == 1:
        destination, source = pairs[0]
        return lambda: np.copyto(destination, source)

    def run() -> None:
        for destination, source in pairs:
            np.copyto(destination, source)

    return run


def require_in_range(node: Node, name: str, indices: Array, extent: int) -> None:
    """Fail unless all of `indices`, the private copy of operand `name`, are in [0, extent).

    There is at least one: no operation that takes indices accepts empty tensors.
    """
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= extent:
        raise node.failure(
            f"operand '{name}' has values from {low} to {high}, expected [0, {extent - 1}]"
        )
