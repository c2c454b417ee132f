"""Computes every operation in numpy: one module of kernels for each family.

Importing this package adds the kernels to the declared operations.
"""

from __future__ import annotations

import importlib
import pkgutil

import nnburst.executor.operations  # noqa: F401 - declares the operations

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
