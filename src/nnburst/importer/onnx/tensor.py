"""Describes a tensor of an ONNX graph while it is translated, and the order of its axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.importer.subgraph import Value
from nnburst.importer.tensors import Refused

Order = tuple[int, ...]
Shape = tuple[int, ...]

#: Order in which images are stored.
NHWC: Order = (0, 2, 3, 1)


# -- Orders of axes, as pure functions -------------------------------------------------------------
# ONNX has N×C×H×W, NNAPI's engines need N×H×W×C. An `order` has the logical axis of each stored axis: (0, 2,
# 3, 1) for an image that is stored as N×H×W×C. So a Transpose of the file only changes the order; elements
# move if an operation needs another order.


def identity(rank: int) -> Order:
    """The order of a tensor that is stored as in the file."""
    return tuple(range(rank))


def permuted(shape: Sequence[int], order: Order) -> Shape:
    """Extents in the order in which they are stored."""
    return tuple(shape[axis] for axis in order)


def significant(shape: Sequence[int], order: Order) -> Order:
    """An order without the axes of extent 1, which may be anywhere."""
    return tuple(axis for axis in order if shape[axis] != 1)


def is_same(shape: Sequence[int], one: Order, other: Order) -> bool:
    """Whether elements lie alike in both orders."""
    return significant(shape, one) == significant(shape, other)


def collapsed(shape: Sequence[int], have: Order, want: Order) -> tuple[Shape, Order]:
    """The fewest axes by which a change of order can be expressed.

    Returns:
        The stored extents, with neighbours that stay neighbours as one axis, and for each axis of the
        result its position among these.
    """
    have, want = significant(shape, have), significant(shape, want)
    position = {axis: at for at, axis in enumerate(have)}
    runs: list[list[int]] = []
    for axis in want:
        at = position[axis]
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    stored = sorted(runs)
    extents = tuple(math.prod(shape[have[at]] for at in run) for run in stored)
    return extents, tuple(stored.index(run) for run in runs)


def groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Find the smallest groups of axes of one shape that become groups of axes of the other.

    Both shapes have the same number of elements. Axes of extent 1 are in no group.
    """
    found: list[tuple[list[int], list[int]]] = []
    before = [axis for axis, extent in enumerate(old) if extent != 1]
    after = [axis for axis, extent in enumerate(new) if extent != 1]
    i = j = 0
    while i < len(before):
        left, right = [before[i]], [after[j]]
        a, b = old[before[i]], new[after[j]]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a *= old[before[i]]
                left.append(before[i])
                i += 1
            else:
                b *= new[after[j]]
                right.append(after[j])
                j += 1
        found.append((left, right))
    return found


def reshaped(old: Sequence[int], order: Order, new: Sequence[int]) -> tuple[Order, Order]:
    """The order in which a tensor must be stored for a reshape, and the order of the new axes.

    Axes that are merged must be neighbours, the outer one first; only these are moved.

    Args:
        old: logical extents, all above 0.
        order: order in which they are stored.
        new: logical extents afterwards, with the same number of elements.

    Returns:
        The order in which it has to be stored (`order` if nothing moves), and the order of the new axes.
    """
    parts = groups(old, new)
    position = {axis: at for at, axis in enumerate(significant(old, order))}
    fits = all(all(position[b] == position[a] + 1 for a, b in pairwise(left)) for left, _ in parts)
    ordered = sorted(parts, key=lambda part: position[part[0][0]])
    ones = [axis for axis, extent in enumerate(old) if extent == 1]
    needed = order if fits else (*ones, *(axis for left, _ in ordered for axis in left))
    new_ones = [axis for axis, extent in enumerate(new) if extent == 1]
    return needed, (*new_ones, *(axis for _, right in ordered for axis in right))


def removed(order: Order, axes: Sequence[int]) -> Order:
    """The order of a tensor without some of its logical axes, which have extent 1."""
    return tuple(axis - sum(gone < axis for gone in axes) for axis in order if axis not in axes)


