"""Which operations have a naive implementation, and how one is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.values import Array, Meta, Value, elements, kept, real, stored

#: Gets real numbers (see `values.real`), returns arrays of Python objects.
NaiveOperation = Callable[..., "Array | list[Array]"]

NAIVE: Final[dict[OperationType, NaiveOperation]] = {}
#: Those that take stored elements as they are and give such: no quantisation counts.
_OF_ELEMENTS: Final[set[OperationType]] = set()


def naive(
    *kinds: OperationType, of_elements: bool = False
) -> Callable[[NaiveOperation], NaiveOperation]:
    """Register a function under the operations that it computes, of real numbers or of stored elements."""

    def register(function: NaiveOperation) -> NaiveOperation:
        for kind in kinds:
            NAIVE[kind] = function
            if of_elements:
                _OF_ELEMENTS.add(kind)
        return function

    return register


def evaluate(kind: OperationType, inputs: Sequence[Value], outputs: Sequence[Meta]) -> list[Value]:
    """Evaluate one operation.

    Args:
        kind: an operation that is in NAIVE.
        inputs: all of its inputs in order; trailing optional ones may be left out.
        outputs: types and quantisation of the results.

    Raises:
        ArithmeticError, ValueError: the operation is not defined for these values.
    """
    read, write = (elements, kept) if kind in _OF_ELEMENTS else (real, stored)
    arguments: list[Any] = [read(value) for value in inputs]
    results = NAIVE[kind](*arguments)
    arrays = results if isinstance(results, list) else [results]
    return [Value(m, write(a, m)) for m, a in zip(outputs, arrays, strict=True)]
