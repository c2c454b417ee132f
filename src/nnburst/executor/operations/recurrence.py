"""Declares the RNN operations and SVDF, and rules that all float recurrent operations share.

The shared rules come first; `nnburst.executor.operations.lstm` uses them, too: the dimensions of
sequences, the outputs of bidirectional operations, and the ways to use an auxiliary input.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Final

from nnburst.executor.graph.declarations import (
    BOOL,
    F16,
    F32,
    INT32,
    V1_0,
    V1_2,
    V1_3,
    control,
    data,
    require_dimensions,
    require_rank,
    rows,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.signature import Form, Signature, Slot


class Linking(Enum):
    """The use that a bidirectional operation (BIDIRECTIONAL_SEQUENCE_*) makes of its auxiliary input."""

    #: No activation.
    NONE = "no auxiliary input"
    #: The backward direction reads it instead of the input.
    PARALLEL = "auxiliary input without weights"
    #: Both directions add it to the input, through weights of its own.
    CROSS = "auxiliary input with weights"


def require_activation(node: Node, accepted: Collection[int]) -> None:
    """Refuse a code of operand 'activation' that is not among `accepted`."""
    code = node.value("activation")
    node.require(
        code in accepted, f"operand 'activation' is {code}, expected one of {sorted(accepted)}"
    )


def sequence_extents(node: Node, *, time_major: bool) -> tuple[int, int, int]:
    """Time, batch and width of operand 'input'."""
    first, second, width = require_rank(node, "input", 3)
    return (first, second, width) if time_major else (second, first, width)


def sequence_dimensions(node: Node, width: int) -> tuple[int, ...]:
    """Dimensions of a sequence as long as operand 'input', in the same layout, of other width."""
    return (*node.tensor("input").shape[:2], width)


def results(node: Node, *dimensions: tuple[int, ...]) -> list[TensorType]:
    """The types of all declared outputs, with these dimensions."""
    count = len(node.outputs_declared)
    return [node.like_declared(d, at) for at, d in enumerate(dimensions[:count])]


def require_merged_count(node: Node, states: int) -> None:
    """Refuse a number of outputs that operand 'merge_outputs' does not give.

    Args:
        node: a bidirectional operation.
        states: how many outputs hold states, in both directions together.
    """
    merged, count = node.value("merge_outputs"), len(node.outputs_declared)
    sequences = 1 if merged else 2
    node.require(
        count in (sequences, sequences + states),
        f"operand 'merge_outputs' is {merged}, which gives {sequences} outputs"
        f" ({sequences + states} with states), not {count}",
    )


def linking(node: Node, aux_weights: Sequence[str]) -> Linking:
    """The use of operand 'aux_input'; `aux_weights` names its weights, of which all or none are given.

    Raises:
        OperationFailed: some weights are missing, or are given without the auxiliary input.
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


def bidirectional_forms(inputs: tuple[Slot, ...], states: Sequence[Slot]) -> tuple[Form, ...]:
    """The forms of a bidirectional operation: one merged output or two, with or without states."""
    merged, separate = [data("output")], [data("fw_output"), data("bw_output")]
    return (
        Form(inputs, tuple(merged), name="merged"),
        Form(inputs, tuple(separate), name="separate"),
        Form(inputs, (*merged, *states), since=V1_3, name="merged, with states"),
        Form(inputs, (*separate, *states), since=V1_3, name="separate, with states"),
    )


# -- RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN ----------------------------------
# NNAPI: RNN.cpp, UnidirectionalSequenceRNN.cpp, BidirectionalSequenceRNN.cpp.

#: DEVIATES: NNAPI's CPU implementation aborts the process on other codes; here they fail.
_RNN_ACTIVATIONS: Final = (0, 1, 3, 4, 6)
AUX_WEIGHTS: Final = ("fw_aux_weights", "bw_aux_weights")


def _direction_slots(prefix: str = "") -> list[Slot]:
    names = ("weights", "recurrent_weights", "bias", "hidden_state")
    return [data(prefix + name) for name in names]


def _check_direction(node: Node, prefix: str, batch: int, inputs: int) -> int:
    """Check the operands of one direction; return its number of units."""
    units = require_rank(node, f"{prefix}weights", 2)[0]
    require_dimensions(node, f"{prefix}weights", (units, inputs))
    require_dimensions(node, f"{prefix}recurrent_weights", (units, units))
    require_dimensions(node, f"{prefix}bias", (units,))
    require_dimensions(node, f"{prefix}hidden_state", (batch, units))
    return units


# RNN: one time step.


def _rnn_shape(node: Node) -> list[TensorType]:
    require_activation(node, _RNN_ACTIVATIONS)
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
    require_activation(node, _RNN_ACTIVATIONS)
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
    """Check both directions and the auxiliary input; return their numbers of units."""
    link, aux = linking(node, AUX_WEIGHTS), 0
    if link is not Linking.NONE:
        # DEVIATES: NNAPI's CPU implementation reads an auxiliary input as if it were as wide as the
        # input; here its own width counts, as documented.
        aux = require_rank(node, "aux_input", 3)[2]
        require_dimensions(node, "aux_input", sequence_dimensions(node, aux))
    forward = _check_direction(node, "fw_", batch, inputs)
    backward = _check_direction(node, "bw_", batch, aux if link is Linking.PARALLEL else inputs)
    for name, units in zip(AUX_WEIGHTS, (forward, backward), strict=True):
        require_dimensions(node, name, (units, aux))
    return forward, backward


def _bidirectional_shape(node: Node) -> list[TensorType]:
    require_activation(node, _RNN_ACTIVATIONS)
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


# -- SVDF ------------------------------------------------------------------------------------------
# NNAPI: SVDF.cpp.

#: NONE, RELU, RELU1, RELU6, TANH, SIGMOID.
_SVDF_ACTIVATIONS: Final = (0, 1, 2, 3, 4, 6)


def _expect(node: Node, name: str, shape: tuple[int, ...]) -> None:
    found = node.tensor(name).shape
    node.require(found == shape, f"operand '{name}' has shape {found}, expected {shape}")


def _shape(node: Node) -> list[TensorType]:
    for name in ("input", "weights_feature", "weights_time"):
        rank = len(node.tensor(name).shape)
        node.require(rank == 2, f"operand '{name}' has rank {rank}, expected 2")
    batches, width = node.tensor("input").shape
    features, memory = node.tensor("weights_time").shape
    _expect(node, "weights_feature", (features, width))
    _expect(node, "state_in", (batches, memory * features))
    rank = int(node.value("rank"))
    node.require(
        rank > 0 and features % rank == 0,
        f"operand 'rank' is {rank}, expected a divisor of the {features} features",
    )
    require_activation(node, _SVDF_ACTIVATIONS)
    if node.find("bias") is not None:
        _expect(node, "bias", (features // rank,))
    state = node.like_declared((batches, memory * features), 0)
    return [state, node.like_declared((batches, features // rank), 1)]


declare(
    signature(
        OperationType.SVDF,
        V1_0,
        "One step of a single value decomposition filter: features of the input, filtered over"
        " the last steps.",
        inputs=[
            data("input"),
            data("weights_feature"),
            data("weights_time"),
            data("bias", nullable=True),
            data("state_in"),
            control("rank", INT32),
            control("activation", INT32),
        ],
        outputs=[data("state_out"), data("output")],
        rows=rows(V1_0=[F32], V1_2=[F16]),
    ),
    shape=_shape,
)
