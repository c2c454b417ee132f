"""The calls of a client, one module for each interface of the HAL, as in `nnburst.control.messages`.

Each function answers the message of its name. Importing this registers them all.
"""

from __future__ import annotations

from nnburst.driver.calls.registry import HANDLERS, WORK
from nnburst.hal.imports.folders import import_modules_of

import_modules_of(__name__, __path__)

__all__ = ["HANDLERS", "WORK"]
