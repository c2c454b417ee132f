"""Orders of axes: how a tensor's logical axes lie in its operand, as pure functions.

ONNX has N×C×H×W, NNAPI's engines want N×H×W×C. An `order` names the logical axis of each stored axis:
(0, 2, 3, 1) for an image that is stored as N×H×W×C. So a Transpose of the file moves nothing, it only
changes the order; elements move if an operation wants another order than it finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

Order = tuple[int, ...]
Shape = tuple[int, ...]

#: As images are stored.
NHWC: Order = (0, 2, 3, 1)


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
        Extents of what is stored, neighbours that stay neighbours as one, and which of these axes each
        axis of the result is.
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
    """Which axes of a shape become which of another with as many elements: the smallest groups.

    Axes of extent 1 are in none.
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
    """How a tensor is stored so that it can be seen in another shape, and its order then.

    Axes that become one must lie side by side, the outer one first; only they are brought together.

    Args:
        old: logical extents, all above 0.
        order: in which they are stored.
        new: logical extents afterwards, as many elements.

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
        The same shapes with as few axes as mean the same.
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
