"""Allowlist: which programs may use vendor extensions.

NNAPI: RT:X4, X5, TypeManager. As there, the program itself decides: it keeps out mistakes, not attackers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

logger = logging.getLogger("nnburst.runtime")

_APP_PROCESSES: Final = ("/system/bin/app_process64", "/system/bin/app_process32")
_OWN_IMAGES: Final = ("/vendor/", "/odm/", "/data/")
_PRODUCT: Final = "/product/"
_NATIVE_TESTS: Final = "/data/nativetest"
#: From this level of Android on, where a program lies is enough.
_LEVEL_WITHOUT_LIST: Final = 31


@dataclass(frozen=True, slots=True)
class Package:
    """The package that a program belongs to, by the facts of a package service.

    Attributes:
        name: such as `com.example.camera`.
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
    """A program that asks for extensions.

    Attributes:
        path: of its executable; empty if unknown.
        package: None if it has none.
    """

    path: str
    package: Package | None = None


@dataclass(frozen=True, slots=True)
class System:
    """What a system's own settings decide.

    Attributes:
        api_level: of Android; None on any other system.
        denies_product: whether programs of the product image are kept out.
        is_debuggable: whether native tests count as listed.
        tests: prefix of the paths of tests, which count as listed then.
    """

    api_level: int | None = None
    denies_product: bool = False
    is_debuggable: bool = False
    tests: str = "/data/local/tmp/"


class Allowlist:
    """Paths of programs and names of packages. Immutable."""

    def __init__(self, entries: Iterable[str] = (), origin: str = "the allowlist") -> None:
        """Take the entries that can be one: a path from / on, or a name with a dot; log the others."""
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
        program: by path and package.
        system: that it runs on.
        allowlist: counts below API level 31 only.
    """
    lies_well, names = _place(program, system)
    if not lies_well or system.api_level is None or system.api_level >= _LEVEL_WITHOUT_LIST:
        return lies_well
    is_test = system.is_debuggable and program.path.startswith((_NATIVE_TESTS, system.tests))
    return names in allowlist or (program.path not in _APP_PROCESSES and is_test)


def _place(program: Program, system: System) -> tuple[bool, str]:
    """Whether a program lies where it may use extensions, and what it would be listed as."""
    path, package = program.path, program.package
    if path in _APP_PROCESSES:
        if package is None:
            return False, ""
        on_product = package.is_on_product and not system.denies_product
        return not package.is_system or package.is_on_vendor or on_product, package.name
    on_product = path.startswith(_PRODUCT) and not system.denies_product
    return path.startswith(_OWN_IMAGES) or on_product, path
