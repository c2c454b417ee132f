"""Lists the numpy functions that kernels call, and finds those that the installed numpy computes wrongly.

Some numpy functions are wrong for certain strides: in 2.2 and 2.4 (not 1.26) `negative` of float32 numbers
that lie 16 bytes apart, in all three `isnan` and `isfinite` into strided memory. Results of a kernel must not
depend on that, so kernels use only functions that `wrong_functions` finds right. `nnburst selftest` checks
the installed numpy by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from nnburst.executor.graph.tensor import Array

#: Functions whose results kernels never write to strided memory, since numpy is wrong there (`negative` of
#: inputs 16 bytes apart, or 64 of 64 bits, and in place; the others from 17 numbers on).
NEW_RESULTS_ONLY: Final = frozenset({"negative", "isnan", "isfinite"})

# fmt: off
#: All other functions that kernels call, with any strides and in place.
ANY_STRIDES: Final = frozenset(
    (
        "abs", "absolute", "add", "ceil", "copysign", "divide", "divmod", "equal", "exp", "floor",
        "floor_divide", "fmax", "fmin", "frexp", "greater", "greater_equal", "ldexp", "left_shift",
        "less", "less_equal", "log", "logical_and", "logical_not", "logical_or", "maximum",
        "minimum", "multiply", "not_equal", "power", "reciprocal", "right_shift", "sign", "sin",
        "sqrt", "subtract", "tanh", "trunc",
    )
)
# fmt: on

_DTYPES: Final = tuple(np.dtype(code) for code in "bBhiqefd?")
#: Strides in elements: those of 16 and 64 bytes for every element size, and others.
_STRIDES: Final = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 32, 64, -1, -4, -8)
_COUNTS: Final = (2, 9, 33)


def wrong_functions() -> list[str]:
    """The functions of kernels that numpy computes wrongly, as `NAME of DTYPE, every N elements`.

    Each function of `ANY_STRIDES` is computed between strided arrays and in place, and compared with its
    result for contiguous arrays; those of `NEW_RESULTS_ONLY` only read strided arrays.
    """
    with np.errstate(all="ignore"):
        return [
            f"{name} of {dtype}, every {stride} elements"
            for name in sorted(ANY_STRIDES | NEW_RESULTS_ONLY)
            for dtype in _DTYPES
            for stride in _STRIDES
            if not all(_is_right(name, dtype, stride, count) for count in _COUNTS)
        ]


def _is_right(name: str, dtype: np.dtype[Any], stride: int, count: int) -> bool:
    function: np.ufunc = getattr(np, name)
    operands = [_values(dtype, count, at) for at in range(function.nin)]
    try:
        expected = _results(function(*operands))
    except TypeError:
        return True  # this function takes no numbers of this kind
    found = [_results(function(*(_strided(x, stride) for x in operands)))]
    if name in ANY_STRIDES:
        for given, targets in _placements(operands, expected, stride):
            function(*given, out=tuple(targets))
            found.append(targets)
    return all(
        np.allclose(made, right, rtol=1e-3, equal_nan=True)
        for results in found
        for made, right in zip(results, expected, strict=True)
    )


def _placements(
    operands: list[Array], expected: list[Array], stride: int
) -> Iterator[tuple[list[Array], list[Array]]]:
    """Strided operands and targets: once separate, once with the first operand as the first target."""
    for in_place in (False, True):
        given = [_strided(x, stride) for x in operands]
        targets = [_strided((y == 0).astype(y.dtype), stride) for y in expected]  # wrong everywhere
        if in_place:
            if expected[0].dtype != operands[0].dtype:
                return
            targets[0] = given[0]
        yield given, targets


def _values(dtype: np.dtype[Any], count: int, which: int) -> Array:
    """Numbers between 1 and 7 that differ from their neighbours; divisors and shifts, too."""
    return (np.arange(count) * (which + 3) % 7 + 1).astype(dtype)


def _results(made: Array | tuple[Array, ...]) -> list[Array]:
    return list(made) if isinstance(made, tuple) else [made]


def _strided(values: Array, stride: int) -> Array:
    """A copy of an array as every `stride`th element of a bigger one, backwards if negative."""
    view = np.zeros(len(values) * abs(stride), values.dtype)[::stride]
    view[...] = values
    return view
