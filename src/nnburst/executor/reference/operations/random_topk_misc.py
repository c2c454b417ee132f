"""RANDOM_MULTINOMIAL and TOPK_V2.

NNAPI: Multinomial.cpp, TopK_V2.cpp.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.arithmetic.philox import uniform_doubles
from nnburst.hal.enums import OperationType


def _cumulative(logits: Array) -> npt.NDArray[np.float64]:
    """Sums over the classes of exp(logit - largest logit); only finite logits count."""
    values = logits.astype(np.float64)
    finite = np.isfinite(values)
    largest = np.max(values, axis=1, keepdims=True, where=finite, initial=-np.inf)
    weights = np.exp(np.where(finite, values - largest, -np.inf))
    return np.cumsum(weights, axis=1)


@kernel(OperationType.RANDOM_MULTINOMIAL)
def random_multinomial(node: Node) -> Run:
    """Invert the cumulative distribution of each batch.

    The generator is Philox4x32-10, as in the original; which numbers a pair of seeds gives is no
    part of the contract (NNAPI compares frequencies).
    DEVIATES: RANDOM_MULTINOMIAL gives the last class for a batch without any finite logit; the
    original gives one past it.
    """
    logits, seeds, y = node.tensor("logits").array, node.tensor("seeds").array, node.output().array
    last = logits.shape[1] - 1

    def run() -> None:
        first, second = (int(seed) for seed in seeds)
        if first == 0 and second == 0:
            first, second = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
        cumulative = _cumulative(logits)
        draws = uniform_doubles((first, second), y.size).reshape(y.shape)
        for drawn, sums, classes in zip(draws, cumulative, y, strict=True):
            at = np.searchsorted(sums, drawn * sums[-1], side="right")
            np.minimum(at, last, out=classes, casting="unsafe")

    return run


@kernel(OperationType.TOPK_V2)
def topk_v2(node: Node) -> Run:
    """Sort stably upwards and read backwards: of equal elements the larger index comes first."""
    x, k = node.tensor("input").array, int(node.value("k"))
    values, indices = node.output(0).array, node.output(1).array
    # Sorting reads elements twice: in memory that changes in between it could run astray.
    private = node.scratch(x.shape, x.dtype)

    def run() -> None:
        np.copyto(private, x)
        order = np.argsort(private, axis=-1, kind="stable")[..., ::-1][..., :k]
        np.copyto(values, np.take_along_axis(private, order, axis=-1))
        np.copyto(indices, order, casting="unsafe")

    return run
