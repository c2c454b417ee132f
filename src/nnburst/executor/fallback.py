"""The executor of what an engine cannot run, loaded when there is something of that kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import nnburst.executor.operations  # noqa: F401 - fills the registry
from nnburst.executor.base import DEFAULT_OPTIONS, Bytes, Prepared, PrepareOptions
from nnburst.executor.caching import Cached, FallbackExecutor
from nnburst.executor.graph.extension import described_extensions
from nnburst.executor.graph.support import supported_operations
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.extensions import Extension
from nnburst.hal.model import Model


class DeferredFallback:
    """Answers by declarations until a model is to be prepared: kernels take 15 ms to import. Thread-safe."""

    #: One for the model, one for constants.
    cache_files = NumberOfCacheFiles(1, 1)

    def __init__(self, make: Callable[[], FallbackExecutor]) -> None:
        """Use what `make` makes, which runs every operation that is declared."""
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
