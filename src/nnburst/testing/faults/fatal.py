"""An executor whose process dies of some of its executions: repeating one loses another driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import numpy as np

from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Execution,
    Executor,
    NativeCall,
    Outcome,
    Prepared,
    PrepareOptions,
)
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model


class _FatalExecution(Execution):
    native: NativeCall | None = None

    def __init__(self, execution: Execution, first: Bytes | None) -> None:
        self._execution = execution
        self._first = first

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        if self._first is not None and np.isnan(self._first.view(np.float32)[0]):
            os.kill(os.getpid(), signal.SIGKILL)
        return self._execution.run(deadline_ns, loop_timeout_ns)

    def close(self) -> None:
        self._execution.close()


class _FatalPrepared(Prepared):
    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> _FatalExecution:
        return _FatalExecution(self._prepared.bind(inputs, outputs), inputs[0].buffer)

    def close(self) -> None:
        self._prepared.close()


class FatalExecuting(Executor):
    """The reference executor for float32; kills its process if the first input begins with NaN."""

    name = "fatal executing"

    def __init__(self) -> None:
        """Own a reference executor."""
        self._inner = ReferenceExecutor()

    def supported(self, model: Model) -> list[bool]:
        """As the reference executor."""
        return self._inner.supported(model)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> _FatalPrepared:
        """As the reference executor."""
        return _FatalPrepared(self._inner.prepare(model, pools, options))
