"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN.

output = activation(bias + input · weightsᵀ + hidden state · recurrent weightsᵀ); the output of
a step is the hidden state of the next one.

NNAPI: RNN.cpp, UnidirectionalSequenceRNN.cpp, BidirectionalSequenceRNN.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.signatures import (
    BOOL,
    F16,
    F32,
    V1_0,
    V1_2,
    V1_3,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.families.recurrence import (
    Linking,
    activation,
    by_time,
    linking,
    require_activation,
    require_merged_count,
    results,
    sequence_dimensions,
    sequence_extents,
    time_steps,
)
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.signature import Form, Signature, Slot

#: DEVIATES: NNAPI's CPU implementation aborts the process on other codes; here they fail.
_ACTIVATIONS: Final = (0, 1, 3, 4, 6)
_AUX_WEIGHTS: Final = ("fw_aux_weights", "bw_aux_weights")


@dataclass(frozen=True, slots=True)
class _Term:
    """A sequence [time, batch, …] or [batch, time, …] and the weights that it is multiplied by."""

    sequence: Array
    weights: Array


def _direction_slots(prefix: str = "") -> list[Slot]:
    names = ("weights", "recurrent_weights", "bias", "hidden_state")
    return [data(prefix + name) for name in names]


def _check_direction(node: Node, prefix: str, batch: int, inputs: int) -> int:
    """Check the operands of one direction; its number of units."""
    units = require_rank(node, f"{prefix}weights", 2)[0]
    require_dimensions(node, f"{prefix}weights", (units, inputs))
    require_dimensions(node, f"{prefix}recurrent_weights", (units, units))
    require_dimensions(node, f"{prefix}bias", (units,))
    require_dimensions(node, f"{prefix}hidden_state", (batch, units))
    return units


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


# RNN: one time step.


def _rnn_shape(node: Node) -> list[TensorType]:
    require_activation(node, _ACTIVATIONS)
    batch, inputs = require_rank(node, "input", 2)
    units = _check_direction(node, "", batch, inputs)
    return results(node, (batch, units), (batch, units))


@operation(
    signature(
        OperationType.RNN,
        V1_0,
        "Computes one time step of a fully connected recurrent layer.",
        inputs=[data("input"), *_direction_slots(), control("activation")],
        outputs=[data("hidden_state_out"), data("output")],
        rows=rows(V1_0=[F32], V1_2=[F16]),
    ),
    shape=_rnn_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def rnn(node: Node) -> Run:
    """Compute a sequence of one step."""
    hidden, output = (tensor.array for tensor in node.outputs)
    terms = [_Term(node.tensor("input").array[None], node.tensor("weights").array)]
    return _bind_direction(node, "", terms, (output[None], hidden), time_major=True)


# UNIDIRECTIONAL_SEQUENCE_RNN


def _unidirectional_shape(node: Node) -> list[TensorType]:
    require_activation(node, _ACTIVATIONS)
    time_major = node.value("time_major")
    node.require(time_major in (0, 1), f"operand 'time_major' is {time_major}, expected 0 or 1")
    _, batch, inputs = sequence_extents(node, time_major=bool(time_major))
    units = _check_direction(node, "", batch, inputs)
    return results(node, sequence_dimensions(node, units), (batch, units))


_UNIDIRECTIONAL_INPUTS: Final = (
    data("input"),
    *_direction_slots(),
    control("activation"),
    control("time_major"),
)


@operation(
    Signature(
        OperationType.UNIDIRECTIONAL_SEQUENCE_RNN,
        V1_2,
        (
            Form(_UNIDIRECTIONAL_INPUTS, (data("output"),)),
            Form(
                _UNIDIRECTIONAL_INPUTS,
                (data("output"), data("hidden_state_out")),
                since=V1_3,
                name="with state",
            ),
        ),
        rows(V1_2=[F32, F16]),
        "Runs a fully connected recurrent layer over a sequence.",
    ),
    shape=_unidirectional_shape,
)
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


# BIDIRECTIONAL_SEQUENCE_RNN


def _check_directions(node: Node, batch: int, inputs: int) -> tuple[int, int]:
    """Check both directions and the auxiliary input; their numbers of units."""
    link, aux = linking(node, _AUX_WEIGHTS), 0
    if link is not Linking.NONE:
        # DEVIATES: NNAPI's CPU implementation reads an auxiliary input as if it were as wide as the
        # input; here its own width counts, as documented.
        aux = require_rank(node, "aux_input", 3)[2]
        require_dimensions(node, "aux_input", (*node.tensor("input").shape[:2], aux))
    forward = _check_direction(node, "fw_", batch, inputs)
    backward = _check_direction(node, "bw_", batch, aux if link is Linking.PARALLEL else inputs)
    for name, units in zip(_AUX_WEIGHTS, (forward, backward), strict=True):
        require_dimensions(node, name, (units, aux))
    return forward, backward


def _bidirectional_shape(node: Node) -> list[TensorType]:
    require_activation(node, _ACTIVATIONS)
    _, batch, inputs = sequence_extents(node, time_major=node.value("time_major"))
    forward, backward = _check_directions(node, batch, inputs)
    require_merged_count(node, states=2)
    merged = node.value("merge_outputs")
    widths = [forward + backward] if merged else [forward, backward]
    sequences = [sequence_dimensions(node, width) for width in widths]
    return results(node, *sequences, (batch, forward), (batch, backward))


def _bidirectional_forms() -> tuple[Form, ...]:
    inputs = (
        data("input"),
        *_direction_slots("fw_"),
        *_direction_slots("bw_"),
        data("aux_input", nullable=True),
        *(data(name, nullable=True) for name in _AUX_WEIGHTS),
        control("activation"),
        control("time_major", BOOL),
        control("merge_outputs", BOOL),
    )
    merged, separate = [data("output")], [data("fw_output"), data("bw_output")]
    states = [data("fw_hidden_state_out"), data("bw_hidden_state_out")]
    return (
        Form(inputs, tuple(merged), name="merged"),
        Form(inputs, tuple(separate), name="separate"),
        Form(inputs, (*merged, *states), since=V1_3, name="merged, with states"),
        Form(inputs, (*separate, *states), since=V1_3, name="separate, with states"),
    )


@operation(
    Signature(
        OperationType.BIDIRECTIONAL_SEQUENCE_RNN,
        V1_2,
        _bidirectional_forms(),
        rows(V1_2=[F32, F16]),
        "Runs one recurrent layer over a sequence and another one over it backwards.",
    ),
    shape=_bidirectional_shape,
)
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
    link = linking(node, _AUX_WEIGHTS)
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
