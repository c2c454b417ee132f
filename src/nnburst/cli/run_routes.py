"""Executing a network with its states, by burst or over the socket: one call, one execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nnburst.client.arguments import ExecutionResult
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.stateful_burst import StatefulBurst
from nnburst.importer.imported_model import State

Array = npt.NDArray[Any]


class Route(Protocol):
    """A way to execute, with its inputs in place."""

    def __call__(self) -> ExecutionResult:
        """Execute once; states go on from where they were."""


@contextmanager
def open_route(
    via: str,
    prepared: PreparedModel,
    states: Sequence[State],
    inputs: Sequence[Array],
    *,
    measure: bool,
    timeout: float,
) -> Iterator[Route]:
    """A route to `prepared`.

    Args:
        via: "burst" or "execute".
        prepared: the network.
        states: its variables.
        inputs: one for each input that is no state.
        measure: whether the driver times every execution.
        timeout: seconds of one execution.
    """
    if via == "execute":
        yield _OverSocket(prepared, states, inputs, measure, timeout)
        return
    with prepared.open_burst() as burst:
        if states:
            stateful = StatefulBurst(burst, states, measure=measure)
            places: Sequence[Array] = stateful.inputs
            run: Any = stateful.run
        else:
            bound = burst.bind(measure=measure)
            places, run = bound.inputs, bound.run
        for place, value in zip(places, inputs, strict=True):
            place[...] = value
        yield lambda: run(timeout)


class _OverSocket:
    """Executions over the socket; what a state's output gave is its next input."""

    def __init__(
        self,
        prepared: PreparedModel,
        states: Sequence[State],
        inputs: Sequence[Array],
        measure: bool,
        timeout: float,
    ) -> None:
        self._prepared = prepared
        self._states = states
        self._measure = measure
        self._timeout = timeout
        initial = {state.input_index: np.array(state.initial) for state in states}
        others = iter(inputs)
        self._inputs = [
            initial[at] if at in initial else next(others) for at in range(len(prepared.inputs))
        ]

    def __call__(self) -> ExecutionResult:
        result = self._prepared.execute(self._inputs, measure=self._measure, timeout=self._timeout)
        for state in self._states:
            self._inputs[state.input_index] = result.outputs[state.output_index]
        return result
