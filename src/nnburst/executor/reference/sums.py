"""Turns sums of products into outputs, for the convolutions and FULLY_CONNECTED.

A kernel computes `sums = rows @ matrix` its own way (GEMM, shifted multiply-adds) in `dtype`; the
rest is here: the filter as a matrix, the bias, and `finish`, which turns sums into the output.

Quantised sums are taken over raw bytes, Σ x·(w - zw), and the input's zero point joins the bias:
Σ (x - zx)·(w - zw) = Σ x·(w - zw) - zx·Σ (w - zw). A padding cell then holds zx. Floating-point
units add these integers exactly, in any order, while no partial sum can exceed the mantissa: float32
if the largest possible sum is ≤ 2**24, else float64 (2**53, beyond any tensor's size).

NNAPI: Conv2D.cpp, FullyConnected.cpp; spec: bias scale, per-channel scales, zero points.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nnburst.executor.graph.memory import Workspace
from nnburst.executor.graph.operation import Node, Run
from nnburst.executor.graph.tensor import Array, Tensor
from nnburst.executor.reference.fixed_point import Requantization
from nnburst.executor.reference.quantized import float_activation_range
from nnburst.hal.enums import OperandType
from nnburst.hal.model import QUANTIZED_RANGES, SymmPerChannelQuantParams

_FLOAT32: Final = np.dtype(np.float32)
_FLOAT64: Final = np.dtype(np.float64)
_EXACT_FLOAT32: Final = 1 << 24

#: Returns a [terms, columns] view of an array in the filter's layout.
FilterView = Callable[[Array], Array]

#: (sums, out, workspace) -> run. `sums` is [rows, repeat * columns], contiguous; `out` has as many
#: elements in any shape and memory order, and may be the memory of float sums.
Finish = Callable[[Array, Array, Workspace], Run]


@dataclass(frozen=True, slots=True)
class Sums:
    """The filter as a matrix, and the way from sums to the output.

    Attributes:
        dtype: type of the left operand and of the sums.
        padding: value of a padding cell in the left operand.
        matrix: [terms, columns] of `dtype`.
        prepare: called at the start of each run; recomputes what depends on operands that are not constant.
        bind_finish: returns the run that turns sums into the output.
        in_place: sums may be computed right in the output.
    """

    dtype: np.dtype[Any]
    padding: float
    matrix: Array
    prepare: tuple[Run, ...]
    bind_finish: Finish
    in_place: bool


def bind_sums(node: Node, filter_name: str, view: FilterView, repeat: int = 1) -> Sums:
    """The sums of a node with operands 'input', `filter_name`, 'bias' and 'activation'.

    Args:
        node: a bound node.
        filter_name: name of the operand that holds the filter.
        view: how the filter becomes a matrix.
        repeat: how often the columns come in one row of sums.
    """
    if node.tensor("input").type in QUANTIZED_RANGES:
        return _quantized_sums(node, filter_name, view, repeat)
    return _float_sums(node, filter_name, view, repeat)


def product_scales(source: Tensor, weights: Tensor) -> Array:
    """Unit of the sums: float32 products of scales, one or one per channel."""
    scales: Sequence[float] = (weights.scale,)
    if isinstance(weights.meta.extra_params, SymmPerChannelQuantParams):
        scales = weights.meta.extra_params.scales
    return np.float32(source.scale) * np.asarray(scales, np.float32)


def largest_magnitude(kind: OperandType) -> int:
    """Largest absolute stored value of a quantised type."""
    low, high = QUANTIZED_RANGES[kind]
    return max(-low, high)


def exact_dtype(largest_sum: int) -> np.dtype[Any]:
    """The narrower float type in which sums up to `largest_sum` are exact."""
    return _FLOAT32 if largest_sum <= _EXACT_FLOAT32 else _FLOAT64


def kept(
    node: Node,
    names: Sequence[str],
    key: Hashable,
    empty: Callable[[Callable[..., Array]], Any],
    fill: Callable[[Any], None],
) -> tuple[Any, tuple[Run, ...]]:
    """Arrays that depend on the operands `names`: computed once if these are constants.

    Args:
        node: a bound node.
        names: the operands.
        key: identifies the arrays at this node; names everything else that they depend on.
        empty: given an allocator (shape, dtype), makes the arrays.
        fill: computes their elements in place.

    Returns:
        The arrays, and the functions to call at the start of each run (none for constants).
    """
    if all(node.is_constant(name) for name in names):

        def build() -> Any:  # noqa: ANN401
            made = empty(np.empty)
            fill(made)
            return made

        return node.constant(key, build), ()
    made = empty(node.scratch)
    return made, (lambda: fill(made),)


def _float_sums(node: Node, filter_name: str, view: FilterView, repeat: int) -> Sums:
    addend, prepare = repeated_bias(node, repeat, _FLOAT32)
    matrix = view(node.tensor(filter_name).array)
    finish = float_finish(node, addend)
    return Sums(_FLOAT32, 0.0, matrix, prepare, finish, in_place=True)


def _quantized_sums(node: Node, filter_name: str, view: FilterView, repeat: int) -> Sums:
    source, weights, bias = (node.tensor(n) for n in ("input", filter_name, "bias"))
    raw = view(weights.array)
    terms, columns = raw.shape
    dtype = sum_dtype(node, filter_name, raw, largest_magnitude(source.type))

    def empty(allocate: Callable[..., Array]) -> tuple[Array, Array]:
        return allocate((terms, columns), dtype), allocate((repeat * columns,), _FLOAT64)

    def fill(made: tuple[Array, Array]) -> None:
        matrix, offset = made
        np.subtract(raw, dtype.type(weights.zero_point), out=matrix)
        column_sums = matrix.sum(axis=0, dtype=_FLOAT64)
        np.copyto(offset.reshape(repeat, columns), bias.array - source.zero_point * column_sums)

    names = [filter_name, "bias"]
    (matrix, offset), prepare = kept(node, names, ("sums", repeat, source.zero_point), empty, fill)
    finish = quantized_finish(node, filter_name, offset, repeat)
    return Sums(dtype, float(source.zero_point), matrix, prepare, finish, in_place=False)


def repeated_bias(node: Node, repeat: int, dtype: np.dtype[Any]) -> tuple[Array, tuple[Run, ...]]:
    """The bias, `repeat` times in a row, and the functions to call in each run to fill it."""
    bias = node.tensor("bias").array
    addend, prepare = kept(
        node,
        ["bias"],
        ("bias", repeat),
        lambda allocate: allocate((repeat * bias.size,), dtype),
        lambda made: np.copyto(made.reshape(repeat, bias.size), bias),
    )
    return addend, prepare


def float_finish(node: Node, addend: Array) -> Finish:
    """Adds the bias and clamps to the activation's range."""
    low, high = float_activation_range(node.value("activation"))

    def bind_finish(sums: Array, out: Array, _workspace: Workspace) -> Run:
        shaped = sums.reshape(out.shape)

        def finish() -> None:
            np.add(sums, addend, out=sums)
            np.clip(shaped, low, high, out=out)

        return finish

    return bind_finish


def quantized_finish(node: Node, filter_name: str, offset: Array, repeat: int) -> Finish:
    """Adds `offset`, requantises and clamps to the activation's range."""
    requantization = Requantization.of(
        product_scales(node.tensor("input"), node.tensor(filter_name)),
        node.output().meta,
        node.value("activation"),
    ).tiled(repeat)

    def bind_finish(sums: Array, out: Array, workspace: Workspace) -> Run:
        return requantization.bind(sums, offset, out, workspace)

    return bind_finish


def sum_dtype(node: Node, filter_name: str, raw: Array, largest: int) -> np.dtype[Any]:
    """Float type in which the sums are exact: for this filter, or for any if it is not a constant.

    Args:
        node: a bound node.
        filter_name: name of the operand that holds the filter.
        raw: [terms, columns] view of its stored numbers.
        largest: largest magnitude of the left operand.
    """
    zero_point = node.tensor(filter_name).zero_point
    if not node.is_constant(filter_name):
        return exact_dtype(raw.shape[0] * largest * 255)

    def heaviest() -> int:
        return int(np.abs(raw.astype(np.int64) - zero_point).sum(axis=0).max())

    return exact_dtype(largest * node.constant("heaviest column", heaviest))
