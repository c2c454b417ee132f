"""Provides executors that hang, die or misbehave on purpose."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Execution,
    Executor,
    Outcome,
    Prepared,
    PrepareOptions,
)
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.types import OutputShape


class _EndlessExecution(Execution):
    def run(
        self,
        deadline_ns: int | None = None,  # noqa: ARG002
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002
    ) -> Outcome:
        threading.Event().wait()
        raise AssertionError("that event is never set")


class _EndlessPrepared(Prepared):
    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> _EndlessExecution:  # noqa: ARG002
        return _EndlessExecution()


class EndlessExecuting(Executor):
    """Prepares every model, but its executions never end."""

    name = "endless executing"

    def prepare(self, *_: object) -> _EndlessPrepared:
        """Prepare a model whose executions never end."""
        return _EndlessPrepared()


class EndlessPreparing(EndlessExecuting):
    """Never ends a preparation."""

    name = "endless preparing"

    def prepare(self, *_: object) -> _EndlessPrepared:
        """Never return."""
        threading.Event().wait()
        raise AssertionError("that event is never set")


class _Wrapped(Prepared):
    """A prepared model whose executions are wrapped by `wrap`, which also gets their first inputs."""

    def __init__(
        self, prepared: Prepared, wrap: Callable[[Execution, Argument], Execution]
    ) -> None:
        self._prepared = prepared
        self._wrap = wrap

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:
        return self._wrap(self._prepared.bind(inputs, outputs), inputs[0])

    def close(self) -> None:
        self._prepared.close()


class _FatalExecution(Execution):
    def __init__(self, execution: Execution, first: Argument) -> None:
        self._execution = execution
        self._first = first.buffer

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
    ) -> Prepared:
        """As the reference executor."""
        return _Wrapped(self._inner.prepare(model, pools, options), _FatalExecution)


class Lying(Executor):
    """Supports every operation when asked, and prepares no model."""

    name = "lying"

    def prepare(
        self,
        model: Model,  # noqa: ARG002
        pools: Sequence[Bytes],  # noqa: ARG002
        options: PrepareOptions = DEFAULT_OPTIONS,  # noqa: ARG002
    ) -> Prepared:
        """Refuse."""
        raise GeneralFailure("lying: no model can be prepared")


class _Answering(Execution):
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def run(
        self,
        deadline_ns: int | None = None,  # noqa: ARG002
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002
    ) -> Outcome:
        return self._outcome


class _Preparing(Prepared):
    def __init__(self, outcome: Callable[[Sequence[Argument]], Outcome]) -> None:
        self._outcome = outcome

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:  # noqa: ARG002
        return _Answering(self._outcome(outputs))


class _WithoutComputing(Executor):
    """Prepares every model without computing it; the method `outcome` gives each execution's result."""

    def prepare(
        self,
        model: Model,  # noqa: ARG002
        pools: Sequence[Bytes],  # noqa: ARG002
        options: PrepareOptions = DEFAULT_OPTIONS,  # noqa: ARG002
    ) -> Prepared:
        """Prepare a model that is not computed."""
        return _Preparing(self.outcome)

    def outcome(self, outputs: Sequence[Argument]) -> Outcome:
        """The outcome of an execution on such outputs."""
        raise NotImplementedError


class Refusing(_WithoutComputing):
    """Prepares every model, and refuses each execution."""

    name = "refusing"

    def outcome(self, outputs: Sequence[Argument]) -> Outcome:  # noqa: ARG002
        """Return GENERAL_FAILURE."""
        return Outcome(ErrorStatus.GENERAL_FAILURE, message="refusing: no execution")


class Misshapen(_WithoutComputing):
    """Computes nothing, and reports each output with one dimension too many."""

    name = "misshapen"

    def outcome(self, outputs: Sequence[Argument]) -> Outcome:
        """Return success with wrong shapes."""
        return Outcome(
            output_shapes=tuple(
                OutputShape((3,) * (len(argument.dimensions) + 1), True) for argument in outputs
            )
        )


class _Delayed(Execution):
    """Sleeps for the milliseconds that its first input begins with, and then computes."""

    def __init__(self, execution: Execution, first: Argument) -> None:
        self._execution = execution
        self._first = first

    def run(
        self,
        deadline_ns: int | None = None,  # noqa: ARG002
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        buffer = self._first.buffer
        if buffer is not None:
            milliseconds = float(buffer[:4].view(np.float32)[0])
            if 0 < milliseconds < 1e4:
                time.sleep(milliseconds * 1e-3)
        return self._execution.run(None, loop_timeout_ns)

    def close(self) -> None:
        self._execution.close()


class Delayed(Executor):
    """Computes correctly, but late by the milliseconds at its first input's start; ignores deadlines."""

    name = "delayed"

    def __init__(self) -> None:
        """Compute by the reference executor."""
        self._reference = ReferenceExecutor()

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """Prepare as the reference executor does."""
        return _Wrapped(self._reference.prepare(model, pools, options), _Delayed)
