"""QUANTIZED_LSTM: signatures and shape rules.

NNAPI: QLSTM.cpp, QuantUtils.cpp. Real multipliers are formed in float32, as there.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operand_dimensions import require_rank
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    FLOAT32,
    I32,
    INT32,
    Q8S,
    Q16S,
    QSYM8,
    V1_3,
    control,
    data,
    row,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.lstm_operands import (
    GATES,
    LstmOperands,
    direction_slots,
    layer_norm_slots,
)
from nnburst.executor.operations.families.scales import scale_exponent
from nnburst.hal.enums import OperationType

_INTERMEDIATE: Final = tuple(f"{gate}_intermediate_scale" for gate in GATES)
_CLIPS: Final = ("cell_clip", "projection_clip")


def _shape(node: Node) -> list[TensorType]:
    batch, inputs = require_rank(node, "input", 2)
    operands = LstmOperands(node)
    sizes = operands.check(batch, inputs)
    exponent = scale_exponent(node, "cell_state")
    # NNAPI: tanh is defined for 0 to 6 integer bits of the cell state.
    node.require(
        -15 <= exponent <= -9,
        f"operand 'cell_state' has scale 2**{exponent}, expected 2**-15 to 2**-9",
    )
    scales = operands.names("{}_intermediate_scale")
    for name in (*scales, "hidden_state_scale"):
        value = node.value(name)
        node.require(value > 0, f"operand '{name}' is {value}, expected more than 0")
    zero_point = node.value("hidden_state_zero_point")
    node.require(
        -128 <= zero_point <= 127,
        f"operand 'hidden_state_zero_point' is {zero_point}, expected -128 to 127",
    )
    dimensions = ((batch, sizes.outputs), (batch, sizes.cells), (batch, sizes.outputs))
    return [node.like_declared(d, at) for at, d in enumerate(dimensions)]


declare(
    signature(
        OperationType.QUANTIZED_LSTM,
        V1_3,
        "Computes one time step of a long short-term memory in 8-bit and 16-bit integers, with"
        " optional coupling of gates, peepholes, projection and layer normalisation.",
        inputs=[
            data("input", Q8S),
            *direction_slots("", QSYM8, Q16S, I32),
            data("output_state", Q8S),
            data("cell_state", Q16S),
            *layer_norm_slots("", Q16S),
            *(control(name, FLOAT32, nullable=True) for name in _CLIPS),
            *(control(name, FLOAT32) for name in _INTERMEDIATE),
            control("hidden_state_zero_point", INT32),
            control("hidden_state_scale", FLOAT32),
        ],
        outputs=[
            data("output_state_out", Q8S),
            data("cell_state_out", Q16S),
            data("output", Q8S),
        ],
        rows=[row(V1_3)],
    ),
    shape=_shape,
)
