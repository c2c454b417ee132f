"""Validates models, asks the executor for support, and prepares: the device (IDevice) of a worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from nnburst._native import lib
from nnburst._version import __version__
from nnburst.driver.model.capabilities import UNMEASURED, load_capabilities
from nnburst.driver.model.compilation_cache import CompilationCache
from nnburst.driver.model.pools import Pool
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.weights_client import WeightsClient
from nnburst.executor.base import (
    AllocatingExecutor,
    DeviceMemory,
    Executor,
    MemoryUse,
    PackingExecutor,
    Pools,
    Prepared,
    PrepareOptions,
    ReadsConstants,
    supported_with,
)
from nnburst.executor.operations import SIGNATURES
from nnburst.fmq.cores import thread_budget
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.extensions import Extension, number_of, prefix_of
from nnburst.hal.model import Model, Operand
from nnburst.hal.validation import validate_model
from nnburst.tracing.slices import Layer, Phase, trace

log = logging.getLogger(__name__)


class Device:
    """A device around an executor. Thread-safe.

    DEVIATES: the original asks drivers not to compute graphs on the CPU; those in the box do nothing else.

    Attributes:
        name: that it is served under.
        compilation_cache: saves and loads its prepared models.
        capabilities: the speed that it reports, as read when it was made.
        type: kind of hardware, as the executor has it.
        feature_level: newest version whose models it takes, likewise.
        weights: from which packed weights are borrowed; None if this process packs for itself.
    """

    def __init__(self, name: str, executor: Executor, weights: WeightsClient | None = None) -> None:
        """Serve an executor.

        Args:
            name: that it is served under.
            executor: computes its models.
            weights: gets packed weights from the service, if the executor can use them.
        """
        self.name = name
        self.weights = weights
        self._executor = executor
        self.type: Final = executor.device_type
        self.feature_level: Final = executor.feature_level
        self.thread_budget: Final = thread_budget()
        self.compilation_cache: Final = CompilationCache(executor, self.version_string)
        self.capabilities: Final = load_capabilities(
            name,
            self.version_string,
            executor.capabilities_file,
            executor.capabilities or UNMEASURED,
        )

    @property
    def version_string(self) -> str:
        """Opaque to clients (NNAPI: getVersionString).

        Unique among the versions of a driver: it names the executor's engine, too, if that has one.
        """
        executor = self._executor
        return f"nnburst {__version__} {executor.name} {executor.engine_version}".rstrip()

    def supported_extensions(self) -> tuple[Extension, ...]:
        """The extensions that models may use (NNAPI: getSupportedExtensions)."""
        return self._executor.extensions

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> list[bool]:
        """Which operations of the main subgraph can be run (NNAPI: getSupportedOperations_1_3).

        Raises:
            InvalidArgument: the model breaks one of validation's rules.
        """
        self.check(model, pools)
        return self._supported(model, lambda: [pool.readable for pool in pools])

    def _supported(self, model: Model, views: Callable[[], Sequence[memoryview]]) -> list[bool]:
        """Pools are only mapped for an executor that reads them."""
        executor = self._executor
        pools = Pools(views() if isinstance(executor, ReadsConstants) else ())
        return supported_with(executor, model, pools)

    def allocate(
        self, operand: Operand, dimensions: Sequence[int], size: int, uses: Sequence[MemoryUse]
    ) -> DeviceMemory | None:
        """Memory of the device; None if its executor has none. See `executor.base.AllocatingExecutor`.

        Raises:
            NnburstError: the executor's reason.
        """
        executor = self._executor
        if not isinstance(executor, AllocatingExecutor):
            return None
        return executor.allocate(operand, dimensions, size, uses)

    def check(self, model: Model, pools: Sequence[object]) -> None:
        """Raise InvalidArgument if a model breaks one of validation's rules (device:P2).

        Args:
            model: hostile until checked here.
            pools: its pools, which have been checked against their declared sizes.
        """
        if len(pools) != len(model.pools):
            raise InvalidArgument(f"pools: {len(pools)} given, the model has {len(model.pools)}")
        validate_model(model, SIGNATURES)

    def check_supported(self, model: Model, views: Sequence[memoryview]) -> None:
        """Raise InvalidArgument if an operation of a checked model is not supported (device:P8)."""
        for index, supported in enumerate(self._supported(model, lambda: views)):
            if not supported:
                kind = _kind(model, model.main.operations[index].type)
                raise InvalidArgument(
                    f"device:P8: operation {index} ({kind}) is not supported by {self.name}"
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
        views = [pool.readable for pool in pools]
        self.check_supported(model, views)
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
        """Prepare with weights that another process has packed; None if this one has to pack its own."""
        executor = self._executor
        if self.weights is None or not isinstance(executor, PackingExecutor):
            return None
        if options.attributes:
            return None  # what others have packed was packed without them
        with self.weights.packed(model, views, options) as files:
            if not files:
                return None
            try:
                prepared = executor.prepare_packed(model, files, options)
            except NnburstError as error:
                log.warning("a model is prepared without packed weights: %s", error)
                return None
        lib.nnb_give_memory_back()  # there may be many workers with this model
        return prepared


def _kind(model: Model, code: int) -> str:
    """An operation's type, as a client that made the model has it."""
    names = {entry.prefix: entry.name for entry in model.extension_name_to_prefix}
    if prefix_of(code) in names:
        return f"operation {number_of(code)} of {names[prefix_of(code)]}"
    return f"type {code}"
