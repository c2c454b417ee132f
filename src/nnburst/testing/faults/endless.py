"""Executors that never finish what they begin, so that a driver can be killed in the middle of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from nnburst.executor.base import Argument, Bytes, NativeCall, Outcome
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model


class _EndlessExecution:
    native: NativeCall | None = None

    def run(
        self,
        deadline_ns: int | None = None,  # noqa: ARG002
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002
    ) -> Outcome:
        threading.Event().wait()
        raise AssertionError("nobody sets that event")

    def close(self) -> None:
        """Nothing is held."""


class _EndlessPrepared:
    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> _EndlessExecution:  # noqa: ARG002
        return _EndlessExecution()

    def close(self) -> None:
        """Nothing is held."""


class EndlessExecuting:
    """Prepares every model; no execution comes to an end."""

    name = "endless executing"

    def supported(self, model: Model) -> list[bool]:
        """True for every operation."""
        return [True] * len(model.main.operations)

    def prepare(
        self,
        model: Model,  # noqa: ARG002
        pools: Sequence[Bytes],  # noqa: ARG002
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,  # noqa: ARG002
        priority: Priority = Priority.MEDIUM,  # noqa: ARG002
        num_threads: int = 0,  # noqa: ARG002
    ) -> _EndlessPrepared:
        """Nothing to do."""
        return _EndlessPrepared()


class EndlessPreparing(EndlessExecuting):
    """No preparation comes to an end."""

    name = "endless preparing"

    def prepare(
        self,
        model: Model,  # noqa: ARG002
        pools: Sequence[Bytes],  # noqa: ARG002
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,  # noqa: ARG002
        priority: Priority = Priority.MEDIUM,  # noqa: ARG002
        num_threads: int = 0,  # noqa: ARG002
    ) -> _EndlessPrepared:
        """Wait for ever."""
        threading.Event().wait()
        raise AssertionError("nobody sets that event")
