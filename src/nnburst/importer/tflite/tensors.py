"""A tensor of the file as an NNAPI operand: type, dimensions, quantisation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from nnburst.formats.tflite.reader import File, MalformedTflite
from nnburst.formats.tflite.schema import names
from nnburst.hal.enums import OperandType
from nnburst.hal.limits import MAX_RANK, UINT32_MAX
from nnburst.hal.model import SymmPerChannelQuantParams
from nnburst.hal.operand_types import size_bytes
from nnburst.importer.refused import Refused
from nnburst.importer.tensor_type import TensorType

_T = OperandType

#: Operand type of every element type that NNAPI has. What is not quantised in the file gets step 1.
_TYPES: Final = {
    "FLOAT32": _T.TENSOR_FLOAT32,
    "FLOAT16": _T.TENSOR_FLOAT16,
    "INT32": _T.TENSOR_INT32,
    "UINT8": _T.TENSOR_QUANT8_ASYMM,
    "INT8": _T.TENSOR_QUANT8_ASYMM_SIGNED,
    "INT16": _T.TENSOR_QUANT16_SYMM,
    "BOOL": _T.TENSOR_BOOL8,
}
#: Element types that only constants may have: they are converted when they are read.
CONSTANT_TYPES: Final = {
    "INT64": _T.TENSOR_INT32,
    "FLOAT64": _T.TENSOR_FLOAT32,
    "INT4": _T.TENSOR_QUANT8_ASYMM_SIGNED,
}
_ZERO_POINTS: Final = {
    _T.TENSOR_QUANT8_ASYMM: (0, 255),
    _T.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
}


def element_type(tensor: Any) -> str:  # noqa: ANN401 - generated code without types
    """Name of a tensor's element type in the file."""
    return names("TensorType").get(tensor.Type(), f"type {tensor.Type()}")


def tensor_type(file: File, tensor: Any, *, constant: bool) -> TensorType:  # noqa: ANN401
    """The operand that a tensor of the file becomes.

    Args:
        file: is charged for the scales.
        tensor: of the file.
        constant: whether its value is; constants may have types that are converted.

    Raises:
        Refused: NNAPI has no such operand.
    """
    name = element_type(tensor)
    kind = _TYPES.get(name) or (CONSTANT_TYPES.get(name) if constant else None)
    if kind is None:
        raise Refused(f"type {name} is not one of NNAPI's")
    found = TensorType(kind, _dimensions(tensor))
    if size_bytes(kind, found.dimensions) > UINT32_MAX:
        raise Refused(f"shape {list(found.dimensions)} is larger than an operand can be")
    return _quantized(file, tensor, found)


def _dimensions(tensor: Any) -> tuple[int, ...]:  # noqa: ANN401
    rank = tensor.ShapeLength()
    if rank > MAX_RANK:
        raise Refused(f"rank {rank}, expected at most {MAX_RANK}")
    dimensions = tuple(int(tensor.Shape(axis)) for axis in range(rank))
    if any(extent < 1 for extent in dimensions):
        raise Refused(f"shape {list(dimensions)}: NNAPI has no extents below 1 but unknown ones")
    return dimensions or (1,)


def _quantized(file: File, tensor: Any, plain: TensorType) -> TensorType:  # noqa: ANN401
    if plain.type not in _ZERO_POINTS and plain.type != _T.TENSOR_QUANT16_SYMM:
        return plain
    params = tensor.Quantization()
    count = 0 if params is None else params.ScaleLength()
    if not count:
        return replace(plain, scale=1.0)
    if count != 1:
        return _per_channel(file, params, count, plain)
    zero_point = int(params.ZeroPoint(0)) if params.ZeroPointLength() else 0
    low, high = _ZERO_POINTS.get(plain.type, (0, 0))
    if not low <= zero_point <= high:
        raise Refused(f"zero point {zero_point}, expected {low} to {high}")
    return replace(plain, scale=_scale(params.Scale(0)), zero_point=zero_point)


def _per_channel(file: File, params: Any, count: int, plain: TensorType) -> TensorType:  # noqa: ANN401
    """Types of tensors that have a scale per channel: symmetric int8."""
    axis = int(params.QuantizedDimension())
    if plain.type != _T.TENSOR_QUANT8_ASYMM_SIGNED:
        raise Refused(f"{count} scales: NNAPI quantises only int8 per channel")
    if not 0 <= axis < len(plain.dimensions) or plain.dimensions[axis] != count:
        raise MalformedTflite(f"{count} scales for dimension {axis} of {list(plain.dimensions)}")
    file.spend(64 * count)
    if params.ZeroPointLength() and params.ZeroPointAsNumpy().any():
        raise Refused("zero points per channel, expected 0")
    scales = tuple(_scale(scale) for scale in params.ScaleAsNumpy().tolist())
    return replace(
        plain,
        type=_T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        extra_params=SymmPerChannelQuantParams(scales, axis),
    )


def _scale(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise Refused(f"scale {value}, expected a positive number")
    return float(value)
