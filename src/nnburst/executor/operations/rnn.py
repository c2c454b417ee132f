"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN: signatures and shape rules.

NNAPI: RNN.cpp, UnidirectionalSequenceRNN.cpp, BidirectionalSequenceRNN.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, declare
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
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.recurrence import (
    Linking,
    bidirectional_forms,
    linking,
    require_activation,
    require_merged_count,
    results,
    sequence_dimensions,
    sequence_extents,
)
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.signature import Form, Signature, Slot

#: DEVIATES: NNAPI's CPU implementation aborts the process on other codes; here they fail.
_ACTIVATIONS: Final = (0, 1, 3, 4, 6)
AUX_WEIGHTS: Final = ("fw_aux_weights", "bw_aux_weights")


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


# RNN: one time step.


def _rnn_shape(node: Node) -> list[TensorType]:
    require_activation(node, _ACTIVATIONS)
    batch, inputs = require_rank(node, "input", 2)
    units = _check_direction(node, "", batch, inputs)
    return results(node, (batch, units), (batch, units))


declare(
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


declare(
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


# BIDIRECTIONAL_SEQUENCE_RNN


def _check_directions(node: Node, batch: int, inputs: int) -> tuple[int, int]:
    """Check both directions and the auxiliary input; their numbers of units."""
    link, aux = linking(node, AUX_WEIGHTS), 0
    if link is not Linking.NONE:
        # DEVIATES: NNAPI's CPU implementation reads an auxiliary input as if it were as wide as the
        # input; here its own width counts, as documented.
        aux = require_rank(node, "aux_input", 3)[2]
        require_dimensions(node, "aux_input", (*node.tensor("input").shape[:2], aux))
    forward = _check_direction(node, "fw_", batch, inputs)
    backward = _check_direction(node, "bw_", batch, aux if link is Linking.PARALLEL else inputs)
    for name, units in zip(AUX_WEIGHTS, (forward, backward), strict=True):
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
        *(data(name, nullable=True) for name in AUX_WEIGHTS),
        control("activation"),
        control("time_major", BOOL),
        control("merge_outputs", BOOL),
    )
    states = [data("fw_hidden_state_out"), data("bw_hidden_state_out")]
    return bidirectional_forms(inputs, states)


declare(
    Signature(
        OperationType.BIDIRECTIONAL_SEQUENCE_RNN,
        V1_2,
        _bidirectional_forms(),
        rows(V1_2=[F32, F16]),
        "Runs one recurrent layer over a sequence and another one over it backwards.",
    ),
    shape=_bidirectional_shape,
)
