"""Networks with state: what one execution leaves is what the next one finds, without a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from nnburst.client.burst.burst import Burst
from nnburst.client.memory.arguments import Array, ExecutionResult
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.process.of_one_process import OfOneProcess


class State(Protocol):
    """A variable that is an input and an output of the model, as `nnburst.load` describes it."""

    @property
    def name(self) -> str:
        """Of the variable."""

    @property
    def input_index(self) -> int:
        """Position among the model's inputs."""

    @property
    def output_index(self) -> int:
        """Position among the model's outputs."""

    @property
    def initial(self) -> Array:
        """Value before the first execution."""


class StatefulBurst(OfOneProcess):
    """Executes a network with state over a burst. One thread at a time, like the burst.

    Each variable has two places in a pool. Two requests are bound, one that reads the first place and
    writes the second, and one the other way round; executions take turns. An execution that fails leaves
    the state as it was.

    Attributes:
        inputs: views of the pool for the inputs that are not a state, in the model's order.
        outputs: likewise for the outputs.
    """

    _instead = "make one in the other process and copy the state's arrays"

    def __init__(self, burst: Burst, states: Sequence[State], *, measure: bool = False) -> None:
        """Bind both requests and start from the initial values.

        Args:
            burst: of a model whose inputs and outputs all have known shapes. Still the caller's.
            states: `ImportedModel.states` of that model.
            measure: whether to time every execution.

        Raises:
            InvalidArgument: a state is not an input and output of the model, or is one twice.
        """
        self._states = tuple(states)
        _check_indexes("input", [s.input_index for s in states], len(burst.inputs))
        _check_indexes("output", [s.output_index for s in states], len(burst.outputs))
        first = burst.bind(measure=measure)
        inputs, outputs = list(first.inputs), list(first.outputs)
        for state in states:
            given, left = inputs[state.input_index], outputs[state.output_index]
            if given.dtype != left.dtype or given.shape != left.shape:
                raise InvalidArgument(f"states: {state.name!r} differs as input and as output")
            inputs[state.input_index], outputs[state.output_index] = left, given
        self._requests = (first, burst.bind(inputs, outputs, measure=measure))
        self._turn = 0
        self.inputs = _others(first.inputs, [s.input_index for s in states])
        self.outputs = _others(first.outputs, [s.output_index for s in states])
        self.reset()

    @property
    def states(self) -> Mapping[str, Array]:
        """The places that the next execution reads, by name; writing them sets the state."""
        now = self._requests[self._turn].inputs
        return {state.name: now[state.input_index] for state in self._states}

    def reset(self) -> None:
        """Go back to the values before the first execution."""
        now = self._requests[self._turn].inputs
        for state in self._states:
            now[state.input_index][...] = state.initial

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once; see `BoundRequest.run`. The result's outputs include the states.

        Args:
            timeout: seconds, 30 unless given.

        Raises:
            NnburstError: as for `BoundRequest.run`; the state is as it was before.
        """
        result = self._requests[self._turn].run(timeout)
        self._turn = 1 - self._turn
        return result


def _check_indexes(kind: str, indexes: Sequence[int], count: int) -> None:
    if len(set(indexes)) != len(indexes) or any(not 0 <= index < count for index in indexes):
        raise InvalidArgument(
            f"states: {kind} indexes are {list(indexes)}, expected different ones of {count}"
        )


def _others(arrays: Sequence[Array], states: Sequence[int]) -> tuple[Array, ...]:
    return tuple(array for index, array in enumerate(arrays) if index not in states)
