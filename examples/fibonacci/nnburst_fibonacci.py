"""com.example.fibonacci: a vendor extension with two operand types, one operation and custom parameters.

    type 0  INT64                a scalar of 8 bytes
    type 1  TENSOR_QUANT64_ASYMM 8 bytes an element; its parameters are a double (scale) and an int64
                                 (zero point), packed into the operand's extension bytes
    operation 0  FIBONACCI       n (INT64, or a TENSOR_FLOAT32 with one element) → the first n Fibonacci
                                 numbers as TENSOR_FLOAT32 or TENSOR_QUANT64_ASYMM, shape (n,)

The same file serves both sides: drivers load `FIBONACCI`, clients use the numbers and `Quantization`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, Self

import numpy as np

from nnburst.executor.graph.declarations import F32, control, data
from nnburst.executor.graph.extension import VendorExtension
from nnburst.executor.graph.operation import Node, Run
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.model import ExtensionParams
from nnburst.hal.signature import Form

NAME: Final = "com.example.fibonacci"
INT64: Final = 0
TENSOR_QUANT64_ASYMM: Final = 1
FIBONACCI_OPERATION: Final = 0

#: The 93rd number is the first that an int64 cannot hold.
_LONGEST: Final = 92


class Quantization(NamedTuple):
    """Parameters of a TENSOR_QUANT64_ASYMM operand: value = scale × (stored − zero_point)."""

    scale: float
    zero_point: int

    def pack(self) -> ExtensionParams:
        """As an operand carries it."""
        return ExtensionParams(struct.pack("<dq", *self))

    @classmethod
    def unpack(cls, params: object) -> Self:
        """From an operand's parameters.

        Raises:
            ValueError: they are not 16 bytes of an extension, or the scale is not positive.
        """
        if not isinstance(params, ExtensionParams) or len(params.data) != 16:
            raise ValueError("TENSOR_QUANT64_ASYMM needs 16 bytes of parameters")
        found = cls(*struct.unpack("<dq", params.data))
        if not found.scale > 0:
            raise ValueError(f"scale is {found.scale}, expected more than 0")
        return found


FIBONACCI: Final = VendorExtension(NAME)
_INT64 = FIBONACCI.operand_type(INT64, "INT64", np.int64, is_tensor=False)
_QUANT64 = FIBONACCI.operand_type(
    TENSOR_QUANT64_ASYMM, "TENSOR_QUANT64_ASYMM", np.int64, is_tensor=True
)


def _length(node: Node) -> int:
    given = node.tensor("n")
    node.require(given.array.size == 1, "operand 'n' must have one element")
    n = float(given.array.reshape(-1)[0])
    node.require(n.is_integer() and 1 <= n <= _LONGEST, f"n is {n:g}, expected 1 to {_LONGEST}")
    return int(n)


def _shape(node: Node) -> list[TensorType]:
    return [node.like_declared((_length(node),))]


@FIBONACCI.operation(
    FIBONACCI_OPERATION,
    "FIBONACCI",
    forms=[Form((control("n", "N"),), (data("fibonacci", "T"),))],
    rows=[{"N": frozenset({_INT64, F32}), "T": frozenset({F32, _QUANT64})}],
    shape=_shape,
    summary="The first n Fibonacci numbers, beginning with 1, 1.",
)
def fibonacci(node: Node) -> Run:
    """Bind FIBONACCI."""
    out = node.output()
    numbers = [1, 1]
    while len(numbers) < out.shape[0]:
        numbers.append(numbers[-1] + numbers[-2])
    values = np.array(numbers[: out.shape[0]], np.int64)
    if out.type == _QUANT64:
        try:
            scale, zero_point = Quantization.unpack(node.declared().extra_params)
        except ValueError as error:
            raise node.failure(str(error)) from error
        result = np.rint(values / scale).astype(np.int64) + zero_point
    else:
        result = values.astype(np.float32)

    def run() -> None:
        np.copyto(out.array, result)

    return run
