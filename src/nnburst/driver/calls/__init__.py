"""The calls of a client, one module for each interface of the HAL, as in `nnburst.control.messages`.

Each function answers the message of its name. Importing this registers them all.
"""

from __future__ import annotations

import importlib
import pkgutil

from nnburst.driver.calls.registry import HANDLERS, WORK

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["HANDLERS", "WORK"]
