"""What float recurrent operations share: activations, the time axis, auxiliary inputs, weights.

Functions that take a node only read it; arrays that they return live as long as its binding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operand_dimensions import require_rank
from nnburst.executor.graph.operation import Node, Run
from nnburst.executor.graph.tensor import Array, TensorType

#: Applies an activation to an array in place.
Activation = Callable[[Array], None]


class Linking(Enum):
    """What a bidirectional operation does with its auxiliary input (BIDIRECTIONAL_SEQUENCE_*)."""

    #: No activation.
    NONE = "no auxiliary input"
    #: It is what the backward direction reads instead of the input.
    PARALLEL = "auxiliary input without weights"
    #: Both directions add it to the input, through weights of its own.
    CROSS = "auxiliary input with weights"


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


def require_activation(node: Node, accepted: Collection[int]) -> None:
    """Refuse a code of operand 'activation' that is not among `accepted`."""
    code = node.value("activation")
    node.require(
        code in accepted, f"operand 'activation' is {code}, expected one of {sorted(accepted)}"
    )


def activation(node: Node) -> Activation:
    """The activation that operand 'activation' chooses.

    NONE (0), RELU (1), RELU1 (2), RELU6 (3), TANH (4), SIGMOID (6); unlike in other operations NONE
    leaves infinities alone.
    """
    return _ACTIVATIONS[node.value("activation")]


def sequence_extents(node: Node, *, time_major: bool) -> tuple[int, int, int]:
    """Time, batch and width of operand 'input'."""
    first, second, width = require_rank(node, "input", 3)
    return (first, second, width) if time_major else (second, first, width)


def sequence_dimensions(node: Node, width: int) -> tuple[int, ...]:
    """Dimensions of a sequence as long as operand 'input', in the same layout, of other width."""
    return (*node.tensor("input").shape[:2], width)


def results(node: Node, *dimensions: tuple[int, ...]) -> list[TensorType]:
    """As many outputs as are declared, of these dimensions."""
    count = len(node.outputs_declared)
    return [node.like_declared(d, at) for at, d in enumerate(dimensions[:count])]


def require_merged_count(node: Node, states: int) -> None:
    """Refuse a number of outputs that operand 'merge_outputs' does not give.

    Args:
        node: a bidirectional operation.
        states: how many outputs the states of both directions are.
    """
    merged, count = node.value("merge_outputs"), len(node.outputs_declared)
    sequences = 1 if merged else 2
    node.require(
        count in (sequences, sequences + states),
        f"operand 'merge_outputs' is {merged}, which gives {sequences} outputs"
        f" ({sequences + states} with states), not {count}",
    )


def linking(node: Node, aux_weights: Sequence[str]) -> Linking:
    """How operand 'aux_input' takes part; `aux_weights` names its weights, which go together.

    Raises:
        OperationFailed: some weights are missing, or they are there without the auxiliary input.
    """
    given = [name for name in aux_weights if node.find(name) is not None]
    missing = next((name for name in aux_weights if name not in given), None)
    node.require(
        not given or missing is None,
        f"operand '{missing}' is omitted although other weights of 'aux_input' are given",
    )
    if node.find("aux_input") is None:
        node.require(not given, "weights of 'aux_input' are given although it is omitted")
        return Linking.NONE
    return Linking.CROSS if given else Linking.PARALLEL


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
