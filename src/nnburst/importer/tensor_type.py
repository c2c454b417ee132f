"""What an operand is, whatever file it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

from nnburst.hal.enums import OperandType
from nnburst.hal.model import ExtraParams

_T = OperandType

QUANT8: Final = frozenset({_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED})


@dataclass(frozen=True, slots=True)
class TensorType:
    """What an operand is, without its value.

    Attributes:
        type: operand type.
        dimensions: extents, all known; a scalar of the file is a tensor of one element.
        scale: quantisation step.
        zero_point: stored value of 0.
        extra_params: per-channel scales.
    """

    type: OperandType
    dimensions: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    extra_params: ExtraParams = field(default=None, hash=False)  # thousands of scales, often

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.dimensions)

    @property
    def is_float(self) -> bool:
        """Whether the elements are real numbers as they are stored."""
        return self.type in (_T.TENSOR_FLOAT32, _T.TENSOR_FLOAT16)

    @property
    def is_quantized(self) -> bool:
        """Whether the elements stand for real numbers."""
        return self.type in QUANT8 or self.type == _T.TENSOR_QUANT8_SYMM_PER_CHANNEL

    def reshaped(self, *dimensions: int) -> TensorType:
        """The same elements in another shape."""
        return replace(self, dimensions=dimensions)

    def same_quantization(self, other: TensorType) -> bool:
        """Whether equal stored values stand for equal numbers."""
        return (self.scale, self.zero_point, self.extra_params) == (
            other.scale,
            other.zero_point,
            other.extra_params,
        )
