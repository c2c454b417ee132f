"""What float recurrent operations share: activations, the time axis, auxiliary inputs, weights.

Functions that take a node only read it; arrays that they return live as long as its binding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run
from nnburst.executor.graph.tensor import Array

#: Applies an activation to an array in place.
Activation = Callable[[Array], None]


def sigmoid(x: Array) -> None:
    """Logistic function in place; float overflow of exp is meant to give 0."""
    np.negative(x, out=x)
    np.exp(x, out=x)
    np.add(x, 1, out=x)
    np.reciprocal(x, out=x)


def _none(x: Array) -> None:
    """Leave it as it is."""


def _relu(x: Array) -> None:
    np.maximum(x, 0, out=x)


def _relu1(x: Array) -> None:
    np.clip(x, -1, 1, out=x)


def _relu6(x: Array) -> None:
    np.clip(x, 0, 6, out=x)


def _tanh(x: Array) -> None:
    np.tanh(x, out=x)


_ACTIVATIONS: Final[dict[int, Activation]] = {
    0: _none,
    1: _relu,
    2: _relu1,
    3: _relu6,
    4: _tanh,
    6: sigmoid,
}


def activation(node: Node) -> Activation:
    """The activation that operand 'activation' chooses.

    NONE (0), RELU (1), RELU1 (2), RELU6 (3), TANH (4), SIGMOID (6); unlike in other operations NONE
    leaves infinities alone.
    """
    return _ACTIVATIONS[node.value("activation")]


def by_time(array: Array, *, time_major: bool) -> Array:
    """View of a sequence [time, batch, …] or [batch, time, …] with the time axis first."""
    return array if time_major else array.swapaxes(0, 1)


def time_steps(count: int, *, backward: bool) -> range:
    """The order in which a direction reads (and writes) `count` time steps."""
    return range(count - 1, -1, -1) if backward else range(count)


def pack(node: Node, names: Sequence[str], dtype: npt.DTypeLike) -> tuple[Array, Run]:
    """Several operands one below the other in one array, so that one product serves them all.

    Returns:
        The array and what must run before it is read: nothing if all are constants.
    """
    parts = [node.tensor(name).array for name in names]

    def build() -> Array:
        return np.concatenate(parts, dtype=np.dtype(dtype))

    if all(node.is_constant(name) for name in names):
        return node.constant(("packed", *names), build), _nothing
    rows = sum(len(part) for part in parts)
    packed = node.scratch((rows, *parts[0].shape[1:]), dtype)

    def refresh() -> None:
        np.concatenate(parts, out=packed)

    return packed, refresh


def _nothing() -> None:
    """There is nothing to refresh."""
