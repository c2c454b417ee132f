"""Kernels of the RNN operations and SVDF, and the parts that all float recurrent kernels share.

The shared parts come first: activations, the time axis, packed weights. Functions that take a node
only read it; arrays that they return live as long as its binding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.recurrence import AUX_WEIGHTS, Linking, linking
from nnburst.hal.enums import OperationType

# -- Shared by float recurrent kernels -------------------------------------------------------------

#: Applies an activation to an array in place.
Activation = Callable[[Array], None]


def sigmoid(x: Array, out: Array) -> None:
    """Write the logistic function of x to `out`, which may be x; overflow of exp correctly gives 0.

    `np.negative` is avoided: numpy 2 computes it wrongly between strided arrays (see `numpy_functions`).
    """
    np.multiply(x, -1, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def _sigmoid(x: Array) -> None:
    sigmoid(x, x)


def _none(x: Array) -> None:
    """Leave x unchanged."""


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
    6: _sigmoid,
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
    """Pack several operands below each other in one array, so that one product serves them all.

    Returns:
        The array, and the function to run before it is read, which does nothing if all are constants.
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
    """Do nothing: constants need no refresh."""


# -- RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN ----------------------------------
# output = activation(bias + input · weightsᵀ + hidden state · recurrent weightsᵀ); the output of
# a step is the hidden state of the next one.
#
# NNAPI: RNN.cpp, UnidirectionalSequenceRNN.cpp, BidirectionalSequenceRNN.cpp.


@dataclass(frozen=True, slots=True)
class _Term:
    """A sequence [time, batch, …] or [batch, time, …] and the weights that it is multiplied by."""

    sequence: Array
    weights: Array


def _bind_direction(
    node: Node,
    prefix: str,
    terms: Sequence[_Term],
    into: tuple[Array, Array | None],
    *,
    time_major: bool,
    backward: bool = False,
) -> Run:
    """Bind one direction; `into` takes its outputs [time, batch, units] and its last state."""
    hidden, recurrent, bias = (
        node.tensor(prefix + name).array for name in ("hidden_state", "recurrent_weights", "bias")
    )
    outputs, last = into
    batch, units = hidden.shape
    sums = node.scratch((*terms[0].sequence.shape[:2], units), np.float32)
    product = node.scratch(sums.shape, np.float32)
    recurrence = node.scratch((batch, units), np.float32)
    steps = by_time(sums, time_major=time_major)
    order = time_steps(len(steps), backward=backward)
    activate = activation(node)

    def run() -> None:
        _add_terms(terms, bias, sums, product)
        state = hidden
        for t in order:
            np.matmul(state, recurrent.T, out=recurrence)
            state = steps[t]
            np.add(state, recurrence, out=state)
            activate(state)
        np.copyto(outputs, steps)
        if last is not None:
            np.copyto(last, state)

    return run


def _add_terms(terms: Sequence[_Term], bias: Array, sums: Array, product: Array) -> None:
    """The sums of products that the units receive from all inputs, for all time steps at once."""
    np.copyto(sums, bias)
    for term in terms:
        width = term.sequence.shape[2]
        flat = product.reshape(-1, product.shape[2])
        np.matmul(term.sequence.reshape(-1, width), term.weights.T, out=flat)
        np.add(sums, product, out=sums)


@kernel(OperationType.RNN)
def rnn(node: Node) -> Run:
    """Compute a sequence of one step."""
    hidden, output = (tensor.array for tensor in node.outputs)
    terms = [_Term(node.tensor("input").array[None], node.tensor("weights").array)]
    return _bind_direction(node, "", terms, (output[None], hidden), time_major=True)


@kernel(OperationType.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(node: Node) -> Run:
    """Compute one direction, forward."""
    time_major = bool(node.value("time_major"))
    sequence, *state = (tensor.array for tensor in node.outputs)
    return _bind_direction(
        node,
        "",
        [_Term(node.tensor("input").array, node.tensor("weights").array)],
        (by_time(sequence, time_major=time_major), state[0] if state else None),
        time_major=time_major,
    )


@kernel(OperationType.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(node: Node) -> Run:
    """Compute both directions; merged outputs lie side by side, the forward one first."""
    time_major = node.value("time_major")
    forward, backward = (
        _bind_direction(node, prefix, terms, into, time_major=time_major, backward=reverse)
        for prefix, terms, into, reverse in zip(
            ("fw_", "bw_"),
            _bidirectional_terms(node),
            _bidirectional_results(node),
            (False, True),
            strict=True,
        )
    )

    def run() -> None:
        forward()
        backward()

    return run


def _bidirectional_terms(node: Node) -> tuple[list[_Term], list[_Term]]:
    """The terms of the forward and of the backward direction."""
    link = linking(node, AUX_WEIGHTS)
    own = node.tensor("input").array
    forward = [_Term(own, node.tensor("fw_weights").array)]
    if link is Linking.NONE:
        return forward, [_Term(own, node.tensor("bw_weights").array)]
    aux = node.tensor("aux_input").array
    if link is Linking.PARALLEL:
        return forward, [_Term(aux, node.tensor("bw_weights").array)]
    forward.append(_Term(aux, node.tensor("fw_aux_weights").array))
    backward = [_Term(own, node.tensor("bw_weights").array)]
    backward.append(_Term(aux, node.tensor("bw_aux_weights").array))
    return forward, backward


def _bidirectional_results(
    node: Node,
) -> tuple[tuple[Array, Array | None], tuple[Array, Array | None]]:
    """Where the forward and the backward direction write: outputs by time, and last state."""
    arrays = [tensor.array for tensor in node.outputs]
    if node.value("merge_outputs"):
        units = node.tensor("fw_weights").shape[0]
        merged, *states = arrays
        sequences = [merged[..., :units], merged[..., units:]]
    else:
        sequences, states = arrays[:2], arrays[2:]
    fw, bw = (by_time(s, time_major=node.value("time_major")) for s in sequences)
    fw_state, bw_state = states or (None, None)
    return (fw, fw_state), (bw, bw_state)


# -- SVDF: a fully connected layer over time, its weights factored into feature and time -----------
# NNAPI: SVDF.cpp.


@kernel(OperationType.SVDF)
def svdf(node: Node) -> Run:
    """Filter, then shift the state by one step and clear its last column.

    NNAPI: the state's last column is never read: the new features take its place for this step.
    """
    x, time = node.tensor("input").array, node.tensor("weights_time").array
    by_feature = node.tensor("weights_feature").array.T
    bias, activate, rank = node.find("bias"), activation(node), int(node.value("rank"))
    state_out, output = node.output(0).array, node.output(1).array
    features, memory = time.shape
    old = node.tensor("state_in").array.reshape(len(x), features, memory)
    new = state_out.reshape(old.shape)
    state, product = node.scratch(old.shape, np.float32), node.scratch(old.shape, np.float32)
    current = node.scratch((len(x), features), np.float32)
    filtered = node.scratch((len(x), features), np.float32)
    per_unit = filtered.reshape(len(x), features // rank, rank)

    def run() -> None:
        np.matmul(x, by_feature, out=current)
        np.copyto(state[..., :-1], old[..., :-1])
        np.copyto(state[..., -1], current)
        np.multiply(state, time, out=product)
        np.sum(product, axis=-1, out=filtered)
        np.sum(per_unit, axis=-1, out=output)
        if bias is not None:
            np.add(output, bias.array, out=output)
        activate(output)
        np.copyto(new[..., :-1], state[..., 1:])
        new[..., -1] = 0

    return run
