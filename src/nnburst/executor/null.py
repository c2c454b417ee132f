"""An executor that does nothing: what is left to measure is the transport."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst._native import ffi, lib
from nnburst.executor.base import Argument, Bytes, NativeCall, Outcome
from nnburst.executor.caching import Cached, without_constants
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.timing import OutputShape

_NATIVE = NativeCall(int(ffi.cast("uintptr_t", ffi.addressof(lib, "nnb_null_execute"))), 0)


class NullExecution:
    """Leaves its outputs as they are."""

    def __init__(self, shapes: tuple[OutputShape, ...]) -> None:
        """Report `shapes` after every run."""
        self._outcome = Outcome(output_shapes=shapes)

    @property
    def native(self) -> NativeCall | None:
        """The C function that returns NONE."""
        return _NATIVE

    def run(
        self,
        deadline_ns: int | None = None,  # noqa: ARG002
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002
    ) -> Outcome:
        """Succeed."""
        return self._outcome

    def close(self) -> None:
        """Nothing is held."""


class NullPrepared:
    """A model that is never computed."""

    def __init__(self, model: Model) -> None:
        """Do not compute `model`."""
        self._model = model

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> NullExecution:  # noqa: ARG002
        """Any request; unknown output extents are reported as 1."""
        return NullExecution(
            tuple(OutputShape(tuple(d or 1 for d in o.dimensions), True) for o in outputs)
        )

    def to_cache(self) -> Cached:
        """The model: there is nothing else."""
        return Cached(without_constants(self._model))

    def close(self) -> None:
        """Nothing is held."""


class NullExecutor:
    """Supports every model and computes nothing."""

    name = "null"

    def supported(self, model: Model) -> list[bool]:
        """True for every operation."""
        return [True] * len(model.main.operations)

    def prepare(
        self,
        model: Model,
        pools: Sequence[Bytes],  # noqa: ARG002
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,  # noqa: ARG002
        priority: Priority = Priority.MEDIUM,  # noqa: ARG002
        num_threads: int = 0,  # noqa: ARG002
    ) -> NullPrepared:
        """Nothing to do."""
        return NullPrepared(model)

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """No constants."""
        return NumberOfCacheFiles(1, 0)

    def prepare_from_cache(
        self,
        cached: Cached,
        preference: ExecutionPreference,  # noqa: ARG002
        priority: Priority,  # noqa: ARG002
        num_threads: int,  # noqa: ARG002
    ) -> NullPrepared:
        """Nothing to do, either."""
        return NullPrepared(cached.model)
