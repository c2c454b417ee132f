"""Imports numpy when one of its names is first used, because that takes a quarter of a driver's start.

    from nnburst.hal import late_numpy as np

replaces `import numpy as np` in every module that a driver with LiteRT imports before its first result. Until
then, none of them uses a name of numpy (tests/driver/test_start.py); aliases of its types are strings.
"""

from __future__ import annotations

import importlib


def __getattr__(name: str) -> object:
    value = getattr(importlib.import_module("numpy"), name)
    globals()[name] = value
    return value
