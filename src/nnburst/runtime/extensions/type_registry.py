"""TypeRegistry: the extensions' operand types, and the prefixes that stand for extensions in this process."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable

from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument, ResourceExhausted
from nnburst.hal.extensions import (
    Extension,
    ExtensionOperandTypeInformation,
    extension_code,
    number_of,
    prefix_of,
)
from nnburst.hal.model import ExtensionNameAndPrefix, Operand
from nnburst.hal.operand_types import is_extension, size_bytes

logger = logging.getLogger("nnburst.runtime")

#: A driver over AIDL can express no larger ones: its codes are signed.
_LARGEST_PREFIX = 0x7FFF


class TypeRegistry:
    """The extensions of one process. Thread-safe.

    NNAPI: RT:X1 to X3, TypeManager.
    """

    def __init__(self) -> None:
        """Start without extensions."""
        self._lock = threading.Lock()
        self._extensions: dict[str, tuple[Extension, str]] = {}
        self._disabled: set[str] = set()
        self._prefix_of: dict[str, int] = {}
        self._name_of: dict[int, str] = {}

    def register(self, extension: Extension, device: str) -> bool:
        """Take an extension in that a device has.

        Returns:
            Whether models may use it. Two devices that give the same name different operand types disable it
            for this process (RT:X1).
        """
        ordered = Extension(
            extension.name, tuple(sorted(extension.operand_types, key=lambda kind: kind.type))
        )
        with self._lock:
            if extension.name in self._disabled:
                return False
            known, first = self._extensions.setdefault(extension.name, (ordered, device))
            if known == ordered:
                return True
            self._disabled.add(extension.name)
            del self._extensions[extension.name]
        logger.error(
            "extension %s is disabled: devices %s and %s give it different operand types",
            extension.name,
            first,
            device,
        )
        return False

    def prefix(self, name: str) -> int:
        """The prefix of an extension; the first name that is asked for has 1 (RT:X2).

        Raises:
            InvalidArgument: no device has it (DEVIATES: RT:X3, the original fails one call later).
            ResourceExhausted: there are no prefixes left.
        """
        with self._lock:
            if name not in self._extensions:
                why = "was disabled" if name in self._disabled else "no device has it"
                raise InvalidArgument(f"extension: {name!r} cannot be used: {why}")
            if name not in self._prefix_of:
                prefix = len(self._prefix_of) + 1
                if prefix > _LARGEST_PREFIX:
                    raise ResourceExhausted(
                        f"extension: {name!r} would be number {prefix}, expected at most {_LARGEST_PREFIX}"
                    )
                self._prefix_of[name], self._name_of[prefix] = prefix, name
            return self._prefix_of[name]

    def code(self, name: str, number: int) -> int:
        """The code of type or operation `number` of an extension in this process."""
        if not 0 <= number <= 0xFFFF:
            raise InvalidArgument(f"type: {number}, expected 16 bits")
        return extension_code(self.prefix(name), number)

    @property
    def prefixes(self) -> frozenset[int]:
        """All that were given."""
        return frozenset(self._name_of)

    def name(self, code: int) -> str | None:
        """The extension that a code belongs to; None if its prefix stands for none."""
        return self._name_of.get(prefix_of(code))

    def find_operand_type(self, code: int) -> ExtensionOperandTypeInformation | None:
        """What is known of an extension's operand type; None if nothing is."""
        found = self._extensions.get(self._name_of.get(prefix_of(code), ""))
        if found is None:
            return None
        kinds = found[0].operand_types
        return next((kind for kind in kinds if kind.type == number_of(code)), None)

    def size_bytes(self, operand: Operand) -> int:
        """Bytes of an operand's data; 0 if that is not known."""
        if not is_extension(operand.type):
            return size_bytes(OperandType(operand.type), operand.dimensions)
        known = self.find_operand_type(operand.type)
        if known is None:
            return 0
        if not known.is_tensor:
            return known.byte_size
        return known.byte_size * math.prod(operand.dimensions) if operand.dimensions else 0

    def used_by(self, codes: Iterable[int]) -> tuple[ExtensionNameAndPrefix, ...]:
        """The pairs that a model with these codes carries, in order of first use (RT:X2)."""
        prefixes = dict.fromkeys(prefix_of(code) for code in codes if is_extension(code))
        return tuple(ExtensionNameAndPrefix(self._name_of[prefix], prefix) for prefix in prefixes)


#: The types of this process: codes that one model got stand for the same in every other.
TYPES = TypeRegistry()
