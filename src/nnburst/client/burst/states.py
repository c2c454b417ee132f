"""Keeps the states of a network in pools of the client: each run reads the states that the last one wrote.

Nothing is copied: each state has two places in a pool. An execution reads one and writes the other; after a
success they change roles. After a failure, or the driver's death, the place that was read is unchanged.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from nnburst.client.arguments import Array, ExecutionResult, Parameter, check_count
from nnburst.client.burst.interface import (
    BoundRequest,
    Burst,
    BurstFunction,
    State,
    SubmittedRequest,
    bind_function,
    new_inputs,
)
from nnburst.client.execution.buffer import Buffer
from nnburst.client.staging import in_new_pool
from nnburst.hal.errors import BurstBusy, Closed, InvalidArgument, NnburstError
from nnburst.hal.model import refuse_masked
from nnburst.hal.utils import check_owner

T = TypeVar("T")


class _Roles:
    """Divides the inputs and outputs of a model into states and arguments of the caller.

    Attributes:
        states: the states.
        initial: a copy of each state's initial value, which the program may change later.
        inputs: indexes of the caller's inputs.
        outputs: indexes of the caller's outputs.
    """

    def __init__(
        self, states: Sequence[State], inputs: Sequence[Parameter], outputs: Sequence[Parameter]
    ) -> None:
        """Check the states.

        Raises:
            InvalidArgument: a state is no State, not an input and output of the model, or listed twice,
                or two have one name.
        """
        try:
            states = tuple(states)  # an iterator has its elements only once
            read = [operator.index(state.input_index) for state in states]
            written = [operator.index(state.output_index) for state in states]
        except (AttributeError, TypeError) as error:
            raise InvalidArgument(f"states: {error}; expected a sequence of States") from None
        _check_indexes("input", read, len(inputs))
        _check_indexes("output", written, len(outputs))
        self.initial: list[Array] = []
        numbers: dict[str, int] = {}
        for number, state in enumerate(states):
            if not isinstance(state.name, str):
                raise InvalidArgument(f"states: {state.name!r} is a name, expected text")
            if (other := numbers.setdefault(state.name, number)) != number:
                raise InvalidArgument(
                    f"states[{other}] and states[{number}] are both named {state.name!r}, expected"
                    " different names"
                )
            refuse_masked(f"states: the initial value of {state.name!r}", state.initial)
            initial = np.array(state.initial)
            before, after = inputs[state.input_index], outputs[state.output_index]
            if before.dtype != after.dtype or (
                before.known and after.known and before.dimensions != after.dimensions
            ):
                raise InvalidArgument(f"states: {state.name!r} differs as input and as output")
            if not before._takes(initial.dtype):
                raise InvalidArgument(
                    f"states: {state.name!r} begins with an array of {initial.dtype},"
                    f" expected {before.dtype}"
                )
            before.check_input(np.ascontiguousarray(initial))
            self.initial.append(initial)
        self.states = states
        self.inputs = [index for index in range(len(inputs)) if index not in read]
        self.outputs = [index for index in range(len(outputs)) if index not in written]

    def merged(
        self, given: Sequence[T], places: Sequence[Array], *, outputs: bool
    ) -> list[T | Array | None]:
        """All inputs or all outputs in the model's order: the caller's arrays and the places of states."""
        mine = self.outputs if outputs else self.inputs
        arrays: list[T | Array | None] = [None] * (len(mine) + len(places))
        for index, array in zip(mine, given, strict=True):
            arrays[index] = array
        for state, place in zip(self.states, places, strict=True):
            arrays[state.output_index if outputs else state.input_index] = place
        return arrays

    def visible(self, result: ExecutionResult) -> ExecutionResult:
        """A result without the states."""
        shapes = result.output_shapes
        return ExecutionResult(
            [result.outputs[index] for index in self.outputs],
            type(shapes)(shapes[index] for index in self.outputs) if shapes else shapes,
            result.timing,
        )


class _StatePlaces:
    """The two places of each state.

    Attributes:
        turn: 0 or 1: the number of the place that the next execution reads.
    """

    def __init__(self, roles: _Roles) -> None:
        """Allocate the places and write the initial values."""
        self._states = roles.states
        self._initial = roles.initial
        self._owner = os.getpid()
        wanted = [(array.dtype, array.shape) for array in roles.initial]
        places = in_new_pool([*wanted, *wanted])
        self._both = places[: len(wanted)], places[len(wanted) :]
        self.turn = 0
        self.reset()

    def read(self, turn: int) -> Sequence[Array]:
        """The places that an execution of this turn reads; it writes the places of the other turn."""
        return self._both[turn]

    @property
    def by_name(self) -> Mapping[str, Array]:
        """The places that the next execution reads, by name of the state."""
        self._check_process()
        now = self._both[self.turn]
        return {state.name: place for state, place in zip(self._states, now, strict=True)}

    def reset(self) -> None:
        """Go back to the initial values."""
        self._check_process()
        for initial, place in zip(self._initial, self._both[self.turn], strict=True):
            place[...] = initial

    def _check_process(self) -> None:
        """Raise Closed in a forked child: the places are not mapped there."""
        check_owner(self._owner, "the memory of the states")


class StatefulBurst(Burst):
    """A burst that adds states to any other burst, which it owns."""

    def __init__(self, burst: Burst, states: Sequence[State]) -> None:
        """Use `over`."""
        self._burst = burst
        self._roles = _Roles(states, burst.inputs, burst.outputs)
        self._inputs = [burst.inputs[index] for index in self._roles.inputs]
        self._outputs = [burst.outputs[index] for index in self._roles.outputs]
        self._places: _StatePlaces | None = None

    @classmethod
    def over(cls, burst: Burst, states: Sequence[State]) -> Burst:
        """Add states to `burst`; returns `burst` itself if `states` is empty. Closes it on an error.

        Raises:
            InvalidArgument: a state is not an input and output of the model, or is listed twice.
        """
        if not states:
            return burst
        try:
            return cls(burst, states)
        except BaseException:
            burst.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the drivers that execute are alive now and this object is open."""
        return self._burst.is_alive

    @property
    def inputs(self) -> Sequence[Parameter]:
        """Type and shape of each input that is not a state."""
        return self._inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """Type and shape of each output that is not a state."""
        return self._outputs

    @property
    def max_in_flight(self) -> int:
        """Requests that may be under way at once."""
        return self._burst.max_in_flight

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        output_bytes: Sequence[int | None] | None = None,
    ) -> StatefulRequest:
        """Bind a request, which is a stream of its own; see `Burst.bind`."""
        if inputs is None:
            inputs = new_inputs(self._inputs)
        check_count("inputs", inputs, self._inputs)
        given = [None] * len(self._outputs) if outputs is None else outputs
        check_count("outputs", given, self._outputs)
        rooms = [None] * len(self._outputs) if output_bytes is None else output_bytes
        check_count("output_bytes", rooms, self._outputs)
        return StatefulRequest(self._burst, self._roles, inputs, given, rooms, measure)

    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        copy: bool = True,
    ) -> ExecutionResult:
        """Execute once on numpy arrays, from and to the states of `execute`; see `Burst.execute`."""
        check_count("inputs", inputs, self._inputs)
        given = [None] * len(self._outputs) if outputs is None else outputs
        check_count("outputs", given, self._outputs)
        places, roles = self._own_places(), self._roles
        turn = places.turn
        result = self._burst.execute(
            roles.merged(inputs, places.read(turn), outputs=False),
            roles.merged(given, places.read(1 - turn), outputs=True),
            measure=measure,
            timeout=timeout,
            copy=copy,
        )
        places.turn = 1 - turn
        return roles.visible(result)

    def function(
        self,
        inputs: Sequence[Array | None] | None = None,
        *,
        copy: bool = False,
        timeout: float = 30.0,
    ) -> BurstFunction:
        """A function of arrays, which is a stream of its own; see `Burst.function`."""
        return bind_function(self, inputs, copy=copy, timeout=timeout)

    @property
    def states(self) -> Mapping[str, Array]:
        """The states that the next `execute` begins with; see `Burst.states`."""
        return self._own_places().by_name

    def reset(self) -> None:
        """Set the states of `execute` to their initial values."""
        self._own_places().reset()

    def _own_places(self) -> _StatePlaces:
        if self._places is None:
            self._places = _StatePlaces(self._roles)
        return self._places

    def statistics(self) -> dict[str, int]:
        """Counters of the client's side; see `Burst.statistics`."""
        return self._burst.statistics()

    def close(self) -> None:
        """End the burst. Twice is fine, and so is a dead driver. Arrays stay usable."""
        self._burst.close()

    def __repr__(self) -> str:
        names = ", ".join(state.name for state in self._roles.states)
        return f"{repr(self._burst)[:-1]}, with states {names}>"


