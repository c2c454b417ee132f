"""8-bit kernels as tables: every result is computed once when binding, and then only looked up.

One byte has 256 values and two have 65536, so an operation on stored bytes is a table of at most
64 KiB. Bytes are widened into private memory before they are used as indexes, and every byte is
within the table: memory that changes under a kernel cannot lead outside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.reference.arithmetic.quantized_values import all_stored_values
from nnburst.hal.enums import OperandType
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES


class Quantization(NamedTuple):
    """How real numbers are stored: what a table depends on, and so its key in a cache."""

    type: OperandType
    scale: float
    zero_point: int

    @classmethod
    def of(cls, tensor: Tensor | TensorType) -> Quantization:
        """That of a tensor."""
        return cls(tensor.type, tensor.scale, tensor.zero_point)

    def centred(self) -> npt.NDArray[np.int64]:
        """All 256 stored values minus the zero point, in the order of their bytes."""
        return all_stored_values(self.type).astype(np.int64) - self.zero_point

    def saturate(self, values: Array) -> Array:
        """Integers clamped to the type's range and stored in its dtype."""
        low, high = QUANTIZED_RANGES[self.type]
        stored: Array = np.clip(values, low, high).astype(DTYPES[self.type])
        return stored


def look_up(node: Node, table: Array, source: Array, result: Array) -> Run:
    """Bind `result = table[source]`.

    Args:
        node: gives the scratch memory.
        table: 256 results in the order of the bytes, of `result`'s dtype.
        source: 8-bit integers.
        result: memory of the same shape.
    """
    octets = source.view(np.uint8)
    index = node.scratch(source.shape, np.intp)

    def run() -> None:
        np.copyto(index, octets)
        np.take(table, index, out=result, mode="clip")

    return run


def look_up_pair(node: Node, table: Array, first: Array, second: Array, result: Array) -> Run:
    """Bind `result = table[first, second]` with broadcasting.

    Args:
        node: gives the scratch memory.
        table: 256 by 256 results in the order of the bytes, of `result`'s dtype.
        first: 8-bit integers.
        second: 8-bit integers.
        result: memory of the broadcast shape.
    """
    flat = table.reshape(-1)
    high, low = first.view(np.uint8), second.view(np.uint8)
    index = node.scratch(result.shape, np.intp)

    def run() -> None:
        np.left_shift(high, 8, out=index, dtype=np.intp)
        np.add(index, low, out=index)
        np.take(flat, index, out=result, mode="clip")

    return run
