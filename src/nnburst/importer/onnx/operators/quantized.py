"""Translates ONNX's operators between real numbers and integers, and onnxruntime's operators on integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.onnx.node import (
    TABLE,
    Node,
    Quantization,
    dequantized,
    operator,
    output_dtype,
    parameters,
    quantized_type,
    stored_integers,
)
from nnburst.importer.onnx.operators.activation import mul
from nnburst.importer.onnx.operators.convolution import as_integers
from nnburst.importer.onnx.operators.elementwise import broadcast, quantized_binary
from nnburst.importer.onnx.operators.shape import converted
from nnburst.importer.onnx.operators.slicing import concatenated
from nnburst.importer.onnx.tensor import QuantizedConstant, Tensor, constant
from nnburst.importer.tensors import Refused

_O = OperationType
_T = OperandType


@operator("QuantizeLinear")
def _quantize(node: Node) -> None:
    """Append QUANTIZE; no operation if the input already is these integers."""
    x = node.input()
    into = parameters(node, 1, 2, output_dtype(node, np.dtype(np.uint8)))
    dtype = np.dtype(np.uint8 if into.type == _T.TENSOR_QUANT8_ASYMM else np.int8)
    if not x.is_known and x.is_quantized_real:
        kind = x.computed().type
        if into.matches(kind):
            node.put(stored_integers(x, dtype))
            return
    x = node.graph.real(x)
    if x.is_known:
        limits = np.iinfo(dtype)
        numbers = np.round(x.array() / np.float32(into.scale)) + into.zero_point
        node.put_known(np.clip(numbers, limits.min, limits.max).astype(dtype))
        return
    node.require(x.dtype.kind == "f", f"{x.dtype} is quantised")
    value = x.computed()
    made = node.emit(_O.QUANTIZE, [value], quantized_type(into, value.type.dimensions))
    node.put(Tensor(x.shape, dtype, value=made, order=x.order))


@operator("DequantizeLinear")
def _dequantize(node: Node) -> None:
    """Note the quantisation only, since a later operation may compute on the integers."""
    x = node.input()
    node.require(
        not node.integer("block_size"),
        "scales are given for blocks, expected one, or one for each channel",
    )
    expected = node.input(1).dtype
    found = output_dtype(node, expected)
    node.require(found == expected, f"output_dtype is {found}, expected {expected} as of the scale")
    if x.is_known:
        node.put(_known(node, x))
        return
    by = parameters(node, 1, 2, x.dtype)
    real = dequantized(x, by)
    if real is None:
        real = _by_parts(node, x, by)
    if expected != real.dtype:  # ONNX: the result has the type of the scale
        real = converted(node, node.graph.real(real), expected)
    node.put(real)


def _known(node: Node, x: Tensor) -> Tensor:
    scale, axis = node.array(1, "scale"), node.integer("axis", 1)
    zeros = np.zeros(scale.size, x.dtype)
    if node.optional(2) is not None:
        zeros = node.array(2, "zero point")
    node.require(
        scale.ndim <= 1, "scales are given for blocks, expected one, or one for each channel"
    )
    axis = node.axis(axis, x.rank) if scale.size > 1 else 0
    node.graph.budget.spend(4 * x.elements)  # of the real numbers, which are kept
    made = QuantizedConstant(x.array(), scale.reshape(-1), zeros.reshape(-1), axis)
    return Tensor(x.shape, scale.dtype, quantized=made)


def _by_parts(node: Node, x: Tensor, by: Quantization) -> Tensor:
    """Dequantise by SUB and MUL, for integers whose operand has another scale or zero point."""
    node.require(x.dtype == np.uint8, f"{x.dtype} that stands for other numbers elsewhere")
    numbers = converted(node, x, np.dtype(np.float32))
    moved = broadcast(node, _O.SUB, [numbers, constant(np.array([by.zero_point], np.float32))], 0)
    return mul(node, moved, by.scale)


_BINARY: Final = {"QLinearAdd": _O.ADD, "QLinearMul": _O.MUL}


@operator(*_BINARY, domain="com.microsoft")
def _qlinear_binary(node: Node) -> None:
    """Inputs are a, its scale and zero point; the same of b; scale and zero point of the result."""
    into = parameters(node, 6, 7)
    x, y = _integers(node, 0), _integers(node, 3)
    saved, node.quantization = node.quantization, into
    done = quantized_binary(node, _BINARY[node.kind], x, y)
    node.quantization = saved
    if done:
        as_integers(node, into)
        return
    real = broadcast(node, _BINARY[node.kind], [node.graph.real(x), node.graph.real(y)], 0)
    _put_quantized(node, real, into)


def _put_integers(node: Node, found: Tensor, into: Quantization) -> None:
    """Set the output to a result's integers; a result that is not quantised so is quantised."""
    if found.is_quantized_real and into.matches(found.computed().type):
        node.put(found)
        as_integers(node, into)
    else:
        _put_quantized(node, node.graph.real(found), into)


