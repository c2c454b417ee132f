"""Softmax and normalisations: each element by its neighbours along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import naive
from nnburst.testing.models.naive.values import Array

_T = OperationType


def _along(x: Array, axis: int, line: Callable[[list[float]], list[float]]) -> Array:
    """Every line along an axis, computed from its elements."""
    axis %= x.ndim
    result = np.empty(x.shape, object)
    for at in np.ndindex(*x.shape[:axis], *x.shape[axis + 1 :]):
        place = (*at[:axis], slice(None), *at[axis:])
        result[place] = line(list(x[place]))
    return result


def _weights(line: list[float], beta: float) -> list[float]:
    top = max(line)
    return [math.exp((v - top) * beta) for v in line]


@naive(_T.SOFTMAX)
def softmax(x: Array, beta: float, axis: int = -1) -> Array:
    """Shares that add up to 1."""

    def shares(line: list[float]) -> list[float]:
        weights = _weights(line, beta)
        total = math.fsum(weights)
        return [w / total for w in weights]

    return _along(x, axis, shares)


@naive(_T.LOG_SOFTMAX)
def log_softmax(x: Array, beta: float, axis: int) -> Array:
    """Logarithms of the shares."""

    def log_shares(line: list[float]) -> list[float]:
        top, total = max(line), math.log(math.fsum(_weights(line, beta)))
        return [(v - top) * beta - total for v in line]

    return _along(x, axis, log_shares)


@naive(_T.L2_NORMALIZATION)
def l2_normalization(x: Array, axis: int = -1) -> Array:
    """Vectors of length 1."""

    def unit(line: list[float]) -> list[float]:
        length = max(math.sqrt(math.fsum(v * v for v in line)), 1e-6)
        return [v / length for v in line]

    return _along(x, axis, unit)


@naive(_T.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(
    x: Array, radius: int, bias: float, alpha: float, beta: float, axis: int = -1
) -> Array:
    """Each element by the squares around it."""

    def response(line: list[float], k: int) -> float:
        near = line[max(0, k - radius) : k + radius + 1]
        return line[k] * math.pow(bias + alpha * math.fsum(v * v for v in near), -beta)

    return _along(x, axis, lambda line: [response(line, k) for k in range(len(line))])


@naive(_T.INSTANCE_NORMALIZATION)
def instance_normalization(
    x: Array, gamma: float, beta: float, epsilon: float, nchw: bool
) -> Array:
    """Each channel of each batch with mean beta and deviation gamma."""
    result = np.empty(x.shape, object)
    for n, c in np.ndindex(x.shape[0], x.shape[1 if nchw else 3]):
        place = (n, c) if nchw else (n, slice(None), slice(None), c)
        pixels = [float(v) for v in x[place].flat]
        mean = math.fsum(pixels) / len(pixels)
        variance = math.fsum((v - mean) ** 2 for v in pixels) / len(pixels)
        result[place] = (x[place] - mean) * (gamma / math.sqrt(variance + epsilon)) + beta
    return result
