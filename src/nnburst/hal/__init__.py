"""Defines the HAL's vocabulary: types, statuses, limits, models, requests, signatures and validation.

Every other layer imports this one; it imports none of them, and no device, queue or socket. Its public names
are the HAL's own ways to execute and to synchronise, for code that is ported from the HAL; new programs do
not need them. They are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import Final

__all__ = [
    "execute_fenced",
    "create_reusable_execution",
    "open_aidl_burst",
    "AidlBurst",
    "ReusableExecution",
    "FencedExecution",
    "SyncFence",
    "CacheFiles",
]

_HOME: Final = {
    "execute_fenced": "nnburst.client.hal",
    "create_reusable_execution": "nnburst.client.hal",
    "open_aidl_burst": "nnburst.client.hal",
    "AidlBurst": "nnburst.client.execution.aidl_burst",
    "ReusableExecution": "nnburst.client.hal",
    "FencedExecution": "nnburst.client.execution.fenced_execution",
    "SyncFence": "nnburst.client.execution.sync_fence",
    "CacheFiles": "nnburst.client.compilation_cache",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'nnburst.hal' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
