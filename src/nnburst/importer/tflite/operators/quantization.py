"""QUANTIZE, DEQUANTIZE and DENSIFY: nothing if nothing changes, split in two between integers."""

from __future__ import annotations

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.subgraph import Value
from nnburst.importer.tensor_type import TensorType
from nnburst.importer.tflite.operator import FLOAT, QUANT8, Operator, operator

_T = OperandType


@operator("DEQUANTIZE")
def _dequantize(op: Operator) -> None:
    x = op.input()
    if x.constant is not None:
        op.becomes(op.real_constant(x.constant))
        return
    if x.type.type == _T.TENSOR_FLOAT16:
        op.emit(OperationType.CAST, [x])
        return
    op.require_type(x, QUANT8, "input")
    op.emit(OperationType.DEQUANTIZE, [x])


@operator("DENSIFY")
def _densify(op: Operator) -> None:
    """Constants are dense wherever they are read, so nothing is left to do."""
    x = op.input()
    op.require(x.constant is not None, "the input is computed, expected a constant")
    op.becomes(x)


@operator("QUANTIZE")
def _quantize(op: Operator) -> None:
    """From integers to integers: nothing if nothing changes, else through real numbers.

    NNAPI quantises real numbers only. With equal scales, as at the uint8 border of an int8 network,
    the way through float32 is exact.
    """
    x, kind = op.input(), op.output_type()
    op.require_type(x, FLOAT | QUANT8, "input")
    op.require(kind.type in QUANT8, f"output is {kind.type.name}, expected 8 bits")
    if x.type.is_float:
        op.emit(OperationType.QUANTIZE, [x])
    elif x.type.type == kind.type and x.type.same_quantization(kind):
        op.becomes(x)
    else:
        requantize(op, x)


def requantize(op: Operator, x: Value) -> None:
    """Let the operator's output be `x` with the output's quantisation."""
    real = op.temporary(TensorType(_T.TENSOR_FLOAT32, x.type.dimensions))
    op.emit(OperationType.DEQUANTIZE, [x], [real])
    op.emit(OperationType.QUANTIZE, [real])
