"""Importing all modules of a folder, for registries that its modules fill."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence


def import_modules_of(package: str, path: Sequence[str]) -> None:
    """Import every module of a package, in the order of their names.

    pkgutil finds modules in archives, too, and takes three milliseconds and `inspect` for that.

    Args:
        package: its name.
        path: its folders.
    """
    files = {file for folder in path for file in os.listdir(folder)}  # noqa: PTH208 - names alone
    for file in sorted(files):
        name, _, suffix = file.partition(".")
        if suffix == "py" and name != "__init__":
            importlib.import_module(f"{package}.{name}")
