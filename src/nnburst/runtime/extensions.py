"""Decides which programs may use vendor extensions, and keeps their types and attributes.

Every program may use extensions unless an administrator has written a file that lists programs. Then a
program may use them if the file has the path of its executable, the path of the script that Python runs, or
the dotted name of the module that `python -m` runs. The file is read once. It protects from mistakes, not
from attackers, since the program itself reads it.

NNAPI: RT:X4, X5, TypeManager. DEVIATES: RT:X4: Linux has no vendor or product images and no package service,
so the path of a program proves nothing and the list alone decides.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.hal.enums import OperandType
from nnburst.hal.environment import EXTENSIONS_ALLOWLIST
from nnburst.hal.errors import InvalidArgument, ResourceExhausted, UnexpectedNull
from nnburst.hal.extensions import (
    Extension,
    ExtensionAttribute,
    ExtensionOperandTypeInformation,
    check_attributes,
    extension_code,
    number_of,
    prefix_of,
)
from nnburst.hal.model import ExtensionNameAndPrefix, Operand, is_extension, size_bytes
from nnburst.hal.regular_file import read_regular_file

logger = logging.getLogger("nnburst.runtime")

_APP_PROCESSES: Final = ("/system/bin/app_process64", "/system/bin/app_process32")
_OWN_IMAGES: Final = ("/vendor/", "/odm/", "/data/")
_PRODUCT: Final = "/product/"
_NATIVE_TESTS: Final = "/data/nativetest"
#: From this API level of Android on, the place of a program alone decides.
_LEVEL_WITHOUT_LIST: Final = 31


@dataclass(frozen=True, slots=True)
class Package:
    """The package that a program belongs to, as a package service describes it.

    Attributes:
        name: the package's name, such as `com.example.camera`.
        is_system: whether it came with the system.
        is_on_vendor: whether it lies on the vendor's image.
        is_on_product: whether it lies on the product's image.
    """

    name: str
    is_system: bool = False
    is_on_vendor: bool = False
    is_on_product: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """A program that wants to use extensions.

    Attributes:
        path: path of the executable; empty if unknown.
        package: the program's package; None if it has none.
    """

    path: str
    package: Package | None = None


@dataclass(frozen=True, slots=True)
class System:
    """The settings of a system that decide which programs may use vendor extensions.

    Attributes:
        api_level: API level of Android; None on any other system.
        denies_product: whether programs of the product image are denied.
        is_debuggable: whether native tests count as listed.
        tests: prefix of the paths of these tests.
    """

    api_level: int | None = None
    denies_product: bool = False
    is_debuggable: bool = False
    tests: str = "/data/local/tmp/"


class Allowlist:
    """Paths of programs and names of packages. Immutable."""

    def __init__(self, entries: Iterable[str] = (), origin: str = "the allowlist") -> None:
        """Keep the valid entries, which are absolute paths or names with a dot; log the others."""
        found = set()
        for entry in filter(None, (line.strip() for line in entries)):
            if entry.startswith("/") or "." in entry:
                found.add(entry)
            else:
                logger.warning(
                    "%s: entry %r is neither a path from / on nor a name with a dot: it is skipped",
                    origin,
                    entry,
                )
        self._entries: Final = frozenset(found)

    def __contains__(self, name: str) -> bool:
        return name in self._entries


def may_use_extensions(program: Program, system: System, allowlist: Allowlist) -> bool:
    """Whether a program may use extensions, by the original's conditions (RT:X4).

    Args:
        program: the program.
        system: the system that it runs on.
        allowlist: the list, which counts below API level 31 only.
    """
    lies_well, names = _place(program, system)
    if not lies_well or system.api_level is None or system.api_level >= _LEVEL_WITHOUT_LIST:
        return lies_well
    is_test = system.is_debuggable and program.path.startswith((_NATIVE_TESTS, system.tests))
    return names in allowlist or (program.path not in _APP_PROCESSES and is_test)


def _place(program: Program, system: System) -> tuple[bool, str]:
    """Whether the place of a program permits extensions, and the name under which a list would have it."""
    path, package = program.path, program.package
    if path in _APP_PROCESSES:
        if package is None:
            return False, ""
        on_product = package.is_on_product and not system.denies_product
        return not package.is_system or package.is_on_vendor or on_product, package.name
    on_product = path.startswith(_PRODUCT) and not system.denies_product
    return path.startswith(_OWN_IMAGES) or on_product, path


#: The executable of this process.
_EXECUTABLE: Final = "/proc/self/exe"


@functools.cache
def refusal() -> str | None:
    """The reason why this process may not use extensions; None if it may. Found once.

    Raises:
        InvalidArgument: the file that `NNBURST_EXTENSIONS_ALLOWLIST` names cannot be read.
    """
    path = EXTENSIONS_ALLOWLIST.read()
    try:
        entries = read_regular_file(path).decode().splitlines()
    except FileNotFoundError as error:
        if not EXTENSIONS_ALLOWLIST.is_set:
            return None
        raise InvalidArgument(f"{EXTENSIONS_ALLOWLIST.name}: {path}: {error.strerror}") from None
    except (OSError, InvalidArgument, UnicodeDecodeError) as error:
        raise InvalidArgument(f"extensions: {path} cannot be read: {error}") from None
    allowlist = Allowlist(entries, str(path))
    names = list(dict.fromkeys(_names()))
    if any(name in allowlist for name in names):
        return None
    return f"{path} does not list {' or '.join(names)}"


def check_permission(what: str) -> None:
    """Refuse extensions if this process may not use them (RT:X6).

    Args:
        what: the thing that needs extensions, for the message.

    Raises:
        InvalidArgument: this process may not use extensions; BAD_DATA.
    """
    why = refusal()
    if why is not None:
        raise InvalidArgument(f"{what}: this program may not use extensions: {why}")


def _names() -> Iterator[str]:
    """The names under which this program may be listed."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and "." in spec.name:
        yield spec.name.removesuffix(".__main__")
    script = getattr(main, "__file__", None)
    if script is not None:
        yield str(Path(script).resolve())
    try:
        yield str(Path(_EXECUTABLE).readlink())
    except OSError:
        return


