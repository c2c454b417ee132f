"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN.

output = activation(bias + input · weightsᵀ + hidden state · recurrent weightsᵀ); the output of
a step is the hidden state of the next one.

NNAPI: RNN.cpp, UnidirectionalSequenceRNN.cpp, BidirectionalSequenceRNN.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.families.recurrence import (
    Linking,
    linking,
)
from nnburst.executor.operations.rnn import AUX_WEIGHTS
from nnburst.executor.reference.families.recurrence import activation, by_time, time_steps
from nnburst.hal.enums import OperationType


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
    """What the units receive from all inputs, for all time steps at once."""
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
    """What the forward and the backward direction read."""
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
