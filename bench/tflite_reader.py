"""A .tflite file as a Model: just what small image networks need (NHWC, implicit padding).

Uses the format's classes that the ai-edge-litert wheel carries.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model, SymmPerChannelQuantParams
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.operand_types import DTYPES

_TYPES: Final = {
    schema.TensorType.FLOAT32: OperandType.TENSOR_FLOAT32,
    schema.TensorType.INT32: OperandType.TENSOR_INT32,
    schema.TensorType.UINT8: OperandType.TENSOR_QUANT8_ASYMM,
    schema.TensorType.INT8: OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
}
_NAMES: Final = {
    value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)
}


def read(content: bytes) -> Model:
    """The first subgraph of a .tflite file."""
    parsed = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    graph = parsed.subgraphs[0]
    builder = ModelBuilder()
    indexes = {
        at: _operand(builder, parsed, graph, at)
        for at in range(len(graph.tensors))
        if at in _used(graph)
    }
    for operator in graph.operators:
        code = parsed.operatorCodes[operator.opcodeIndex]
        kind = OperationType[_NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]]
        scalars = _scalars(kind, operator.builtinOptions)
        inputs = [indexes[i] for i in operator.inputs]
        builder.operation(
            kind,
            inputs + [builder.scalar(value) for value in scalars],
            [indexes[i] for i in operator.outputs],
        )
    builder.identify([indexes[i] for i in graph.inputs], [indexes[i] for i in graph.outputs])
    return builder.build()


def _used(graph: Any) -> set[int]:  # noqa: ANN401
    operands = [i for o in graph.operators for i in (*o.inputs, *o.outputs)]
    return {*operands, *graph.inputs, *graph.outputs}


def _operand(builder: ModelBuilder, parsed: Any, graph: Any, at: int) -> int:  # noqa: ANN401
    tensor = graph.tensors[at]
    kind, shape = _TYPES[tensor.type], tuple(int(d) for d in tensor.shape)
    kind, *quantised = _quantisation(kind, tensor.quantization)
    data = parsed.buffers[tensor.buffer].data
    if data is not None and len(data):
        values = np.frombuffer(bytes(data), DTYPES[kind]).reshape(shape)
        return builder.constant(kind, values, *quantised)
    if at in graph.inputs:
        return builder.input(kind, shape, *quantised)
    if at in graph.outputs:
        return builder.output(kind, shape, *quantised)
    return builder.temporary(kind, shape, *quantised)


def _quantisation(kind: OperandType, params: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Operand type, scale, zero point and per-channel scales."""
    if params is None or params.scale is None or not len(params.scale):
        return kind, 0.0, 0, None
    scales = tuple(float(scale) for scale in params.scale)
    if len(scales) == 1:
        return kind, scales[0], int(params.zeroPoint[0]), None
    if kind == OperandType.TENSOR_INT32:
        return kind, 0.0, 0, None  # a bias takes its scales from the filter
    extra = SymmPerChannelQuantParams(scales, int(params.quantizedDimension))
    return OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, 0.0, 0, extra


def _scalars(kind: OperationType, options: Any) -> list[float]:  # noqa: ANN401
    """Scalar operands of an operation with implicit padding, in NNAPI's order."""
    if kind == OperationType.SOFTMAX:
        return [float(options.beta)]
    if kind in (OperationType.RESHAPE, OperationType.LOGISTIC):
        return []
    if kind in (OperationType.ADD, OperationType.FULLY_CONNECTED):
        return [options.fusedActivationFunction]
    scheme = 1 if options.padding == schema.Padding.SAME else 2
    window = [scheme, options.strideW, options.strideH]
    if kind in (OperationType.AVERAGE_POOL_2D, OperationType.MAX_POOL_2D):
        window += [options.filterWidth, options.filterHeight]
    if kind == OperationType.DEPTHWISE_CONV_2D:
        window.append(options.depthMultiplier)
    return [*window, options.fusedActivationFunction]
