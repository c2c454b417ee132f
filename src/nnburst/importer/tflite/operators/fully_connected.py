"""FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

from nnburst.formats.tflite.schema import names
from nnburst.hal.enums import OperandType, OperationType, PaddingScheme
from nnburst.hal.model import SymmPerChannelQuantParams
from nnburst.importer.constants import integers
from nnburst.importer.refused import Refused
from nnburst.importer.subgraph import Argument, Value
from nnburst.importer.tflite.operator import FLOAT, INT32, QUANT8, SIGNED, Operator, operator
from nnburst.importer.tflite.operators.weights import bias_input, weights_input

_T = OperandType


@operator("FULLY_CONNECTED")
def _fully_connected(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8, "input")
    options = op.options("FullyConnectedOptions")
    layout = names("FullyConnectedOptionsWeightsFormat").get(options.WeightsFormat())
    op.require(layout == "DEFAULT", f"weights are in format {layout}")
    weights = weights_input(op, x)
    op.require(len(weights.type.dimensions) == 2, "weights do not have two dimensions")
    units, size = weights.type.dimensions
    op.require(x.type.elements % size == 0, f"{x.type.elements} elements in rows of {size}")
    batch = x.type.elements // size
    bias = bias_input(op, 2, x, weights, units)
    if weights.type.type == _T.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        _as_convolution(op, x, weights, bias, op.activation(options))
        return
    operands = [x, weights, bias]
    kind = op.output_type()
    flat = kind.reshaped(batch, units)
    activation = op.activation(options)
    if kind.dimensions == flat.dimensions:
        op.emit(OperationType.FULLY_CONNECTED, [*operands, activation])
        return
    op.require(kind.elements == flat.elements, f"output shape {kind.dimensions}")
    rows = op.temporary(flat)
    op.emit(OperationType.FULLY_CONNECTED, [*operands, activation], [rows])
    op.emit(OperationType.RESHAPE, [rows, integers(kind.dimensions)])


def _as_convolution(
    op: Operator, x: Value, weights: Value, bias: Argument, activation: int
) -> None:
    """Weights with a scale per unit: NNAPI has them in convolutions only, here of single pixels."""
    units, size = weights.type.dimensions
    batch = x.type.elements // size
    params = weights.type.extra_params
    assert isinstance(params, SymmPerChannelQuantParams)
    op.require(params.channel_dim == 0, f"scales along dimension {params.channel_dim}, expected 0")
    if weights.constant is None:
        raise Refused("weights with a scale per unit are computed")
    kind = op.output_type()
    op.require(kind.elements == batch * units, f"output shape {kind.dimensions}")
    pixels = op.temporary(x.type.reshaped(batch, 1, 1, size))
    op.emit(OperationType.RESHAPE, [x, integers(pixels.type.dimensions)], [pixels])
    image = weights.type.reshaped(units, 1, 1, size)
    window = [int(PaddingScheme.VALID), 1, 1, activation]
    results = op.temporary(kind.reshaped(batch, 1, 1, units))
    op.emit(
        OperationType.CONV_2D,
        [pixels, weights.constant.retyped(image), bias, *window],
        [results],
    )
    op.emit(OperationType.RESHAPE, [results, integers(kind.dimensions)])


@operator("BATCH_MATMUL")
def _batch_matmul(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | INT32 | SIGNED, "input 0")
    y = op.real_input(1, x)
    op.require_type(y, frozenset({x.type.type}), "input 1")
    ranks = len(x.type.dimensions), len(y.type.dimensions)
    op.require(ranks[0] == ranks[1], f"ranks {ranks} differ")
    options = op.options("BatchMatMulOptions")
    op.emit(OperationType.BATCH_MATMUL, [x, y, bool(options.AdjX()), bool(options.AdjY())])
