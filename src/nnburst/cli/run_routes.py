"""Executing a network with its states, by burst or over the socket: one call, one execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy.typing as npt

from nnburst.client.burst.stateful_burst import StatefulBurst
from nnburst.client.memory.arguments import ExecutionResult
from nnburst.client.prepared_model import PreparedModel
from nnburst.testing.models.network_file import NetworkFile

Array = npt.NDArray[Any]


class RunRoute(Protocol):
    """A way to execute, with its inputs in place."""

    def __call__(self) -> ExecutionResult:
        """Execute once; states go on from where they were."""


@contextmanager
def open_route(
    via: str,
    prepared: PreparedModel,
    network: NetworkFile,
    inputs: Sequence[Array],
    *,
    measure: bool,
    timeout: float,
) -> Iterator[RunRoute]:
    """A route to `prepared`.

    Args:
        via: "burst" or "execute".
        prepared: the network on a device.
        network: the network.
        inputs: one for each input that is not a state.
        measure: whether the driver times every execution.
        timeout: seconds of one execution.
    """
    if via == "execute":
        yield _OverSocket(prepared, network, inputs, measure, timeout)
        return
    with prepared.open_burst() as burst:
        if network.imported.states:
            stateful = StatefulBurst(burst, network.imported.states, measure=measure)
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
        network: NetworkFile,
        inputs: Sequence[Array],
        measure: bool,
        timeout: float,
    ) -> None:
        self._prepared = prepared
        self._states = network.imported.states
        self._measure = measure
        self._timeout = timeout
        self._inputs = network.with_states(inputs)

    def __call__(self) -> ExecutionResult:
        result = self._prepared.execute(self._inputs, measure=self._measure, timeout=self._timeout)
        for state in self._states:
            self._inputs[state.input_index] = result.outputs[state.output_index]
        return result
