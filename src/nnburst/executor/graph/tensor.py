"""An operand with memory, as shape rules and kernels see it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.hal.extensions import ExtensionOperandType
from nnburst.hal.model import ExtraParams
from nnburst.hal.operand_types import DTYPES, SCALARS

Array = npt.NDArray[Any]


class TensorType(msgspec.Struct, frozen=True):
    """Type, shape and quantisation: what a shape rule computes.

    Attributes:
        type: core operand type, or an extension's, which has a name and a value like a member.
        dimensions: extents, all known; () for scalars. A 0 is a truly empty extent here.
        scale: quantisation step (a float32 value held as a Python float).
        zero_point: stored value of 0.
        extra_params: per-channel scales, or an extension's bytes.
    """

    type: OperandType
    dimensions: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    extra_params: ExtraParams = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        kind: object = self.type
        return kind.dtype if isinstance(kind, ExtensionOperandType) else DTYPES[self.type]

    @property
    def is_scalar(self) -> bool:
        """Whether it never has dimensions."""
        kind: object = self.type
        return not kind.is_tensor if isinstance(kind, ExtensionOperandType) else kind in SCALARS


class Tensor(msgspec.Struct, frozen=True):
    """A typed array.

    Attributes:
        meta: type, shape and quantisation; `meta.dimensions == array.shape`.
        array: the elements; inputs are read-only, outputs are written in place (`out=`, `[...] =`).
    """

    meta: TensorType
    array: Array

    @property
    def type(self) -> OperandType:
        """Operand type."""
        return self.meta.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.meta.dimensions

    @property
    def scale(self) -> float:
        """Quantisation step."""
        return self.meta.scale

    @property
    def zero_point(self) -> int:
        """Stored value of 0."""
        return self.meta.zero_point

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of `array`."""
        return self.array.dtype
