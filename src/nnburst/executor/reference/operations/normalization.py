"""L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION.

NNAPI: L2Normalization.cpp, LocalResponseNormalization.cpp, InstanceNormalization.cpp.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.sliding_window import image_views
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.families.data_movement import resolve_axis
from nnburst.executor.reference.arithmetic.fixed_point import (
    inv_sqrt_quantized_multiplier,
    multiply_by_quantized_multiplier,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES

_SMALLEST_NORM: Final = np.float32(1e-6)


def _slices(node: Node) -> tuple[Array, Array]:
    """Input and output as views whose last axis is the one to normalise."""
    source, out = node.tensor("input").array, node.output().array
    axis = resolve_axis(node, "axis", source.ndim)
    return np.moveaxis(source, axis, -1), np.moveaxis(out, axis, -1)


@kernel(OperationType.L2_NORMALIZATION)
def l2_normalization(node: Node) -> Run:
    """Bind x / max(norm, 1e-6), or its integer counterpart."""
    source, out = _slices(node)
    if node.tensor("input").type in QUANTIZED_RANGES:
        return _quantised_l2(node, source, out)
    squares = node.scratch(source.shape, np.float32)
    norm = node.scratch((*source.shape[:-1], 1), np.float32)

    def run() -> None:
        np.multiply(source, source, out=squares)
        np.sum(squares, axis=-1, keepdims=True, out=norm)
        np.sqrt(norm, out=norm)
        np.maximum(norm, _SMALLEST_NORM, out=norm)
        np.divide(source, norm, out=out)

    return run


def _quantised_l2(node: Node, source: Array, out: Array) -> Run:
    zero_point = node.tensor("input").zero_point
    meta = node.output().meta
    low, high = QUANTIZED_RANGES[meta.type]
    centred = node.scratch(source.shape, np.int64)

    def run() -> None:
        np.copyto(centred, source)
        np.subtract(centred, zero_point, out=centred)
        energy = np.multiply(centred, centred).sum(axis=-1, keepdims=True)
        multiplier, shift = inv_sqrt_quantized_multiplier(energy)
        stored = multiply_by_quantized_multiplier(128 * centred, multiplier, shift)
        np.add(stored, meta.zero_point, out=stored)
        np.clip(stored, low, high, out=stored)
        np.copyto(out, stored, casting="unsafe")

    return run


@kernel(OperationType.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(node: Node) -> Run:
    """Bind x * (bias + alpha * sum of squares) ** -beta."""
    source, out = _slices(node)
    extent = source.shape[-1]
    radius = min(int(node.value("radius")), extent)
    bias, alpha, beta = (np.float32(node.value(name)) for name in ("bias", "alpha", "beta"))
    squares = node.scratch((*source.shape[:-1], extent + 2 * radius), np.float32)
    energy = node.scratch(source.shape, np.float32)
    middle = slice(radius, radius + extent)
    neighbours = [squares[..., d : d + extent] for d in range(2 * radius + 1)]

    def run() -> None:
        squares.fill(0)
        np.multiply(source, source, out=squares[..., middle])
        np.copyto(energy, neighbours[0])
        for neighbour in neighbours[1:]:
            np.add(energy, neighbour, out=energy)
        np.multiply(energy, alpha, out=energy)
        np.add(energy, bias, out=energy)
        np.power(energy, -beta, out=energy)
        np.multiply(source, energy, out=out)

    return run


@kernel(OperationType.INSTANCE_NORMALIZATION)
def instance_normalization(node: Node) -> Run:
    """Bind (x - mean) * gamma / sqrt(variance + epsilon) + beta."""
    source, out = image_views(node)
    gamma, beta, epsilon = (np.float32(node.value(n)) for n in ("gamma", "beta", "epsilon"))
    centred = node.scratch(source.shape, np.float32)
    squares = node.scratch(source.shape, np.float32)
    pixels = (1, 2)

    def run() -> None:
        np.subtract(source, source.mean(axis=pixels, keepdims=True), out=centred)
        np.multiply(centred, centred, out=squares)
        deviation = np.sqrt(squares.mean(axis=pixels, keepdims=True) + epsilon)
        np.multiply(centred, gamma / deviation, out=centred)
        np.add(centred, beta, out=out)

    return run