class StatefulRequest(BoundRequest):
    """A request with states; made by `StatefulBurst.bind`.

    It is bound twice: one request reads the first places and writes the second; the other does the reverse.
    """

    __slots__ = (
        "_inputs",
        "_is_awaited",
        "_outputs",
        "_places",
        "_requests",
        "_roles",
        "_seen",
        "_submitted",
    )

    def __init__(
        self,
        burst: Burst,
        roles: _Roles,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
        rooms: Sequence[int | None],
        measure: bool,
    ) -> None:
        """Bind both requests to the same arrays of the caller."""
        places = _StatePlaces(roles)
        count = len(burst.outputs)
        all_rooms: list[int | None] = [None] * count
        for index, room in zip(roles.outputs, rooms, strict=True):
            all_rooms[index] = room
        first = burst.bind(
            roles.merged(inputs, places.read(0), outputs=False),
            roles.merged(outputs, places.read(1), outputs=True),
            measure=measure,
            output_bytes=all_rooms,
        )
        self._inputs = tuple(first.inputs[index] for index in roles.inputs)
        self._outputs = tuple(first.outputs[index] for index in roles.outputs)
        second = burst.bind(
            roles.merged(self._inputs, places.read(1), outputs=False),
            roles.merged(self._outputs, places.read(0), outputs=True),
            measure=measure,
        )
        self._roles = roles
        self._places = places
        self._requests = (first, second)
        self._seen: list[tuple[ExecutionResult, ExecutionResult] | None] = [None, None]
        self._submitted: StatefulSubmission | None = None
        #: Whether a task is in `run_async`.
        self._is_awaited = False

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Arrays that every run reads; see `BoundRequest.inputs`."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Array, ...]:
        """Arrays that every run writes; see `BoundRequest.outputs`."""
        return self._outputs

    @property
    def in_flight(self) -> bool:
        """Whether it was submitted and its result has not been collected yet."""
        return any(request.in_flight for request in self._requests)

    @property
    def closed(self) -> bool:
        """Whether it cannot run any more."""
        return self._requests[0].closed or self._requests[1].closed

    @property
    def states(self) -> Mapping[str, Array]:
        """The places that the next run reads; see `BoundRequest.states`."""
        self._take_submitted()
        return self._places.by_name

    def reset(self) -> None:
        """Set the states to their initial values."""
        self._take_submitted()
        self._places.reset()

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result; see `BoundRequest.run`."""
        if self._submitted is not None or self._is_awaited:
            self._take_submitted()
        turn = self._places.turn
        return self._took(turn, self._requests[turn].run(timeout))

    async def run_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `run`
    ) -> ExecutionResult:
        """Execute once without blocking the event loop; see `BoundRequest.run_async`."""
        self._take_submitted()
        turn = self._places.turn
        self._is_awaited = True
        try:
            return self._took(turn, await self._requests[turn].run_async(timeout))
        finally:
            self._is_awaited = False

    def submit(self, timeout: float | None = None) -> SubmittedRequest:
        """Send the request without waiting for its result; see `BoundRequest.submit`."""
        self._take_submitted()
        turn = self._places.turn
        self._submitted = StatefulSubmission(self, turn, self._requests[turn].submit(timeout))
        return self._submitted

    def _took(self, turn: int, result: ExecutionResult) -> ExecutionResult:
        """Swap the places after a successful run of `turn`; returns the result without the states."""
        self._places.turn = 1 - turn
        seen = self._seen[turn]
        if seen is None or seen[0] is not result:
            seen = self._seen[turn] = (result, self._roles.visible(result))
        return seen[1]

    def _take_submitted(self) -> None:
        """Collect the outcome of the latest submission, even if the program has not asked for it.

        Raises:
            BurstBusy: the submission is still under way, or a task is in `run_async`.
        """
        submitted = self._submitted
        is_out = submitted is not None and not submitted.settled and self.in_flight
        if is_out or self._is_awaited:
            raise BurstBusy("this request is under way: its memory is in use")
        if submitted is not None:
            submitted._take()


class StatefulSubmission(SubmittedRequest):
    """A submitted request with states; made by `StatefulRequest.submit`."""

    __slots__ = ("_abandoned", "_request", "_submitted", "_turn", "_visible")

    def __init__(self, request: StatefulRequest, turn: int, submitted: SubmittedRequest) -> None:
        """Wait for `submitted`."""
        self._request = request
        self._turn = turn
        self._submitted = submitted
        self._visible: ExecutionResult | None = None
        self._abandoned = False

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, so that `result` does not wait."""
        return self._submitted.settled

    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for the result; see `SubmittedRequest.result`."""
        return self._took(self._submitted.result(timeout))

    async def result_async(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - as for `result`
    ) -> ExecutionResult:
        """Wait like `result`, without blocking the event loop."""
        return self._took(await self._submitted.result_async(timeout))

    def abandon(self) -> None:
        """Give up the result, and the states that the run wrote."""
        self._abandoned = self._visible is None
        self._submitted.abandon()

    def _took(self, result: ExecutionResult) -> ExecutionResult:
        if self._abandoned:  # a plan that was executed at once has a result nevertheless
            raise Closed("the request was abandoned")
        if self._visible is None:
            self._visible = self._request._took(self._turn, result)
            self._request._submitted = None
        return self._visible

    def _take(self) -> None:
        """Swap the places if the run, whose outcome is known, has succeeded."""
        self._request._submitted = None
        if not self._abandoned and self._visible is None:
            try:
                self._took(self._submitted.result())
            except NnburstError:
                return  # the states stay as they were; `result` raises it


def _check_indexes(kind: str, indexes: Sequence[int], count: int) -> None:
    if len(set(indexes)) != len(indexes) or any(not 0 <= index < count for index in indexes):
        raise InvalidArgument(
            f"states: {kind} indexes are {list(indexes)}, expected different ones of {count}"
        )
