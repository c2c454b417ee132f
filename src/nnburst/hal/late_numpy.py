"""Imports numpy when one of its names is first used, because that takes a quarter of a driver's start.

    from nnburst.hal import late_numpy as np

stands for `import numpy as np` in every module that a driver of LiteRT imports before its first result. On
the way there none of them uses a name of it (tests/driver/test_start.py); aliases of its types are strings.
"""

from __future__ import annotations

import importlib


def __getattr__(name: str) -> object:
    value = getattr(importlib.import_module("numpy"), name)
    globals()[name] = value
    return value
