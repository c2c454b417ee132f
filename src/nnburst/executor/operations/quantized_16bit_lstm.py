"""QUANTIZED_16BIT_LSTM: signatures and shape rules.

NNAPI: QuantizedLSTM.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import I32, Q8, Q16S, V1_2, data, row, signature
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.scales import scale_exponent
from nnburst.hal.enums import ErrorStatus, OperationType

_GATES: Final = ("input", "forget", "cell", "output")
INPUT_WEIGHTS: Final = tuple(f"input_to_{gate}_weights" for gate in _GATES)
RECURRENT_WEIGHTS: Final = tuple(f"recurrent_to_{gate}_weights" for gate in _GATES)
BIASES: Final = tuple(f"{gate}_gate_bias" for gate in _GATES)

#: Scale and zero point of the input and of the outputs.
_STEP: Final = 1 / 128
ZERO: Final = 128

#: NNAPI: integer bits of the cell state; no other number is supported.
STATE_BITS: Final = 4


def _shape(node: Node) -> list[TensorType]:
    batch, inputs = require_rank(node, "input", 2)
    outputs = require_rank(node, "output_state", 2)[1]
    for names, dimensions in (
        (INPUT_WEIGHTS, (outputs, inputs)),
        (RECURRENT_WEIGHTS, (outputs, outputs)),
        (BIASES, (outputs,)),
        (("cell_state", "output_state"), (batch, outputs)),
    ):
        for name in names:
            require_dimensions(node, name, dimensions)
    _check_quantisation(node)
    return [node.tensor("cell_state").meta, node.tensor("output_state").meta]


def _check_quantisation(node: Node) -> None:
    weights = node.tensor(INPUT_WEIGHTS[0])
    for name in ("input", "output_state"):
        _require_quantisation(node, name, _STEP, ZERO)
    for name in (*INPUT_WEIGHTS, *RECURRENT_WEIGHTS):
        _require_quantisation(node, name, weights.scale, weights.zero_point)
    for name in BIASES:
        _require_quantisation(node, name, weights.scale / 128, 0)
    exponent = scale_exponent(node, "cell_state")
    node.require(
        exponent == STATE_BITS - 15,
        f"operand 'cell_state' has scale 2**{exponent}, expected 2**-11",
    )


def _require_quantisation(node: Node, name: str, scale: float, zero_point: int) -> None:
    tensor = node.tensor(name)
    node.require(
        (tensor.scale, tensor.zero_point) == (scale, zero_point),
        f"operand '{name}' has scale {tensor.scale} and zero point {tensor.zero_point},"
        f" expected {scale} and {zero_point}",
    )


declare(
    signature(
        OperationType.QUANTIZED_16BIT_LSTM,
        V1_2,
        "Computes one time step of a long short-term memory in 8-bit and 16-bit integers.",
        inputs=[
            data("input", Q8),
            *(data(name, Q8) for name in (*INPUT_WEIGHTS, *RECURRENT_WEIGHTS)),
            *(data(name, I32) for name in BIASES),
            data("cell_state", Q16S),
            data("output_state", Q8),
        ],
        outputs=[data("cell_state_out", Q16S), data("output", Q8)],
        rows=[row(V1_2)],
    ),
    shape=_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
