"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from nnburst.hal.enums import OperationType
from nnburst.importer.tflite.operator import FLOAT, QUANT8, Operator, operator


@operator("SOFTMAX")
def _softmax(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    beta = op.real(op.options("SoftmaxOptions").Beta(), op.input())
    op.emit(OperationType.SOFTMAX, [op.input(), beta])


@operator("LOG_SOFTMAX")
def _log_softmax(op: Operator) -> None:
    op.require_type(op.input(), FLOAT, "input")
    op.emit(OperationType.LOG_SOFTMAX, [op.input(), op.real(1.0, op.input()), -1])


@operator("L2_NORMALIZATION")
def _l2_normalization(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    activation = op.activation(op.options("L2NormOptions"))
    op.require(activation == 0, "an activation is fused, expected NONE")
    op.emit(OperationType.L2_NORMALIZATION, [op.input()])


@operator("LOCAL_RESPONSE_NORMALIZATION")
def _local_response_normalization(op: Operator) -> None:
    x = op.input()
    op.require_type(x, FLOAT, "input")
    options = op.options("LocalResponseNormalizationOptions")
    numbers = [op.real(value, x) for value in (options.Bias(), options.Alpha(), options.Beta())]
    op.emit(OperationType.LOCAL_RESPONSE_NORMALIZATION, [x, options.Radius(), *numbers])
