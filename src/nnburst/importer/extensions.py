"""Extensions that claim operators of a file, and the prefixes that they get in a model."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property

from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.extensions import extension_code
from nnburst.hal.extensions.custom_operators import GROUP, ClaimsOperators, CustomOperator
from nnburst.hal.model import ExtensionNameAndPrefix


class Extensions:
    """The extensions of one translation: those given, then those of entry points. For one thread."""

    def __init__(self, given: Sequence[ClaimsOperators | str]) -> None:
        """Start with no prefix used.

        Args:
            given: extensions, or `module:attribute` of some.

        Raises:
            DeviceUnavailable: one cannot be imported, or is not an extension.
        """
        self._given = [
            _imported(each) if isinstance(each, str) else _checked(each) for each in given
        ]
        self._prefixes: dict[str, int] = {}

    def find(self, name: str) -> tuple[ClaimsOperators, CustomOperator] | None:
        """Which extension claims the custom operator `name`, and what becomes of it; None if none does.

        Raises:
            InvalidArgument: two of them do.
        """
        for extensions in (self._given, self._installed):
            claiming = [each for each in extensions if name in each.custom_operators]
            if len(claiming) > 1:
                names = " and ".join(each.name for each in claiming)
                raise InvalidArgument(f"custom operator {name!r} is claimed by {names}")
            if claiming:
                return claiming[0], claiming[0].custom_operators[name]
        return None

    @cached_property
    def _installed(self) -> list[ClaimsOperators]:
        from importlib.metadata import entry_points  # 10 ms that few files need

        return [_imported(point.value) for point in entry_points(group=GROUP)]

    def code(self, extension: ClaimsOperators, number: int) -> int:
        """Code of one of its types or operations in the model, in which it is used from now on."""
        prefix = self._prefixes.setdefault(extension.name, len(self._prefixes) + 1)
        return extension_code(prefix, number)

    @property
    def used(self) -> tuple[ExtensionNameAndPrefix, ...]:
        """Those that the model uses."""
        return tuple(
            ExtensionNameAndPrefix(name, prefix) for name, prefix in self._prefixes.items()
        )


def _imported(target: str) -> ClaimsOperators:
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeviceUnavailable(f"extension {target!r} cannot be imported: {error}") from error
    return _checked(found)


def _checked(found: object) -> ClaimsOperators:
    if not isinstance(found, ClaimsOperators):
        raise DeviceUnavailable(
            f"extension {found!r} is a {type(found).__name__}, expected a VendorExtension"
        )
    return found
