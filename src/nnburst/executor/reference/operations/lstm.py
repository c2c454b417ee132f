"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM.

NNAPI: LSTM.cpp, UnidirectionalSequenceLSTM.cpp, BidirectionalSequenceLSTM.cpp. The cell itself is
`nnburst.executor.reference.families.lstm_cell`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, Run, operation
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
from nnburst.executor.reference.families.lstm_cell import (
    Results,
    Source,
    bind_direction,
    require_settings,
)
from nnburst.executor.reference.families.lstm_operands import (
    LstmOperands,
    LstmSizes,
    aux_slots,
    direction_slots,
    layer_norm_slots,
)
from nnburst.executor.reference.families.recurrence import (
    Linking,
    by_time,
    linking,
    require_merged_count,
    results,
    sequence_dimensions,
    sequence_extents,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.signature import Form, Signature, Slot

_INPUT_WEIGHTS: Final = "input_to_{}_weights"
_AUX_WEIGHTS: Final = "aux_input_to_{}_weights"
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


@operation(
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
def lstm(node: Node) -> Run:
    """Compute a sequence of one step; the scratch buffer, which must not be relied on, is zeroed."""
    scratch, output_state, cell_state, output = (tensor.array for tensor in node.outputs)
    step = bind_direction(
        LstmOperands(node),
        [Source(node.tensor("input").array[None], _INPUT_WEIGHTS)],
        Results(output[None], output_state, cell_state),
        time_major=True,
    )

    def run() -> None:
        step()
        scratch.fill(0)

    return run


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


@operation(
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
def unidirectional_sequence_lstm(node: Node) -> Run:
    """Compute one direction, forward."""
    time_major = node.value("time_major")
    sequence, *states = (tensor.array for tensor in node.outputs)
    return bind_direction(
        LstmOperands(node),
        [Source(node.tensor("input").array, _INPUT_WEIGHTS)],
        Results(by_time(sequence, time_major=time_major), *states),
        time_major=time_major,
    )


# BIDIRECTIONAL_SEQUENCE_LSTM


def _directions(node: Node) -> tuple[LstmOperands, LstmOperands]:
    # DEVIATES: NNAPI's CPU implementation applies the backward direction's configuration (coupling,
    # peepholes, projection, normalisation) to both; here each direction has its own.
    return LstmOperands(node, "fw_"), LstmOperands(node, "bw_")


def _linking(node: Node) -> Linking:
    names = [name for d in _directions(node) for name in d.names(_AUX_WEIGHTS)]
    for direction in _directions(node):
        node.require(
            not (direction.coupled and direction.has(_AUX_WEIGHTS.format("input"))),
            f"operand '{direction.prefix}aux_input_to_input_weights' is given"
            f" without '{direction.prefix}input_to_input_weights'",
        )
    return linking(node, names)


def _check_directions(node: Node, batch: int, inputs: int) -> tuple[LstmSizes, LstmSizes]:
    """Check both directions and the auxiliary input; their extents."""
    forward, backward = _directions(node)
    link, aux = _linking(node), 0
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
        for name in direction.names(_AUX_WEIGHTS):
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
    merged, separate = [data("output")], [data("fw_output"), data("bw_output")]
    states = [
        data(f"{prefix}{name}")
        for prefix in ("fw_", "bw_")
        for name in ("output_state_out", "cell_state_out")
    ]
    return (
        Form(inputs, tuple(merged), name="merged"),
        Form(inputs, tuple(separate), name="separate"),
        Form(inputs, (*merged, *states), since=V1_3, name="merged, with states"),
        Form(inputs, (*separate, *states), since=V1_3, name="separate, with states"),
    )


@operation(
    Signature(
        OperationType.BIDIRECTIONAL_SEQUENCE_LSTM,
        V1_2,
        _bidirectional_forms(),
        _ROWS,
        "Runs one long short-term memory over a sequence and another one over it backwards.",
    ),
    shape=_bidirectional_shape,
)
def bidirectional_sequence_lstm(node: Node) -> Run:
    """Compute both directions; merged outputs lie side by side, the forward one first."""
    time_major = node.value("time_major")
    forward, backward = _directions(node)
    into = _bidirectional_results(node, forward.sizes.outputs)
    sources = _bidirectional_sources(node)
    runs = [
        bind_direction(operands, source, result, time_major=time_major, backward=reverse)
        for operands, source, result, reverse in zip(
            (forward, backward), sources, into, (False, True), strict=True
        )
    ]

    def run() -> None:
        for direction in runs:
            direction()

    return run


def _bidirectional_sources(node: Node) -> tuple[Sequence[Source], Sequence[Source]]:
    """What the forward and the backward direction read."""
    link = _linking(node)
    own = Source(node.tensor("input").array, _INPUT_WEIGHTS)
    if link is Linking.NONE:
        return [own], [own]
    aux = node.tensor("aux_input").array
    if link is Linking.PARALLEL:
        return [own], [Source(aux, _INPUT_WEIGHTS)]
    both = [own, Source(aux, _AUX_WEIGHTS)]
    return both, both


def _bidirectional_results(node: Node, forward_outputs: int) -> tuple[Results, Results]:
    arrays = [tensor.array for tensor in node.outputs]
    if node.value("merge_outputs"):
        merged, *states = arrays
        sequences = [merged[..., :forward_outputs], merged[..., forward_outputs:]]
    else:
        sequences, states = arrays[:2], arrays[2:]
    fw, bw = (by_time(s, time_major=node.value("time_major")) for s in sequences)
    return Results(fw, *states[:2]), Results(bw, *states[2:])