#: Largest prefix that a driver over AIDL can express, whose codes are signed.
_LARGEST_PREFIX = 0x7FFF


class TypeRegistry:
    """The extensions of one process. Thread-safe.

    NNAPI: RT:X1 to X3, TypeManager.
    """

    def __init__(self) -> None:
        """Start without extensions."""
        self._lock = threading.RLock()  # a signal handler may compile while its thread is in here
        self._extensions: dict[str, tuple[Extension, str]] = {}
        self._disabled: set[str] = set()
        self._prefix_of: dict[str, int] = {}
        self._name_of: dict[int, str] = {}

    def register(self, extension: Extension, device: str) -> bool:
        """Register an extension of a device.

        Returns:
            Whether models may use the extension. If two devices give different operand types to the same
            name, it is disabled for this process (RT:X1).
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
        """The prefix of an extension; the first extension that is asked for gets 1 (RT:X2).

        Raises:
            InvalidArgument: no device has the extension (DEVIATES: RT:X3, the original fails one call later).
            ResourceExhausted: there are no prefixes left.
        """
        with self._lock:
            if name not in self._extensions:
                why = "was disabled" if name in self._disabled else "no device has it"
                raise InvalidArgument(f"extension: {name!r} cannot be used: {why}")
            while name not in self._prefix_of:
                prefix = len(self._prefix_of) + 1
                if prefix > _LARGEST_PREFIX:
                    raise ResourceExhausted(
                        f"extension: {name!r} would be number {prefix}, expected at most {_LARGEST_PREFIX}"
                    )
                if prefix not in self._name_of:  # else a signal handler has just taken it
                    self._prefix_of[name], self._name_of[prefix] = prefix, name
            return self._prefix_of[name]

    def code(self, name: str, number: int) -> int:
        """The code, in this process, of type or operation `number` of an extension."""
        if not 0 <= number <= 0xFFFF:
            raise InvalidArgument(f"type: {number}, expected 16 bits")
        return extension_code(self.prefix(name), number)

    @property
    def prefixes(self) -> frozenset[int]:
        """The prefixes that extensions have in this process."""
        return frozenset(self._name_of)

    def name(self, code: int) -> str | None:
        """The extension that a code belongs to; None if its prefix is not in use."""
        return self._name_of.get(prefix_of(code))

    def find_operand_type(self, code: int) -> ExtensionOperandTypeInformation | None:
        """The description of an extension's operand type; None if the type is not known."""
        found = self._extensions.get(self._name_of.get(prefix_of(code), ""))
        if found is None:
            return None
        kinds = found[0].operand_types
        return next((kind for kind in kinds if kind.type == number_of(code)), None)

    def size_bytes(self, operand: Operand) -> int:
        """Bytes of an operand's data; 0 if unknown."""
        if not is_extension(operand.type):
            return size_bytes(OperandType(operand.type), operand.dimensions)
        known = self.find_operand_type(operand.type)
        if known is None:
            return 0
        if not known.is_tensor:
            return known.byte_size
        return known.byte_size * math.prod(operand.dimensions) if operand.dimensions else 0

    def used_by(self, codes: Iterable[int]) -> tuple[ExtensionNameAndPrefix, ...]:
        """The names and prefixes that a model with these codes carries, in order of first use (RT:X2)."""
        prefixes = dict.fromkeys(prefix_of(code) for code in codes if is_extension(code))
        return tuple(ExtensionNameAndPrefix(self._name_of[prefix], prefix) for prefix in prefixes)


#: The extensions of this process; a code means the same in all of its models.
TYPES = TypeRegistry()


def _go_on_in_child() -> None:
    """Give a forked child a lock of its own: another thread may have been in the middle of a change."""
    TYPES._lock = threading.RLock()
    TYPES._name_of = {prefix: name for name, prefix in TYPES._prefix_of.items()}


os.register_at_fork(after_in_child=_go_on_in_child)


class AttributeList:
    """Attributes of extensions, in the order in which they were added.

    NNAPI: RT:X8. DEVIATES: a name that no device has is refused, as it is for types (RT:X3).
    """

    def __init__(self) -> None:
        """Start without attributes."""
        self._added: list[ExtensionAttribute] = []

    @property
    def added(self) -> tuple[ExtensionAttribute, ...]:
        """The attributes."""
        return tuple(self._added)

    def check_given(self, extension: str | None, value: bytes | memoryview | None) -> None:
        """Check that a name and bytes were given, before every other check.

        Raises:
            UnexpectedNull: the name or the bytes are missing.
        """
        if extension is None or value is None:
            what = "extension" if extension is None else "value"
            raise UnexpectedNull(f"add_extension_attribute: {what} is None")

    def add(self, extension: str, code: int, value: bytes | memoryview) -> None:
        """Add an attribute; its extension gets a prefix in this process (RT:X2).

        Raises:
            InvalidArgument: no device has the extension, the code has more than 16 bits, or it was added
                before; BAD_DATA.
        """
        TYPES.prefix(extension)  # before the value is read to its claimed length
        attribute = ExtensionAttribute(extension, code, bytes(value))
        check_attributes((*self._added, attribute))
        self._added.append(attribute)