def merged(shapes: Sequence[Shape]) -> list[Shape]:
    """Shapes of operands that broadcast together, with neighbouring axes as one if all allow it.

    Args:
        shapes: of equal rank; the last one is the result's.

    Returns:
        The same shapes with as few axes as possible.
    """
    result = shapes[-1]
    kept: list[list[int]] = [[] for _ in shapes]
    before: tuple[bool, ...] | None = None
    for axis, extent in enumerate(result):
        if extent == 1:
            continue
        pattern = tuple(shape[axis] == extent for shape in shapes)
        if pattern == before:
            for each, shape in zip(kept, shapes, strict=True):
                each[-1] *= shape[axis]
        else:
            for each, shape in zip(kept, shapes, strict=True):
                each.append(shape[axis])
        before = pattern
    return [tuple(each) or (1,) for each in kept]


Array = npt.NDArray[Any]
_T = OperandType

#: Operand types of ONNX's element types. Integers of 64 bits are 32 in NNAPI, checked if they are known.
OPERAND_TYPES: Final[dict[np.dtype[Any], OperandType]] = {
    np.dtype(np.float32): _T.TENSOR_FLOAT32,
    np.dtype(np.float16): _T.TENSOR_FLOAT16,
    np.dtype(np.int32): _T.TENSOR_INT32,
    np.dtype(np.int64): _T.TENSOR_INT32,
    np.dtype(np.bool_): _T.TENSOR_BOOL8,
    np.dtype(np.uint8): _T.TENSOR_QUANT8_ASYMM,
    np.dtype(np.int8): _T.TENSOR_QUANT8_ASYMM_SIGNED,
}


@dataclass(frozen=True, slots=True)
class QuantizedConstant:
    """Stored integers that stand for real numbers: (stored - zero_point) * scale, along an axis.

    Attributes:
        stored: the integers.
        scale: one scale, or one for each index of `axis`.
        zero_point: one zero point, or one for each index of `axis`.
        axis: the axis; ignored if there is one scale.
    """

    stored: Array
    scale: Array
    zero_point: Array
    axis: int
    _real: list[Array] = field(default_factory=list, init=False, repr=False, compare=False)

    def real(self) -> Array:
        """The real numbers, which all nodes that read them share."""
        if not self._real:
            self._real.append(self._computed())
        return self._real[0]

    def _computed(self) -> Array:
        shape = [1] * self.stored.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        difference = self.stored.astype(np.int32) - self.zero_point.reshape(shape).astype(np.int32)
        numbers: Array = difference.astype(np.float32) * self.scale.reshape(shape)
        return numbers.astype(self.scale.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph: a constant, or an operand that the model computes.

    Real numbers with a quantised operand come from a DequantizeLinear. An operation that can compute on the
    integers reads them; for any other one they are dequantised.

    Attributes:
        shape: its extents in the file.
        dtype: its element type in the file.
        constant: its value, if it is known.
        quantized: its value, if it is known as integers.
        value: the operand with its elements, if it is computed; the operand may merge or split axes.
        order: the axis of `shape` that each stored axis is.
    """

    shape: Shape
    dtype: np.dtype[Any]
    constant: Array | None = None
    quantized: QuantizedConstant | None = None
    value: Value | None = None
    order: Order = ()

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_known(self) -> bool:
        """Whether its value is known."""
        return self.value is None

    @property
    def is_quantized_real(self) -> bool:
        """Whether its elements are integers that stand for real numbers."""
        if self.quantized is not None:
            return True
        return self.value is not None and self.dtype.kind == "f" and self.value.type.is_quantized

    def array(self) -> Array:
        """Its value, which must be known."""
        if self.constant is not None:
            return self.constant
        assert self.quantized is not None
        return self.quantized.real()

    def computed(self) -> Value:
        """Its operand; the value must not be known."""
        assert self.value is not None
        return self.value

    def seen_as(self, shape: Shape, order: Order) -> Tensor:
        """The same stored elements under another shape and order."""
        return replace(self, shape=shape, order=order)


def constant(array: Array) -> Tensor:
    """A tensor whose value is known."""
    array = np.asarray(array)  # numpy's functions make scalars of arrays without axes
    return Tensor(tuple(array.shape), array.dtype, constant=array)


def operand_type(dtype: np.dtype[Any]) -> OperandType:
    """Operand type of an element type.

    Raises:
        Refused: NNAPI has no such type.
    """
    if dtype not in OPERAND_TYPES:
        raise Refused(f"type {dtype} is not one of NNAPI's")
    return OPERAND_TYPES[dtype]
