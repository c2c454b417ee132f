"""An executor that does nothing: what is left to measure is the transport."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst._native import ffi, lib
from nnburst.executor.base import (
    Argument,
    Execution,
    Executor,
    NativeCall,
    Outcome,
    Prepared,
    PrepareOptions,
)
from nnburst.executor.caching import Cached, without_constants
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.model import Model
from nnburst.hal.timing import OutputShape

_NATIVE = NativeCall(int(ffi.cast("uintptr_t", ffi.addressof(lib, "nnb_null_execute"))), 0)


class NullExecution(Execution):
    """Leaves its outputs as they are."""

    native = _NATIVE  # the C function that returns NONE

    def __init__(self, shapes: tuple[OutputShape, ...]) -> None:
        """Report `shapes` after every run."""
        self._outcome = Outcome(output_shapes=shapes)

    def run(self, *_deadlines: int | None) -> Outcome:
        """Succeed."""
        return self._outcome


class NullPrepared(Prepared):
    """A model that is never computed."""

    def __init__(self, model: Model) -> None:
        """Do not compute `model`."""
        self._model = model

    def bind(self, _inputs: Sequence[Argument], outputs: Sequence[Argument]) -> NullExecution:
        """Any request; unknown output extents are reported as 1."""
        return NullExecution(
            tuple(OutputShape(tuple(d or 1 for d in o.dimensions), True) for o in outputs)
        )

    def to_cache(self) -> Cached:
        """The model: there is nothing else."""
        return Cached(without_constants(self._model))


class NullExecutor(Executor):
    """Supports every model and computes nothing."""

    name = "null"
    cache_files = NumberOfCacheFiles(1, 0)  # no constants

    def prepare(self, model: Model, *_more: object) -> NullPrepared:
        """Nothing to do."""
        return NullPrepared(model)

    def prepare_from_cache(self, cached: Cached, _options: PrepareOptions) -> NullPrepared:
        """Nothing to do, either."""
        return NullPrepared(cached.model)
