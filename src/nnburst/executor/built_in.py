"""Makes the executors that ship with this package, each with the fallback that runs what its engine cannot.

Each function below makes the executor of its name; drivers, commands and the framework find it here. A new
executor takes a module and a function. Nothing is imported before a function is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import nnburst.executor.operations  # noqa: F401 - fills the registry
from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Bytes,
    Cached,
    Executor,
    FallbackExecutor,
    Prepared,
    PrepareOptions,
)
from nnburst.executor.graph.extension import described_extensions
from nnburst.executor.graph.plan import supported_operations
from nnburst.hal.extensions import Extension
from nnburst.hal.model import Model
from nnburst.hal.types import NumberOfCacheFiles

_Make = Callable[..., Executor]

_NULL: Final = "nnburst.executor.null"
_REFERENCE: Final = "nnburst.executor.reference.executor"
_LITERT: Final = "nnburst.executor.litert.executor"
_ONNXRUNTIME: Final = "nnburst.executor.onnxruntime.executor"
_OPENVINO: Final = "nnburst.executor.openvino"

#: The function that makes each executor, by its name.
BUILT_IN: Final[dict[str, _Make]] = {}
#: Options of an executor for which the service names none.
_NO_OPTIONS: Final[Mapping[str, str]] = {}
#: The modules that each executor imports by the time that it has prepared models of every kind.
MODULES: Final[dict[str, tuple[str, ...]]] = {}
#: For some executors, a function that begins work beside a driver's imports, once for all later forks; it
#: returns a function that waits for the end of this work.
BEGINNINGS: Final[dict[str, Callable[[], Callable[[], object]]]] = {}
#: Names of executors whose packed weights processes can share (`nnburst.executor.base`).
PACKING: Final = frozenset({"litert"})


def _built_in(*modules: str) -> Callable[[_Make], _Make]:
    def put(make: _Make) -> _Make:
        BUILT_IN[make.__name__], MODULES[make.__name__] = make, modules
        return make

    return put


@_built_in(_NULL)
def null() -> Executor:
    """Make the executor that computes nothing."""
    from nnburst.executor.null import NullExecutor

    return NullExecutor()


@_built_in(_REFERENCE)
def reference() -> Executor:
    """Make the executor that computes every operation in numpy."""
    from nnburst.executor.reference.executor import ReferenceExecutor

    return ReferenceExecutor()


@_built_in(_LITERT, _REFERENCE)
def litert(options: Mapping[str, str] = _NO_OPTIONS) -> Executor:
    """Make LiteRT's executor (CPU or delegate), with the reference executor for what it cannot run."""
    from nnburst.executor.litert.executor import LiteRtExecutor

    return LiteRtExecutor(DeferredFallback(_reference), options)


@_built_in(_ONNXRUNTIME, _REFERENCE)
def onnxruntime(options: Mapping[str, str] = _NO_OPTIONS) -> Executor:
    """Make the executor of ONNX graphs and networks, with the reference executor for what it refuses."""
    from nnburst.executor.onnxruntime.executor import OnnxRuntimeExecutor

    return OnnxRuntimeExecutor(DeferredFallback(_reference), options)


@_built_in(_OPENVINO, _REFERENCE)
def openvino(options: Mapping[str, str] = _NO_OPTIONS) -> Executor:
    """Make OpenVINO's executor, with the reference executor for models that it refuses."""
    from nnburst.executor.openvino import OpenVinoExecutor

    return OpenVinoExecutor(DeferredFallback(_reference), options)


def _reference() -> FallbackExecutor:
    from nnburst.executor.reference.executor import ReferenceExecutor

    return ReferenceExecutor()


def _begin_litert() -> Callable[[], object]:
    from nnburst.executor.litert.native import begin_trial

    return begin_trial()


BEGINNINGS["litert"] = _begin_litert


class DeferredFallback:
    """Imports its executor only to prepare a model, since kernels take 15 ms to import. Thread-safe."""

    #: One file for the model, one for constants.
    cache_files = NumberOfCacheFiles(1, 1)

    def __init__(self, make: Callable[[], FallbackExecutor]) -> None:
        """Use the executor that `make` returns, which runs every declared operation."""
        self._make = make

    @functools.cached_property
    def _executor(self) -> FallbackExecutor:
        return self._make()

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """See `Executor.extensions`."""
        return described_extensions()

    def supported(self, model: Model) -> list[bool]:
        """See `Executor.supported`."""
        return supported_operations(model)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """See `Executor.prepare`."""
        return self._executor.prepare(model, pools, options)

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> Prepared:
        """See `CachingExecutor.prepare_from_cache`."""
        return self._executor.prepare_from_cache(cached, options)
