"""Executors that never finish what they begin, so that a driver can be killed in the middle of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from nnburst.executor.base import (
    Argument,
    Execution,
    Executor,
    NativeCall,
    Outcome,
    Prepared,
)
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS


class _EndlessExecution(Execution):
    native: NativeCall | None = None

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
    """Prepares every model; no execution comes to an end."""

    name = "endless executing"

    def prepare(self, *_: object) -> _EndlessPrepared:
        """Nothing to do."""
        return _EndlessPrepared()


class EndlessPreparing(EndlessExecuting):
    """No preparation comes to an end."""

    name = "endless preparing"

    def prepare(self, *_: object) -> _EndlessPrepared:
        """Wait for ever."""
        threading.Event().wait()
        raise AssertionError("that event is never set")
