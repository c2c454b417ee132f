"""All kernels, one file per family. Importing this package adds them to the declared operations."""

from __future__ import annotations

import importlib
import pkgutil

import nnburst.executor.operations  # noqa: F401 - declares the operations

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
