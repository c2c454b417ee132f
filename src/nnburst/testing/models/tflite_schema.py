"""The classes that the .tflite format's authors generate, which write files, too."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any


@functools.cache
def schema() -> Any:  # noqa: ANN401 - generated code without types
    """The module with the classes, which the wheel `ai-edge-litert` carries."""
    return import_module("ai_edge_litert.schema_py_generated")
