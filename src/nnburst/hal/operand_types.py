"""Facts about operand types: scalar or tensor, element type, quantisation.

NNAPI: types.hal OperandType, Utils.cpp nonExtensionOperandSizeOfData.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from struct import calcsize
from typing import TYPE_CHECKING, Any, Final

from nnburst.hal.enums import FeatureLevel, OperandType
from nnburst.hal.imports import late_numpy as np
from nnburst.hal.limits import OPERAND_TYPE_BASE_MAX, UINT32_MAX

_T = OperandType

#: How `struct` calls the elements of every core type that carries data; little endian, as on the wire.
ELEMENT_CODES: Final[dict[OperandType, str]] = {
    _T.FLOAT32: "f",
    _T.INT32: "i",
    _T.UINT32: "I",
    _T.BOOL: "B",
    _T.FLOAT16: "e",
    _T.TENSOR_FLOAT32: "f",
    _T.TENSOR_INT32: "i",
    _T.TENSOR_QUANT8_ASYMM: "B",
    _T.TENSOR_QUANT16_SYMM: "h",
    _T.TENSOR_FLOAT16: "e",
    _T.TENSOR_BOOL8: "B",
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL: "b",
    _T.TENSOR_QUANT16_ASYMM: "H",
    _T.TENSOR_QUANT8_SYMM: "b",
    _T.TENSOR_QUANT8_ASYMM_SIGNED: "b",
    _T.TENSOR_OEM_BYTE: "B",
}
#: Bytes of an element of each of them.
ELEMENT_BYTES: Final = {kind: calcsize(f"<{code}") for kind, code in ELEMENT_CODES.items()}

if TYPE_CHECKING:
    #: numpy's type of the elements of each of them; made when it is first asked for.
    DTYPES: dict[OperandType, np.dtype[Any]]

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
    element = ELEMENT_BYTES.get(kind, 0)
    if kind in SCALARS:
        return element
    return element * math.prod(dimensions) if len(dimensions) else 0


def __getattr__(name: str) -> object:
    if name != "DTYPES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = {kind: np.dtype(f"<{code}") for kind, code in ELEMENT_CODES.items()}
    globals()[name] = made
    return made
