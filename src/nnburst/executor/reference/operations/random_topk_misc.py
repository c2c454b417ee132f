"""RANDOM_MULTINOMIAL and TOPK_V2.

NNAPI: Multinomial.cpp, TopK_V2.cpp.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    I32,
    INT32,
    Q8,
    Q8S,
    V1_2,
    control,
    data,
    index,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.arithmetic.philox import uniform_doubles
from nnburst.hal.enums import ErrorStatus, OperationType


def _multinomial_shape(node: Node) -> list[TensorType]:
    logits, seeds = node.tensor("logits").shape, node.tensor("seeds").shape
    count = int(node.value("sample_count"))
    node.require(len(logits) == 2, f"operand 'logits' has rank {len(logits)}, expected 2")
    node.require(seeds == (2,), f"operand 'seeds' has shape {seeds}, expected (2,)")
    node.require(count > 0, f"operand 'sample_count' is {count}, expected more than 0")
    return [node.like_declared((logits[0], count))]


def _cumulative(logits: Array) -> npt.NDArray[np.float64]:
    """Sums over the classes of exp(logit - largest logit); only finite logits count."""
    values = logits.astype(np.float64)
    finite = np.isfinite(values)
    largest = np.max(values, axis=1, keepdims=True, where=finite, initial=-np.inf)
    weights = np.exp(np.where(finite, values - largest, -np.inf))
    return np.cumsum(weights, axis=1)


@operation(
    signature(
        OperationType.RANDOM_MULTINOMIAL,
        V1_2,
        "Draws classes at random by their unnormalised log probabilities; seeds other than (0, 0)"
        " make the draw repeatable.",
        inputs=[data("logits"), control("sample_count", INT32), index("seeds")],
        outputs=[data("output", I32)],
        rows=rows(V1_2=[F16, F32]),
    ),
    shape=_multinomial_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
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


def _topk_shape(node: Node) -> list[TensorType]:
    meta, k = node.tensor("input").meta, int(node.value("k"))
    node.require(len(meta.dimensions) > 0, "operand 'input' has rank 0")
    extent = meta.dimensions[-1]
    node.require(0 < k <= extent, f"operand 'k' is {k}, expected [1, {extent}]")
    dimensions = (*meta.dimensions[:-1], k)
    kind = node.declared(0).type
    values = TensorType(kind, dimensions, meta.scale, meta.zero_point, meta.extra_params)
    return [values, node.like_declared(dimensions, 1)]


@operation(
    signature(
        OperationType.TOPK_V2,
        V1_2,
        "Finds the k largest elements along the last dimension and where they are; of equal ones"
        " the larger index comes first.",
        inputs=[data("input"), control("k", INT32)],
        outputs=[data("values"), data("indices", I32)],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_topk_shape,
)
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
