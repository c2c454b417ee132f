"""The IDevice behind a worker: validates, asks the executor, prepares."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

import nnburst
from nnburst._native import lib
from nnburst.driver.model.cache.compilation_cache import CompilationCache
from nnburst.driver.model.capabilities import load_capabilities
from nnburst.driver.model.pools import Pool
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.weights.borrower import Borrower
from nnburst.executor.base import Executor, Pools, Prepared, PrepareOptions
from nnburst.executor.operations import SIGNATURES
from nnburst.executor.sharing import PackingExecutor
from nnburst.fmq.cores import thread_budget
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.extensions import Extension
from nnburst.hal.model import Model
from nnburst.hal.validation import validate_model
from nnburst.tracing.slices import Layer, Phase, trace

log = logging.getLogger(__name__)


class Device:
    """A device around an executor. Thread-safe.

    DEVIATES: the original asks drivers not to compute graphs on the CPU; those in the box do nothing else.

    Attributes:
        name: that it is served under.
        compilation_cache: saves and loads what it has prepared.
        capabilities: how fast it is to be reported, as read when it was made.
        type: kind of hardware, as the executor has it.
        feature_level: newest version whose models it takes, likewise.
    """

    def __init__(self, name: str, executor: Executor, weights: Borrower | None = None) -> None:
        """Serve an executor.

        Args:
            name: that it is served under.
            executor: what computes.
            weights: from which packed weights are borrowed, if the executor takes any.
        """
        self.name = name
        self._weights = weights
        self._executor = executor
        self.type: Final = executor.device_type
        self.feature_level: Final = executor.feature_level
        self.thread_budget: Final = thread_budget()
        self.compilation_cache: Final = CompilationCache(executor, self.version_string)
        self.capabilities: Final = load_capabilities(
            name, self.version_string, executor.capabilities_file
        )

    @property
    def version_string(self) -> str:
        """Opaque to clients (NNAPI: getVersionString).

        Unique among the versions of a driver: it names the executor's engine, too, if that has one.
        """
        executor = self._executor
        return f"nnburst {nnburst.__version__} {executor.name} {executor.engine_version}".rstrip()

    def supported_extensions(self) -> tuple[Extension, ...]:
        """The extensions that models may use (NNAPI: getSupportedExtensions)."""
        return self._executor.extensions

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> list[bool]:
        """Which operations of the main subgraph can be run (NNAPI: getSupportedOperations_1_3).

        Raises:
            InvalidArgument: the model breaks one of validation's rules.
        """
        self.check(model, pools)
        return self._executor.supported(model)

    def check(self, model: Model, pools: Sequence[Pool]) -> None:
        """Raise InvalidArgument if a model breaks one of validation's rules (device:P2).

        Args:
            model: hostile until checked here.
            pools: its pools, which have been checked against their declared sizes.
        """
        if len(pools) != len(model.pools):
            raise InvalidArgument(f"pools: {len(pools)} given, the model has {len(model.pools)}")
        validate_model(model, SIGNATURES)

    def check_supported(self, model: Model) -> None:
        """Raise InvalidArgument if an operation of a checked model is not supported (device:P8)."""
        for index, supported in enumerate(self._executor.supported(model)):
            if not supported:
                kind = model.main.operations[index].type
                raise InvalidArgument(
                    f"device:P8: operation {index} (type {kind}) is not supported by {self.name}"
                )

    def prepare(
        self,
        model: Model,
        pools: Sequence[Pool],
        options: PrepareOptions,
    ) -> PreparedModel:
        """Prepare a model (NNAPI: prepareModel_1_3); no more threads than `thread_budget` compute.

        Raises:
            InvalidArgument: device:P2, or P8: an operation is not supported.
            NnburstError: the executor's reason.
        """
        self.check(model, pools)
        self.check_supported(model)
        views = [pool.readable for pool in pools]
        return self.prepare_checked(model, views, options)

    def prepare_checked(
        self, model: Model, views: Sequence[memoryview], options: PrepareOptions
    ) -> PreparedModel:
        """Have the executor prepare a model that has been checked; no more than that.

        Raises:
            NnburstError: the executor's reason.
        """
        threads = min(options.num_threads, self.thread_budget)
        within = msgspec.structs.replace(options, num_threads=threads)
        with trace(Layer.DRIVER, Phase.COMPILATION, "prepare"):
            prepared = self._borrowed(model, views, within)
            if prepared is None:
                prepared = self._executor.prepare(model, Pools(views), within)
        return PreparedModel(model, prepared, options.preference, options.priority)

    def _borrowed(
        self, model: Model, views: Sequence[memoryview], options: PrepareOptions
    ) -> Prepared | None:
        """Prepared with what another process has packed; None if this one packs for itself."""
        executor = self._executor
        if self._weights is None or not isinstance(executor, PackingExecutor):
            return None
        if options.attributes:
            return None  # what others have packed was packed without them
        with self._weights.borrow(model, views, options) as files:
            if not files:
                return None
            try:
                prepared = executor.prepare_packed(model, files, options)
            except NnburstError as error:
                log.warning("a model is prepared without packed weights: %s", error)
                return None
        lib.nnb_give_memory_back()  # there may be many workers with this model
        return prepared
