"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM.

NNAPI: LSTM.cpp, UnidirectionalSequenceLSTM.cpp, BidirectionalSequenceLSTM.cpp. The cell itself is
`nnburst.executor.reference.families.lstm_cell`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.operations.families.lstm_operands import (
    LstmOperands,
)
from nnburst.executor.operations.families.recurrence import (
    Linking,
)
from nnburst.executor.operations.lstm import AUX_WEIGHTS, directions_of, linking_of
from nnburst.executor.reference.families.lstm_cell import Results, Source, bind_direction
from nnburst.executor.reference.families.recurrence import by_time
from nnburst.hal.enums import OperationType

_INPUT_WEIGHTS: Final = "input_to_{}_weights"


@kernel(OperationType.LSTM)
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


@kernel(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM)
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


@kernel(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(node: Node) -> Run:
    """Compute both directions; merged outputs lie side by side, the forward one first."""
    time_major = node.value("time_major")
    forward, backward = directions_of(node)
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
    link = linking_of(node)
    own = Source(node.tensor("input").array, _INPUT_WEIGHTS)
    if link is Linking.NONE:
        return [own], [own]
    aux = node.tensor("aux_input").array
    if link is Linking.PARALLEL:
        return [own], [Source(aux, _INPUT_WEIGHTS)]
    both = [own, Source(aux, AUX_WEIGHTS)]
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
