"""Executes without computing, so that a measurement shows the transport alone."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst._native import lib
from nnburst.executor.base import Bytes
from nnburst.executor.c_library import CExecutor, CPrepared
from nnburst.hal.enums import DeviceType
from nnburst.hal.model import Model
from nnburst.hal.types import NumberOfCacheFiles


class NullExecutor(CExecutor):
    """Supports every model and computes nothing (csrc/null_executor.c, an executor in C)."""

    name = "null"
    device_type = DeviceType.CPU
    cache_files = NumberOfCacheFiles(1, 0)  # no constants

    def __init__(self) -> None:
        """Use the built-in functions, which need no device."""
        super().__init__(lib.nnb_null_executor())

    def supported_with(self, model: Model, _pools: Sequence[Bytes]) -> list[bool]:
        """See `supported`: values of constants make no difference."""
        return self.supported(model)


class NullPrepared(CPrepared):
    """A model that is never computed. Unknown extents of outputs are reported as 1."""

    def __init__(self, model: Model) -> None:
        """Prepare `model` without computing it."""
        null = NullExecutor()
        super().__init__(null, null.prepare(model, ()).handle, model)
