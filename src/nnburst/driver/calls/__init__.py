"""Answers the calls of a client, in a module for each HAL interface, as in `nnburst.control.messages`.

Each function answers the message of its name. Importing this package registers all of them.
"""

from __future__ import annotations

from nnburst.driver.calls import device, execution, fenced_execution
from nnburst.driver.calls.registry import HANDLERS, WORK

__all__ = ["HANDLERS", "WORK", "device", "execution", "fenced_execution"]
