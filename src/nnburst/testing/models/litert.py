"""Runs a model by LiteRT's plain reference kernels, as a second opinion on results.

Needs `ai-edge-litert` (extra `peers`), whose wheel has the classes of the .tflite format. Only features that
NNAPI and LiteRT share are translated: NHWC images, implicit padding, operations in `_TRANSLATIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any, Final

import numpy as np

from nnburst.executor.litert.interpreter import quiet_once
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import (
    DTYPES,
    QUANTIZED_RANGES,
    Model,
    Operand,
    Operation,
    SymmPerChannelQuantParams,
)
from nnburst.hal.signature import Role

_Values = Mapping[str, Any]
_SAME: Final = 1


def interpreter(content: bytes, *, fast: bool = False) -> Any:  # noqa: ANN401
    """Make an interpreter of one thread with tensors allocated; LiteRT has no type annotations.

    Args:
        content: a .tflite file.
        fast: whether to use LiteRT's default kernels instead of BUILTIN_REF.
    """
    litert = import_module("ai_edge_litert.interpreter")
    kernels = litert.OpResolverType
    with quiet_once() if fast else nullcontext():  # only default kernels' delegate logs
        made = litert.Interpreter(
            model_content=content,
            num_threads=1,
            experimental_op_resolver_type=kernels.AUTO if fast else kernels.BUILTIN_REF,
        )
        made.allocate_tensors()
    return made


def to_tflite(model: Model, pools: Sequence[bytes] = ()) -> bytes:
    """The main subgraph of a model as a .tflite file.

    Args:
        model: an NNAPI model.
        pools: bytes of its pools.

    Raises:
        KeyError: an operation or operand type is not translated.
    """
    flatbuffers = import_module("flatbuffers")
    schema = import_module("ai_edge_litert.schema_py_generated")

    translation = _Translation(schema, model, pools)
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(translation.model().Pack(builder), b"TFL3")
    return bytes(builder.Output())


class _Translation:
    """Translates one model; collects tensors, buffers and operator codes."""

    def __init__(self, schema: Any, model: Model, pools: Sequence[bytes]) -> None:  # noqa: ANN401
        self.schema = schema
        self.graph = model.main
        self.sources = (model.operand_values, *pools)
        self.buffers = [schema.BufferT()]  # buffer 0 is the empty one
        self.tensors: list[Any] = []
        self.indexes: dict[int, int] = {}
        self.codes: list[int] = []

    def model(self) -> Any:  # noqa: ANN401
        graph = self.schema.SubGraphT()
        graph.operators = [self._operator(operation) for operation in self.graph.operations]
        graph.inputs = [self._tensor(i) for i in self.graph.input_indexes]
        graph.outputs = [self._tensor(i) for i in self.graph.output_indexes]
        graph.tensors = self.tensors
        made = self.schema.ModelT()
        made.version = 3
        made.subgraphs, made.buffers = [graph], self.buffers
        made.operatorCodes = [self._operator_code(code) for code in self.codes]
        return made

    def _operator(self, operation: Operation) -> Any:  # noqa: ANN401
        kind = OperationType(operation.type)
        inputs = [self.graph.operands[i] for i in operation.inputs]
        outputs = [self.graph.operands[i] for i in operation.outputs]
        match = SIGNATURES[kind].match(inputs, outputs)
        values = {
            slot.name: self._array(operand).item()
            for slot, operand in zip(match.inputs, inputs, strict=True)
            if slot.role is Role.CONTROL and not operand.dimensions
        }
        name, fill = _TRANSLATIONS[kind]
        made = self.schema.OperatorT()
        made.opcodeIndex = self._code(getattr(self.schema.BuiltinOperator, kind.name))
        made.inputs = [
            self._tensor(index)
            for index, operand, slot in zip(operation.inputs, inputs, match.inputs, strict=True)
            if slot.role is Role.DATA or operand.dimensions
        ]
        made.outputs = [self._tensor(index) for index in operation.outputs]
        if name:
            made.builtinOptionsType = getattr(self.schema.BuiltinOptions, name)
            made.builtinOptions = getattr(self.schema, f"{name}T")()
            for field, value in fill(values).items():
                setattr(made.builtinOptions, field, value)
        return made

    def _code(self, code: int) -> int:
        if code not in self.codes:
            self.codes.append(code)
        return self.codes.index(code)

    def _operator_code(self, code: int) -> Any:  # noqa: ANN401
        made = self.schema.OperatorCodeT()
        made.builtinCode, made.deprecatedBuiltinCode = code, min(code, 127)
        made.version = 1  # kernels ignore it, and each has a version 1
        return made

    def _tensor(self, index: int) -> int:
        if index not in self.indexes:
            self.indexes[index] = len(self.tensors)
            self.tensors.append(self._new_tensor(self.graph.operands[index]))
        return self.indexes[index]

    def _new_tensor(self, operand: Operand) -> Any:  # noqa: ANN401
        made = self.schema.TensorT()
        made.name = f"tensor{len(self.tensors)}"
        made.shape = list(operand.dimensions)
        made.type = getattr(self.schema.TensorType, _TYPES[OperandType(operand.type)])
        made.buffer = 0
        if operand.is_constant:
            made.buffer = len(self.buffers)
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(self._bytes(operand), np.uint8)
            self.buffers.append(buffer)
        made.quantization = self._quantization(operand)
        return made

    def _quantization(self, operand: Operand) -> Any:  # noqa: ANN401
        made = self.schema.QuantizationParametersT()
        params = operand.extra_params
        if isinstance(params, SymmPerChannelQuantParams):
            made.scale = list(params.scales)
            made.zeroPoint = [0] * len(params.scales)
            made.quantizedDimension = params.channel_dim
        elif operand.scale or OperandType(operand.type) in QUANTIZED_RANGES:
            made.scale, made.zeroPoint = [operand.scale], [operand.zero_point]
        return made

    def _bytes(self, operand: Operand) -> bytes:
        place = operand.location
        referenced = operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE
        source = self.sources[place.pool_index + 1 if referenced else 0]
        return source[place.offset : place.offset + place.length]

    def _array(self, operand: Operand) -> np.ndarray[Any, Any]:
        return np.frombuffer(self._bytes(operand), DTYPES[OperandType(operand.type)])


_TYPES: Final = {
    OperandType.TENSOR_FLOAT32: "FLOAT32",
    OperandType.TENSOR_INT32: "INT32",
    OperandType.TENSOR_QUANT8_ASYMM: "UINT8",
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: "INT8",
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: "INT8",
}


def _activation(values: _Values) -> dict[str, Any]:
    return {"fusedActivationFunction": values["activation"]}  # the codes are the same


def _window(values: _Values) -> dict[str, Any]:
    return {
        "padding": 0 if values["padding_scheme"] == _SAME else 1,
        "strideW": values["stride_width"],
        "strideH": values["stride_height"],
        **_activation(values),
    }


def _convolution(values: _Values) -> dict[str, Any]:
    return {
        "dilationWFactor": values.get("dilation_width", 1),
        "dilationHFactor": values.get("dilation_height", 1),
        **_window(values),
    }


def _pool(values: _Values) -> dict[str, Any]:
    filter_size = {"filterWidth": values["filter_width"], "filterHeight": values["filter_height"]}
    return {**filter_size, **_window(values)}


#: Name of the options' class, and its fields from the values of scalar operands.
_TRANSLATIONS: Final[dict[OperationType, tuple[str, Callable[[_Values], dict[str, Any]]]]] = {
    OperationType.CONV_2D: ("Conv2DOptions", _convolution),
    OperationType.DEPTHWISE_CONV_2D: (
        "DepthwiseConv2DOptions",
        lambda values: {"depthMultiplier": values["depth_multiplier"], **_convolution(values)},
    ),
    OperationType.FULLY_CONNECTED: ("FullyConnectedOptions", _activation),
    OperationType.AVERAGE_POOL_2D: ("Pool2DOptions", _pool),
    OperationType.MAX_POOL_2D: ("Pool2DOptions", _pool),
    OperationType.ADD: ("AddOptions", _activation),
    OperationType.MUL: ("MulOptions", _activation),
    OperationType.SOFTMAX: ("SoftmaxOptions", lambda values: {"beta": values["beta"]}),
    OperationType.LOGISTIC: ("", lambda _: {}),
    OperationType.RESHAPE: ("ReshapeOptions", lambda _: {}),
}
