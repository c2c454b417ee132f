"""The executors that ship with this package, put together: each engine with what runs the rest.

A function below is an executor by its name; drivers, commands and the framework find it here, so a new one is
a module and a function. Nothing is imported before a function is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nnburst.executor.base import Executor

#: What makes each executor, by its name.
BUILT_IN: Final[dict[str, Callable[[], Executor]]] = {}


def _built_in(make: Callable[[], Executor]) -> Callable[[], Executor]:
    BUILT_IN[make.__name__] = make
    return make


@_built_in
def null() -> Executor:
    """Computes nothing."""
    from nnburst.executor.null import NullExecutor

    return NullExecutor()


@_built_in
def reference() -> Executor:
    """Every operation, in numpy."""
    from nnburst.executor.reference.executor import ReferenceExecutor

    return ReferenceExecutor()


@_built_in
def litert() -> Executor:
    """LiteRT on the CPU, and the reference executor for what that cannot run."""
    from nnburst.executor.litert.executor import LiteRtExecutor
    from nnburst.executor.reference.executor import ReferenceExecutor

    return LiteRtExecutor(ReferenceExecutor())


@_built_in
def onnxruntime() -> Executor:
    """Whole ONNX graphs by onnxruntime, and the reference executor for every other model."""
    from nnburst.executor.onnxruntime.executor import OnnxRuntimeExecutor
    from nnburst.executor.reference.executor import ReferenceExecutor

    return OnnxRuntimeExecutor(ReferenceExecutor())
