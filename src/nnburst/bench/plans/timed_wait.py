"""TimedWait: an executor whose executions take a millisecond and no processor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from nnburst.executor.base import Argument, Outcome
from nnburst.executor.null import NullExecution, NullExecutor, NullPrepared
from nnburst.hal.model import Model
from nnburst.hal.timing import OutputShape

#: Seconds.
WAIT: Final = 1e-3


class _Waiting(NullExecution):
    native = None  # type: ignore[assignment]

    def run(self, *deadlines: int | None) -> Outcome:
        time.sleep(WAIT)
        return super().run(*deadlines)


class _WaitingPrepared(NullPrepared):
    def bind(self, _inputs: Sequence[Argument], outputs: Sequence[Argument]) -> NullExecution:
        return _Waiting(
            tuple(OutputShape(tuple(d or 1 for d in o.dimensions), True) for o in outputs)
        )


class TimedWait(NullExecutor):
    """Supports every model and waits."""

    name = "timed_wait"

    def prepare(self, model: Model, *_more: object) -> NullPrepared:
        """A model whose executions wait."""
        return _WaitingPrepared(model)