def _put_quantized(node: Node, real: Tensor, into: Quantization) -> None:
    dtype = np.dtype(np.uint8 if into.type == _T.TENSOR_QUANT8_ASYMM else np.int8)
    value = real.computed()
    made = node.emit(_O.QUANTIZE, [value], quantized_type(into, value.type.dimensions))
    node.put(Tensor(real.shape, dtype, value=made, order=real.order))


def _integers(node: Node, position: int) -> Tensor:
    by = parameters(node, position + 1, position + 2)
    found = dequantized(node.input(position), by)
    if found is None:
        raise Refused(f"the integers of input {position} stand for other numbers elsewhere")
    return found


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain="com.microsoft")
def _qlinear_unary(node: Node) -> None:
    """Inputs are x, its scale and zero point; scale and zero point of the result."""
    into = parameters(node, 3, 4)
    x = node.graph.real(_integers(node, 0))
    value = node.graph.any_form(x)
    if node.kind == "QLinearSigmoid":
        made = node.emit(_O.LOGISTIC, [value], value.type)
    else:
        slope = node.graph.filled(node.real_number("alpha", 0.01), value.type)
        made = node.emit(_O.PRELU, [value, slope], value.type)
    _put_quantized(node, replace(x, value=made), into)


@operator("QLinearConcat", domain="com.microsoft")
def _qlinear_concat(node: Node) -> None:
    """Inputs are scale and zero point of the result, and then each part with its own."""
    into = parameters(node, 0, 1)
    parts = [_integers(node, at) for at in range(2, node.count, 3)]
    saved, node.quantization = node.quantization, into
    axis = node.axis(node.integer("axis"), parts[0].rank)
    found = concatenated(node, parts, axis)
    node.quantization = saved
    _put_integers(node, found, into)


#: Operators on integers, by the operators that compute the same on real numbers.
_ON_REAL_NUMBERS: Final = {
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearSoftmax": "Softmax",
}


@operator(*_ON_REAL_NUMBERS, domain="com.microsoft")
def _qlinear_as_real(node: Node) -> None:
    """Inputs are x, its scale and zero point; scale and zero point of the result."""
    node.require(
        not node.integer("channels_last"),
        "channels_last is 1, expected 0: no channels behind the image's axes",
    )
    node.require(
        not (node.integer("ceil_mode") and node.integer("count_include_pad")),
        "ceil_mode and count_include_pad are 1: onnxruntime counts more than the padding",
    )
    into = parameters(node, 3, 4)
    version = node.integer("opset", 11)  # of Softmax, which before 13 joins axes
    kind = _ON_REAL_NUMBERS[node.kind]
    _put_real(node, node.likewise(kind, version, [_integers(node, 0)], into), into)


@operator("QGemm", domain="com.microsoft")
def _q_gemm(node: Node) -> None:
    """Inputs are a and b, each with scale and zero point; c of int32; those of y, which is real without."""
    alpha = node.real_number("alpha", 1.0)
    node.require(alpha == 1.0, f"alpha is {alpha}, expected 1")
    by = parameters(node, 1, 2)
    stored, scale = node.array(3, "weights"), node.array(4, "scale").reshape(-1)
    zero = node.array(5, "zero point").reshape(-1)
    kept = QuantizedConstant(stored, scale, zero, 0 if node.integer("transB") else 1)
    inputs: list[Tensor | None] = [_integers(node, 0), _real_constant(kept), None]
    if node.optional(6) is not None:
        offsets = node.array(6, "bias")
        steps = np.float32(by.scale) * scale
        made = QuantizedConstant(offsets, steps, np.zeros(1, np.int32), max(offsets.ndim - 1, 0))
        inputs[2] = _real_constant(made)
    into = parameters(node, 7, 8) if node.optional(7) is not None else None
    _put_real(node, node.likewise("Gemm", 13, inputs, into), into)


def _real_constant(kept: QuantizedConstant) -> Tensor:
    return Tensor(kept.stored.shape, np.dtype(np.float32), quantized=kept)


def _put_real(node: Node, inner: Node, into: Quantization | None) -> None:
    """Translate an operator on real numbers; the result is quantised if `into` is given."""
    TABLE["", inner.kind](inner)
    found = inner.results[0]
    if into is None:
        node.put(found)
    else:
        _put_integers(node, found, into)
