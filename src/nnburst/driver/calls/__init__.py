"""Answers the calls of a client, by the interface of the HAL that has them, as in `nnburst.control.messages`.

Each function answers the message of its name. Importing this package registers them all.
"""

from __future__ import annotations

from nnburst.driver.calls import device, execution, fenced_execution
from nnburst.driver.calls.registry import HANDLERS, WORK

__all__ = ["HANDLERS", "WORK", "device", "execution", "fenced_execution"]
