"""Softmax and normalisations: each element by its neighbours along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import naive
from nnburst.testing.models.naive.values import Array, Index, build

_T = OperationType


def _along(x: Array, axis: int, element: Callable[[list[float], int], float]) -> Array:
    axis %= x.ndim

    def at(index: Index) -> float:
        line = [x[(*index[:axis], k, *index[axis + 1 :])] for k in range(x.shape[axis])]
        return element(line, index[axis])

    return build(x.shape, at)


@naive(_T.SOFTMAX)
def softmax(x: Array, beta: float, axis: int = -1) -> Array:
    """Shares that add up to 1."""

    def share(line: list[float], k: int) -> float:
        top = max(line)
        weights = [math.exp((v - top) * beta) for v in line]
        return weights[k] / math.fsum(weights)

    return _along(x, axis, share)


@naive(_T.LOG_SOFTMAX)
def log_softmax(x: Array, beta: float, axis: int) -> Array:
    """Logarithms of the shares."""

    def log_share(line: list[float], k: int) -> float:
        top = max(line)
        total = math.fsum(math.exp((v - top) * beta) for v in line)
        return (line[k] - top) * beta - math.log(total)

    return _along(x, axis, log_share)


@naive(_T.L2_NORMALIZATION)
def l2_normalization(x: Array, axis: int = -1) -> Array:
    """Vectors of length 1."""

    def unit(line: list[float], k: int) -> float:
        return line[k] / max(math.sqrt(math.fsum(v * v for v in line)), 1e-6)

    return _along(x, axis, unit)


@naive(_T.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(
    x: Array, radius: int, bias: float, alpha: float, beta: float, axis: int = -1
) -> Array:
    """Each element by the squares around it."""

    def response(line: list[float], k: int) -> float:
        near = line[max(0, k - radius) : k + radius + 1]
        return line[k] * math.pow(bias + alpha * math.fsum(v * v for v in near), -beta)

    return _along(x, axis, response)


@naive(_T.INSTANCE_NORMALIZATION)
def instance_normalization(
    x: Array, gamma: float, beta: float, epsilon: float, nchw: bool
) -> Array:
    """Each channel of each batch with mean beta and deviation gamma."""

    def element(at: Index) -> float:
        plane = x[at[0], at[1]] if nchw else x[at[0], :, :, at[3]]
        pixels = [float(v) for v in plane.flat]
        mean = math.fsum(pixels) / len(pixels)
        variance = math.fsum((v - mean) ** 2 for v in pixels) / len(pixels)
        return float(x[at] - mean) * gamma / math.sqrt(variance + epsilon) + beta

    return build(x.shape, element)
