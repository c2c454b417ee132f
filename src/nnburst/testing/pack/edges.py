"""Which operations define what they do with values at the edge of a type, and those values."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES
from nnburst.testing.pack.recipes import Edge

_O = OperationType
#: They move or choose elements: any bits go through.
MOVING: Final = frozenset(
    {
        _O.RESHAPE, _O.EXPAND_DIMS, _O.SQUEEZE, _O.TRANSPOSE, _O.PAD, _O.PAD_V2, _O.MIRROR_PAD, _O.REVERSE,
        _O.SLICE, _O.STRIDED_SLICE, _O.CONCATENATION, _O.PACK, _O.SPLIT, _O.GATHER, _O.TILE,
        _O.CHANNEL_SHUFFLE, _O.DEPTH_TO_SPACE, _O.SPACE_TO_DEPTH, _O.BATCH_TO_SPACE_ND,
        _O.SPACE_TO_BATCH_ND, _O.SELECT, _O.EMBEDDING_LOOKUP, _O.HASHTABLE_LOOKUP,
    }
)  # fmt: skip
#: IEEE 754 defines what comes out, also of NaN and infinities.
ARITHMETIC: Final = frozenset(
    {
        _O.ADD, _O.SUB, _O.MUL, _O.ABS, _O.NEG, _O.EQUAL, _O.NOT_EQUAL, _O.LESS, _O.LESS_EQUAL, _O.GREATER,
        _O.GREATER_EQUAL,
    }
)  # fmt: skip
#: Infinities have a result, NaN has none that NNAPI names.
ORDERED: Final = frozenset(
    {
        _O.MAXIMUM,
        _O.MINIMUM,
        _O.RELU,
        _O.RELU1,
        _O.RELU6,
        _O.TANH,
        _O.LOGISTIC,
        _O.REDUCE_MAX,
        _O.REDUCE_MIN,
    }
)
#: Their results leave the range of INT32, which NNAPI does not define.
_OVERFLOWING: Final = frozenset({_O.ADD, _O.SUB, _O.MUL, _O.DIV, _O.BATCH_MATMUL})
_WITH_NAN: Final = MOVING | ARITHMETIC
_WITH_INFINITY: Final = _WITH_NAN | ORDERED
_FLOATS: Final = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)


def is_defined(operation: OperationType, kind: OperandType, edge: Edge) -> bool:
    """Whether NNAPI or IEEE 754 defines what an operation makes of such elements."""
    if kind in QUANTIZED_RANGES or kind is OperandType.TENSOR_BOOL8:
        return edge in (Edge.LOWEST, Edge.HIGHEST)
    if kind is OperandType.TENSOR_INT32:
        return edge is Edge.ZEROS or (edge is Edge.HIGHEST and operation not in _OVERFLOWING)
    if edge is Edge.ZEROS:
        return operation is not _O.RSQRT  # the sign of what comes out is that of the zero
    if edge is Edge.NOT_A_NUMBER:
        return operation in _WITH_NAN
    return edge in (Edge.LARGEST, Edge.INFINITE) and operation in _WITH_INFINITY


def elements(edge: Edge, kind: OperandType) -> list[Any]:
    """Elements of this edge that go between ordinary ones."""
    dtype = DTYPES[kind]
    if kind in _FLOATS:
        largest = float(np.finfo(dtype).max)
        return {
            Edge.ZEROS: [0.0, -0.0],
            Edge.LARGEST: [largest, -largest, float(np.finfo(dtype).tiny)],
            Edge.INFINITE: [math.inf, -math.inf],
            Edge.NOT_A_NUMBER: [math.nan],
        }[edge]
    if kind is OperandType.TENSOR_BOOL8:
        return [int(edge is Edge.HIGHEST)]
    if kind is OperandType.TENSOR_INT32:
        return [0] if edge is Edge.ZEROS else [2**31 - 1, -(2**31) + 1]
    low, high = QUANTIZED_RANGES[kind]
    return [low if edge is Edge.LOWEST else high]
