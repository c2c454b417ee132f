"""The executors that ship with this package, put together: each engine with what runs the rest.

A function below is an executor by its name; drivers, commands and the framework find it here, so a new one is
a module and a function. Nothing is imported before a function is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nnburst.executor.base import Executor
from nnburst.executor.caching import FallbackExecutor

_Make = Callable[[], Executor]

_NULL: Final = "nnburst.executor.null"
_REFERENCE: Final = "nnburst.executor.reference.executor"
_LITERT: Final = "nnburst.executor.litert.executor"
_ONNXRUNTIME: Final = "nnburst.executor.onnxruntime.executor"

#: What makes each executor, by its name.
BUILT_IN: Final[dict[str, _Make]] = {}
#: The modules that each has imported once it has prepared models of every kind.
MODULES: Final[dict[str, tuple[str, ...]]] = {}
#: Begins what an executor can do beside a driver's imports, once for all later forks, and gives what waits.
BEGINNINGS: Final[dict[str, Callable[[], Callable[[], object]]]] = {}
#: Names of those whose packed weights processes can share (`nnburst.executor.sharing`).
PACKING: Final = frozenset({"litert"})


def _built_in(*modules: str) -> Callable[[_Make], _Make]:
    def put(make: _Make) -> _Make:
        BUILT_IN[make.__name__], MODULES[make.__name__] = make, modules
        return make

    return put


@_built_in(_NULL)
def null() -> Executor:
    """Computes nothing."""
    from nnburst.executor.null import NullExecutor

    return NullExecutor()


@_built_in(_REFERENCE)
def reference() -> Executor:
    """Every operation, in numpy."""
    from nnburst.executor.reference.executor import ReferenceExecutor

    return ReferenceExecutor()


@_built_in(_LITERT, _REFERENCE)
def litert() -> Executor:
    """LiteRT on the CPU, and the reference executor for what that cannot run."""
    from nnburst.executor.fallback import DeferredFallback
    from nnburst.executor.litert.executor import LiteRtExecutor

    return LiteRtExecutor(DeferredFallback(_reference))


@_built_in(_ONNXRUNTIME, _REFERENCE)
def onnxruntime() -> Executor:
    """Whole ONNX graphs by onnxruntime, and the reference executor for every other model."""
    from nnburst.executor.fallback import DeferredFallback
    from nnburst.executor.onnxruntime.executor import OnnxRuntimeExecutor

    return OnnxRuntimeExecutor(DeferredFallback(_reference))


def _reference() -> FallbackExecutor:
    from nnburst.executor.reference.executor import ReferenceExecutor

    return ReferenceExecutor()


def _begin_litert() -> Callable[[], object]:
    from nnburst.executor.litert.native import begin_trial

    return begin_trial()


BEGINNINGS["litert"] = _begin_litert
