"""KServe's data types and NNAPI's.

Quantised tensors travel as their integers; scale and zero point are in the model's configuration. INT64,
UINT64, FP64, BF16 and BYTES have no counterpart in NNAPI and are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nnburst.hal.errors import InvalidArgument


@dataclass(frozen=True)
class DataType:
    """One of KServe's types that tensors of NNAPI can have.

    Attributes:
        name: as requests have it.
        dtype: of arrays, little-endian.
        contents: field of `InferTensorContents`; empty for types that travel as raw bytes only.
    """

    name: str
    dtype: np.dtype[Any]
    contents: str


_ALL: Final = (
    DataType("BOOL", np.dtype(np.bool_), "bool_contents"),
    DataType("UINT8", np.dtype("u1"), "uint_contents"),
    DataType("INT8", np.dtype("i1"), "int_contents"),
    DataType("UINT16", np.dtype("<u2"), "uint_contents"),
    DataType("INT16", np.dtype("<i2"), "int_contents"),
    DataType("UINT32", np.dtype("<u4"), "uint_contents"),
    DataType("INT32", np.dtype("<i4"), "int_contents"),
    DataType("FP16", np.dtype("<f2"), ""),
    DataType("FP32", np.dtype("<f4"), "fp32_contents"),
)
_BY_DTYPE: Final[Mapping[np.dtype[Any], DataType]] = {kind.dtype: kind for kind in _ALL}


def data_type(dtype: np.dtype[Any]) -> DataType:
    """KServe's type for arrays of `dtype`.

    Raises:
        InvalidArgument: it has none, as types of extensions do.
    """
    if dtype not in _BY_DTYPE:
        raise InvalidArgument(f"tensors of {dtype} cannot be served: KServe has no such type")
    return _BY_DTYPE[dtype]
