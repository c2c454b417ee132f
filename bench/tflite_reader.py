"""A .tflite file as a Model: just what the MobileNets need (uint8, implicit padding, no options beyond).

Uses the format's classes that the ai-edge-litert wheel carries.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

_TYPES: Final = {
    schema.TensorType.FLOAT32: OperandType.TENSOR_FLOAT32,
    schema.TensorType.INT32: OperandType.TENSOR_INT32,
    schema.TensorType.UINT8: OperandType.TENSOR_QUANT8_ASYMM,
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
    scale, zero_point = 0.0, 0
    if tensor.quantization is not None and tensor.quantization.scale is not None:
        scale = float(tensor.quantization.scale[0])
        zero_point = int(tensor.quantization.zeroPoint[0])
    data = parsed.buffers[tensor.buffer].data
    if data is not None and len(data):
        dtype = {OperandType.TENSOR_FLOAT32: "<f4", OperandType.TENSOR_INT32: "<i4"}.get(kind, "u1")
        values = np.frombuffer(bytes(data), dtype).reshape(shape)
        return builder.constant(kind, values, scale, zero_point)
    if at in graph.inputs:
        return builder.input(kind, shape, scale, zero_point)
    if at in graph.outputs:
        return builder.output(kind, shape, scale, zero_point)
    return builder.temporary(kind, shape, scale, zero_point)


def _scalars(kind: OperationType, options: Any) -> list[float]:  # noqa: ANN401
    """Scalar operands of an operation with implicit padding, in NNAPI's order."""
    if kind == OperationType.SOFTMAX:
        return [float(options.beta)]
    if kind == OperationType.RESHAPE:
        return []
    if kind == OperationType.ADD:
        return [options.fusedActivationFunction]
    scheme = 1 if options.padding == schema.Padding.SAME else 2
    window = [scheme, options.strideW, options.strideH]
    if kind == OperationType.AVERAGE_POOL_2D:
        window += [options.filterWidth, options.filterHeight]
    if kind == OperationType.DEPTHWISE_CONV_2D:
        window.append(options.depthMultiplier)
    return [*window, options.fusedActivationFunction]
