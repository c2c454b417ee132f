"""Operators of files that are not built in, claimed by vendor extensions by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

#: Entry points: name of an extension → `module:attribute` of it.
GROUP: Final = "nnburst.extensions"

#: Translates one operator of a file, an `nnburst.importer.tflite.operator.Operator`.
Lowering = Callable[[Any], None]


class CustomOperator(msgspec.Struct, frozen=True):
    """What becomes of a custom operator: an operation of the extension, or what a function makes of it.

    Attributes:
        operation: number of the extension's operation, whose inputs and outputs are the operator's.
        options: number of the extension's operand type of one byte an element, which the operator's options
            are given as, as the last input; without a value if the file has none. None if they are dropped.
        lowering: makes core operations of it instead.
    """

    operation: int = 0
    options: int | None = None
    lowering: Lowering | None = None


@runtime_checkable
class ClaimsOperators(Protocol):
    """An extension as an importer sees it.

    Attributes:
        name: in reverse-domain order, unique.
        custom_operators: what it claims, by the names in files.
    """

    name: str
    custom_operators: Mapping[str, CustomOperator]
