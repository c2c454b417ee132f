"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM: signatures and shape rules.

NNAPI: LSTM.cpp, UnidirectionalSequenceLSTM.cpp, BidirectionalSequenceLSTM.cpp. The cell itself is
`nnburst.executor.reference.families.lstm_cell`.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    BOOL,
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    V1_0,
    V1_2,
    V1_3,
    control,
    data,
    row,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.lstm_operands import (
    LstmOperands,
    LstmSizes,
    aux_slots,
    direction_slots,
    layer_norm_slots,
    require_settings,
)
from nnburst.executor.operations.families.recurrence import (
    Linking,
    bidirectional_forms,
    linking,
    require_merged_count,
    results,
    sequence_dimensions,
    sequence_extents,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.signature import Form, Signature, Slot

AUX_WEIGHTS: Final = "aux_input_to_{}_weights"
_STATES: Final = (data("output_state"), data("cell_state"))

_SETTINGS: Final = (
    control("activation"),
    control("cell_clip", "S"),
    control("projection_clip", "S"),
)

_ROWS: Final = (row(V1_0, T=F32, S=FLOAT32), row(V1_2, T=F16, S=FLOAT16))


# LSTM: one time step.


def _lstm_shape(node: Node) -> list[TensorType]:
    batch, inputs = require_rank(node, "input", 2)
    require_settings(node)
    operands = LstmOperands(node)
    sizes = operands.check(batch, inputs)
    extents = (len(operands.gates) * sizes.cells, sizes.outputs, sizes.cells, sizes.outputs)
    return results(node, *((batch, extent) for extent in extents))


declare(
    Signature(
        OperationType.LSTM,
        V1_0,
        (
            Form(
                inputs=(
                    data("input"),
                    *direction_slots(),
                    *_STATES,
                    *_SETTINGS,
                    *layer_norm_slots(since=V1_2),
                ),
                outputs=(
                    data("scratch_buffer"),
                    data("output_state_out"),
                    data("cell_state_out"),
                    data("output"),
                ),
                counts=(23, 27),
            ),
        ),
        _ROWS,
        "Computes one time step of a long short-term memory, with optional coupling of gates,"
        " peepholes, projection and layer normalisation.",
    ),
    shape=_lstm_shape,
)


# UNIDIRECTIONAL_SEQUENCE_LSTM


def _unidirectional_shape(node: Node) -> list[TensorType]:
    _, batch, width = sequence_extents(node, time_major=node.value("time_major"))
    require_settings(node)
    sizes = LstmOperands(node).check(batch, width)
    sequence = sequence_dimensions(node, sizes.outputs)
    return results(node, sequence, (batch, sizes.outputs), (batch, sizes.cells))


_UNIDIRECTIONAL_INPUTS: Final = (
    data("input"),
    *direction_slots(),
    *_STATES,
    *_SETTINGS,
    control("time_major", BOOL),
    *layer_norm_slots(),
)


declare(
    Signature(
        OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM,
        V1_2,
        (
            Form(_UNIDIRECTIONAL_INPUTS, (data("output"),)),
            Form(
                _UNIDIRECTIONAL_INPUTS,
                (data("output"), data("output_state_out"), data("cell_state_out")),
                since=V1_3,
                name="with states",
            ),
        ),
        _ROWS,
        "Runs a long short-term memory over a sequence.",
    ),
    shape=_unidirectional_shape,
)


# BIDIRECTIONAL_SEQUENCE_LSTM


def directions_of(node: Node) -> tuple[LstmOperands, LstmOperands]:
    """The operands of both directions of a BIDIRECTIONAL_SEQUENCE_LSTM."""
    # DEVIATES: NNAPI's CPU implementation applies the backward direction's configuration (coupling,
    # peepholes, projection, normalisation) to both; here each direction has its own.
    return LstmOperands(node, "fw_"), LstmOperands(node, "bw_")


def linking_of(node: Node) -> Linking:
    """What a BIDIRECTIONAL_SEQUENCE_LSTM does with its auxiliary input."""
    names = [name for d in directions_of(node) for name in d.names(AUX_WEIGHTS)]
    for direction in directions_of(node):
        node.require(
            not (direction.coupled and direction.has(AUX_WEIGHTS.format("input"))),
            f"operand '{direction.prefix}aux_input_to_input_weights' is given"
            f" without '{direction.prefix}input_to_input_weights'",
        )
    return linking(node, names)


def _check_directions(node: Node, batch: int, inputs: int) -> tuple[LstmSizes, LstmSizes]:
    """Check both directions and the auxiliary input; their extents."""
    forward, backward = directions_of(node)
    link, aux = linking_of(node), 0
    if link is not Linking.NONE:
        aux = require_rank(node, "aux_input", 3)[2]
        require_dimensions(node, "aux_input", sequence_dimensions(node, aux))
    sizes = (
        forward.check(batch, inputs),
        backward.check(batch, aux if link is Linking.PARALLEL else inputs),
    )
    # DEVIATES: NNAPI's CPU implementation accepts weights only if the auxiliary input is as wide
    # as the input, and none at all with coupled gates; its documentation asks for neither.
    for direction, (_, cells, _) in zip((forward, backward), sizes, strict=True):
        for name in direction.names(AUX_WEIGHTS):
            require_dimensions(node, name, (cells, aux))
    return sizes


def _bidirectional_shape(node: Node) -> list[TensorType]:
    _, batch, width = sequence_extents(node, time_major=node.value("time_major"))
    require_settings(node)
    forward, backward = _check_directions(node, batch, width)
    require_merged_count(node, states=4)
    widths = [forward.outputs, backward.outputs]
    if node.value("merge_outputs"):
        widths = [sum(widths)]
    dimensions = [sequence_dimensions(node, extent) for extent in widths]
    for sizes in (forward, backward):
        dimensions += [(batch, sizes.outputs), (batch, sizes.cells)]
    return results(node, *dimensions)


def _bidirectional_inputs() -> tuple[Slot, ...]:
    return (
        data("input"),
        *direction_slots("fw_"),
        *direction_slots("bw_"),
        data("fw_output_state"),
        data("fw_cell_state"),
        data("bw_output_state"),
        data("bw_cell_state"),
        data("aux_input", nullable=True),
        *aux_slots("fw_"),
        *aux_slots("bw_"),
        *_SETTINGS,
        control("merge_outputs", BOOL),
        control("time_major", BOOL),
        *layer_norm_slots("fw_"),
        *layer_norm_slots("bw_"),
    )


def _bidirectional_forms() -> tuple[Form, ...]:
    inputs = _bidirectional_inputs()
    states = [
        data(f"{prefix}{name}")
        for prefix in ("fw_", "bw_")
        for name in ("output_state_out", "cell_state_out")
    ]
    return bidirectional_forms(inputs, states)


declare(
    Signature(
        OperationType.BIDIRECTIONAL_SEQUENCE_LSTM,
        V1_2,
        _bidirectional_forms(),
        _ROWS,
        "Runs one long short-term memory over a sequence and another one over it backwards.",
    ),
    shape=_bidirectional_shape,
)
