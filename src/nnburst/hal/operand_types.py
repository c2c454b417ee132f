"""Facts about operand types: scalar or tensor, element type, quantisation.

NNAPI: types.hal OperandType, Utils.cpp nonExtensionOperandSizeOfData.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from nnburst.hal.enums import FeatureLevel, OperandType
from nnburst.hal.limits import OPERAND_TYPE_BASE_MAX, UINT32_MAX

_T = OperandType

#: Element type of every core type that carries data, little endian as on the wire.
DTYPES: Final[dict[OperandType, np.dtype]] = {
    _T.FLOAT32: np.dtype("<f4"),
    _T.INT32: np.dtype("<i4"),
    _T.UINT32: np.dtype("<u4"),
    _T.BOOL: np.dtype("u1"),
    _T.FLOAT16: np.dtype("<f2"),
    _T.TENSOR_FLOAT32: np.dtype("<f4"),
    _T.TENSOR_INT32: np.dtype("<i4"),
    _T.TENSOR_QUANT8_ASYMM: np.dtype("u1"),
    _T.TENSOR_QUANT16_SYMM: np.dtype("<i2"),
    _T.TENSOR_FLOAT16: np.dtype("<f2"),
    _T.TENSOR_BOOL8: np.dtype("u1"),
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL: np.dtype("i1"),
    _T.TENSOR_QUANT16_ASYMM: np.dtype("<u2"),
    _T.TENSOR_QUANT8_SYMM: np.dtype("i1"),
    _T.TENSOR_QUANT8_ASYMM_SIGNED: np.dtype("i1"),
    _T.TENSOR_OEM_BYTE: np.dtype("u1"),
}

SCALARS: Final = frozenset(
    {_T.FLOAT32, _T.INT32, _T.UINT32, _T.BOOL, _T.FLOAT16, _T.SUBGRAPH, _T.OEM}
)

#: Smallest and largest stored value of every quantised tensor type.
QUANTIZED_RANGES: Final[dict[OperandType, tuple[int, int]]] = {
    _T.TENSOR_QUANT8_ASYMM: (0, 255),
    _T.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
    _T.TENSOR_QUANT8_SYMM: (-128, 127),
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL: (-128, 127),
    _T.TENSOR_QUANT16_ASYMM: (0, 65535),
    _T.TENSOR_QUANT16_SYMM: (-32768, 32767),
}

#: Version that introduced each core operand type.
INTRODUCED: Final[dict[OperandType, FeatureLevel]] = {
    kind: FeatureLevel.V1_0
    if kind <= _T.TENSOR_QUANT8_ASYMM or kind >= _T.OEM
    else FeatureLevel.V1_2
    if kind <= _T.TENSOR_QUANT8_SYMM
    else FeatureLevel.V1_3
    for kind in OperandType
}


def is_extension(kind: int) -> bool:
    """Whether an operand or operation type belongs to an extension (compared as unsigned 32 bit)."""
    return (kind & UINT32_MAX) > OPERAND_TYPE_BASE_MAX


def is_scalar(kind: OperandType) -> bool:
    """Whether a core type is a scalar (NNAPI: nonExtensionOperandTypeIsScalar)."""
    return kind in SCALARS


def size_bytes(kind: OperandType, dimensions: Sequence[int]) -> int:
    """Bytes of one operand's data; 0 when it is unknown (a dimension 0, or a tensor of rank 0).

    Python's integers do not overflow, so a size above 2**32 - 1 is returned as it is and refused by
    validation (NNAPI: nonExtensionOperandSizeOfData; DEVIATES: the original aborts on overflow).
    """
    dtype = DTYPES.get(kind)
    if dtype is None:
        return 0
    if kind in SCALARS:
        return dtype.itemsize
    return dtype.itemsize * math.prod(dimensions) if len(dimensions) else 0
