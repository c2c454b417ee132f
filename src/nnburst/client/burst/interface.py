"""Declares the interface of all bursts: of one driver, of a driver that is started again, of a plan.

    with prepared.open_burst() as burst:         # or compiled.open_burst(), or of a device with recover=True
        bound = burst.bind()
        bound.inputs[0][...] = x
        y = bound.run(timeout=0.004).outputs[0]

What a burst cannot do is refused when it is opened, with the name of the argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy import ndarray

from nnburst.client.arguments import Array, ExecutionResult, Parameter, check_count, check_timeout
from nnburst.client.execution.buffer import refuse_buffers
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.client.staging import in_new_pool
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import Closing, NotPicklable

#: Seconds that a call has by itself.
DEFAULT_TIMEOUT: Final = 30.0

#: Whether a driver that has died is replaced, and what calls do until then; see `nnburst.launch`.
Recover = bool | Literal["wait", "raise"]


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


class SubmittedRequest(NotPicklable, ABC):
    """A request that was sent; made by `BoundRequest.submit`. Usable by the thread that uses the burst.

    Results come in the order of submission, so earlier ones are collected on the way.
    """

    __slots__ = ()

    _instead = "pickle the result instead"

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether the outcome is known, so that `result` does not wait."""

    @abstractmethod
    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for the result. May be called again.

        Args:
            timeout: seconds to wait.

        Raises:
            MissedDeadline: no result in time; it may come yet, unless the time of `submit` is over.
            Closed: it was abandoned, or the burst was closed.
            NnburstError: as for `BoundRequest.run`.
        """

    @abstractmethod
    async def result_async(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - as for `result`
    ) -> ExecutionResult:
        """`result`, while the event loop goes on. If it is cancelled, it may be called again."""

    @abstractmethod
    def abandon(self) -> None:
        """Give up the result: it is dropped when it comes. Does not wait; twice is fine."""


class BoundRequest(NotPicklable, ABC):
    """A request that is bound to its arrays; made by `Burst.bind`. Usable by the thread that uses the burst.

    With `states=` each bound request is a stream of its own: what one run leaves is what the next one finds.
    """

    __slots__ = ()

    _instead = "bind one in the other process; results can be pickled"

    @property
    @abstractmethod
    def inputs(self) -> tuple[Array, ...]:
        """Arrays that every run reads, None if omitted; those of states are not among them.

        Write them before a run, not during it. An assignment is numpy's: of a masked array, which all else
        refuses, it takes what lies under the mask.
        """

    @property
    @abstractmethod
    def outputs(self) -> tuple[Array, ...]:
        """Arrays that every run writes, but those of states.

        If the model leaves the shape open, an array is room, and results are views of its beginning.
        """

    @property
    @abstractmethod
    def in_flight(self) -> bool:
        """Whether it was submitted and its result has not been collected yet."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it cannot run any more: its burst or a pool was closed, or this is a forked child."""

    @abstractmethod
    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result.

        Args:
            timeout: seconds that the call may take, whatever happens; 30 unless given.

        Returns:
            The outputs (views, overwritten by the next run), shapes and timing.

        Raises:
            MissedDeadline: no result in time. The burst stays usable: the next run first waits for the
                late result and drops it.
            OutputInsufficientSize: an array is too small; `output_shapes` has what is needed.
            InvalidArgument, GeneralFailure, ResourceExhausted: what the driver answered.
            BurstBusy: this request was submitted and is under way, or another thread is using the burst.
            DeadObject: the driver has died. A run that a driver died of is never repeated.
            Closed: the burst, or a pool, was closed.
        """

    @abstractmethod
    async def run_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `run`
    ) -> ExecutionResult:
        """Execute once; the event loop goes on meanwhile, also while a driver is made again.

        If `max_in_flight` requests are out, this one waits for its turn. Cancelling it is fine: the burst
        stays usable, and the result is dropped when it comes. All else is as for `run`.
        """

    @abstractmethod
    def submit(self, timeout: float | None = None) -> SubmittedRequest:
        """Send the request without waiting for its result; results come in the order of submission.

        Inputs must not change, and outputs mean nothing, until its result was collected.

        Args:
            timeout: seconds that it may take from now on; unless given, only `result` limits the wait. A
                plan's has 30 s then.

        Raises:
            BurstBusy: `max_in_flight` requests are out, this one is, or another thread is using the burst.
            MissedDeadline: its driver was not there again in time.
            GeneralFailure: the request does not fit the channel.
            DeadObject, Closed: as for `run`.
        """

    @property
    def states(self) -> Mapping[str, Array]:
        """The places that the next run reads, by name of the state; writing them sets the state.

        Empty without `states=`. A run that fails, and one that a driver dies of, leaves them as they were.
        """
        return {}

    def reset(self) -> None:
        """Go back to the states before the first run; nothing without `states=`."""


class _Closed(Protocol):
    """A request, or its struct."""

    @property
    def closed(self) -> int:
        """Not 0 if so."""


class BurstFunction(NotPicklable):
    """A burst's execution as a function of arrays; made by `Burst.function`. One thread at a time.

    It is usable as long as its burst is open.

        classify = burst.function()
        (scores,) = classify(picture)

    With `states=` it is a stream of its own.

    Attributes:
        inputs: views of the private pool that arguments are copied to; None if an input is omitted.
    """

    _instead = "make one in the other process; results can be pickled once copied"

    __slots__ = (
        "_bound",
        "_copy",
        "_count",
        "_executing",
        "_last",
        "_outputs",
        "_parameters",
        "_places",
        "_run",
        "_struct",
        "inputs",
    )

    def __init__(
        self,
        bound: BoundRequest,
        struct: _Closed,
        parameters: Sequence[Parameter],
        executing: Gate,
        *,
        copy: bool,
        timeout: float,
    ) -> None:
        """Use `Burst.function`."""
        self._bound = bound
        self._struct = struct
        self._run = bound.run if timeout == DEFAULT_TIMEOUT else partial(bound.run, timeout)
        self._parameters = parameters
        self._executing = executing
        self._copy = copy
        self._last: ExecutionResult | None = None
        self._outputs: tuple[Array, ...] = ()
        self.inputs: tuple[Array | None, ...] = tuple(bound.inputs)
        self._count = len(self.inputs)
        self._places = tuple(
            (view, None, None, at) if view is None else (view, view.dtype, view.shape, at)
            for at, view in enumerate(self.inputs)
        )

    def __call__(self, *arrays: Array | None) -> tuple[Array, ...]:
        """Execute once.

        Args:
            arrays: one for each input, of the shapes that were bound, in any layout; None if an input was
                omitted.

        Returns:
            The outputs: views that the next call overwrites, or copies.

        Raises:
            InvalidArgument: an array does not fit; nothing was sent.
            OutputInsufficientSize, MissedDeadline, DeadObject, BurstBusy, Closed: as for `Burst.execute`.
        """
        executing, me = self._executing, next(entries)
        try:
            executing.enter(me)
            if self._struct.closed:  # in a forked child there is nothing to copy to
                self._run()
            if len(arrays) != self._count:
                check_count("inputs", arrays, self._parameters)
            for view, dtype, shape, at in self._places:
                array = arrays[at]
                if (
                    type(array) is ndarray
                    and array.dtype is dtype
                    and array.shape == shape  # which an input that is omitted has not
                ):
                    view[...] = array  # type: ignore[index]
                else:
                    self._copy_in(at, array)
            result = self._run()
            if result is not self._last:
                self._outputs, self._last = tuple(result.outputs), result
            if self._copy:
                return tuple([output.copy() for output in self._outputs])
            return self._outputs
        finally:
            leave(executing.struct, me)

    @property
    def states(self) -> Mapping[str, Array]:
        """The states that the next call begins with; see `BoundRequest.states`."""
        return self._bound.states

    def reset(self) -> None:
        """Go back to the states before the first call; see `BoundRequest.reset`."""
        self._bound.reset()

    def _copy_in(self, at: int, array: Any) -> None:  # noqa: ANN401 - anything, until checked
        """Copy an argument that is not quite like its place, if it fits."""
        view, parameter = self.inputs[at], self._parameters[at]
        if view is None or array is None:
            if view is not array:
                wanted = "None: it was omitted" if view is None else "an array"
                raise InvalidArgument(
                    f"{parameter.name} is {type(array).__name__}, expected {wanted}"
                )
            return
        given = parameter.check_input(np.ascontiguousarray(array) if _strided(array) else array)
        if given.shape != view.shape:
            raise InvalidArgument(
                f"{parameter.name} has shape {given.shape}, expected {view.shape}, which was bound"
            )
        np.copyto(view, given, casting="no" if view.dtype == given.dtype else "unsafe")

    def __repr__(self) -> str:
        state = "closed" if self._bound.closed else "open"
        return f"<nnburst.BurstFunction of {len(self._places)} inputs: {state}>"


class Burst(Closing, ABC):
    """Executions of one model over shared memory, a microsecond each.

    Made by `PreparedModel.open_burst` and `CompiledModel.open_burst`. One thread at a time; a second one gets
    BurstBusy. A context manager that closes itself.
    """

    _instead = "open one in the other process; arrays and results can be pickled"

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether what executes is there now and this object is open."""

    @property
    @abstractmethod
    def inputs(self) -> Sequence[Parameter]:
        """Type and shape of each input, without those of states."""

    @property
    @abstractmethod
    def outputs(self) -> Sequence[Parameter]:
        """Type and shape of each output, without those of states."""

    @property
    @abstractmethod
    def max_in_flight(self) -> int:
        """Requests that may be under way at once."""

    @abstractmethod
    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        output_bytes: Sequence[int | None] | None = None,
    ) -> BoundRequest:
        """Bind a request: arrays are used in place, what is sent is made once.

        Args:
            inputs: arrays in pools (`Device.allocate(...).array(...)`), None for an omitted one; new arrays
                in one new pool unless given. A plan takes arrays outside of pools, too, and copies them.
            outputs: arrays in pools, None for a new one; all new unless given. If the model leaves a shape
                open, an array is room, and the result is a view of its beginning.
            measure: whether to time every execution; a plan is timed if it has one step.
            output_bytes: for each output the bytes of a new array whose shape the model leaves open, or None.

        Raises:
            InvalidArgument: an array does not fit the model, or does not lie in a pool.
            ResourceExhausted: there is not so much memory.
            MissedDeadline: the driver does not release pools that were closed before.
            Closed: the burst, its device or a pool is closed. A dead driver shows in the first run.
        """

    @abstractmethod
    def execute(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        copy: bool = True,
    ) -> ExecutionResult:
        """Execute once on numpy arrays.

        Arrays that lie in a pool are used in place; others are copied through a private pool. Requests
        are remembered, so the same arrays again cost only their run. Arguments may be buffers of the device,
        but for a plan's; such a request goes over the socket, since bursts cannot carry their tokens.

        Args:
            inputs: one for each input; None if the operation allows to omit it.
            outputs: arrays to write to; None for results of the burst's own.
            measure: whether to time it.
            timeout: seconds that the call may take, whatever happens.
            copy: with `outputs` None: whether results are copies, or views that the next `execute` with
                private results overwrites.

        Returns:
            Outputs, shapes and timing.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was sent.
            OutputInsufficientSize, MissedDeadline, DeadObject, BurstBusy, Closed: see these classes.
        """

    @abstractmethod
    def function(
        self,
        inputs: Sequence[Array | None] | None = None,
        *,
        copy: bool = False,
        timeout: float = 30.0,
    ) -> BurstFunction:
        """A function of arrays, for which a request is bound once: the quickest way from array to array.

        Args:
            inputs: arrays like those that it will be called with, needed if the model leaves shapes open or
                inputs are omitted (None); of the model's shapes unless given.
            copy: whether results are copies, or views that the next call overwrites.
            timeout: seconds that each call may take.

        Raises:
            InvalidArgument: an array does not fit the model, or is not given for a shape that is open.
            Closed: the burst or its device is closed.
        """

    @property
    def states(self) -> Mapping[str, Array]:
        """The states of `execute`, as `BoundRequest.states`; each bound request and function has its own."""
        return {}

    def reset(self) -> None:
        """Take `execute` back to the states before its first run; nothing without `states=`."""

    def slot(self) -> Burst:
        """A sequence of its own, of a graph whose states stay in the driver (`nnburst.load(resident=True)`).

        All that is done with it goes on from one state: `execute`, bound requests of any shape and functions.
        Its `reset` begins anew. Closing it gives its memory in the driver back; so does the end of the burst
        or the client. One thread at a time, as for the burst.

        Raises:
            InvalidArgument: the burst has no states in its driver.
            ResourceExhausted: the client has as many slots as it may, or memory is short.
            DeadObject: the driver has died.
        """
        raise InvalidArgument("slot: the model has no states that stay in the driver")

    def statistics(self) -> dict[str, int]:
        """Counters of the client's side since the burst was opened, by name; empty for a plan.

        After a recovery they are those of the burst as it is now.

        * `executions`, and late results that were `dropped`.
        * How it waited: `sleeps`, nanoseconds of spinning (`spun_ns`), times that a spinner lost its core
          (`descheduled`) and that spinning stopped because cores were scarce (`crowded`).
        * The learned period of the results: `period_ns` (0 if there is no period), results met awake and
          asleep (`met_awake`, `met_asleep`; those that come within two microseconds do not count),
          `outliers` that did not change the period, and how often one was `rhythm_found` and
          `rhythm_lost`.
        """
        return {}


def arrays_like(
    parameters: Sequence[Parameter], arrays: Sequence[Array | None] | None
) -> list[Array | None]:
    """Private arrays like the given ones, or as the model declares; None stays None.

    Raises:
        InvalidArgument: an array does not fit the model, or is not given for a shape that is open.
    """
    if arrays is None:
        for parameter in parameters:
            if not parameter.known:
                raise InvalidArgument(f"{parameter.name} has no fixed shape: give an array like it")
        return [np.empty(parameter.dimensions, parameter.dtype) for parameter in parameters]
    check_count("inputs", arrays, parameters)
    refuse_buffers("inputs", arrays)
    return [
        None if array is None else np.empty(parameter.check_input(array).shape, array.dtype)
        for parameter, array in zip(parameters, arrays, strict=True)
    ]


def new_inputs(parameters: Sequence[Parameter]) -> list[Array]:
    """An array for each input, all in one new pool.

    Raises:
        InvalidArgument: the shape of an input is open.
    """
    for parameter in parameters:
        if not parameter.known:
            raise InvalidArgument(f"{parameter.name} has no fixed shape: give bind an array")
    return in_new_pool([(p.dtype, p.dimensions) for p in parameters])


def bind_function(
    burst: Burst, inputs: Sequence[Array | None] | None, *, copy: bool, timeout: float
) -> BurstFunction:
    """`Burst.function` of a burst of any kind."""
    seconds = check_timeout(timeout)
    likes = arrays_like(burst.inputs, inputs)
    made = iter(in_new_pool([(like.dtype, like.shape) for like in likes if like is not None]))
    rooms = [None if p.known else p.first_room for p in burst.outputs]
    bound = burst.bind(
        [None if like is None else next(made) for like in likes], None, output_bytes=rooms
    )
    return BurstFunction(bound, bound, burst.inputs, Gate(), copy=copy, timeout=seconds)


def _strided(array: object) -> bool:
    return type(array) is np.ndarray and not array.flags.c_contiguous


def check_recover(recover: object) -> bool:
    """Whether calls wait until a driver is there again.

    Raises:
        InvalidArgument: `recover` is no word for it.
    """
    if recover is True or recover == "wait":
        return True
    if recover == "raise":
        return False
    raise InvalidArgument(f"recover: {recover!r}, expected True, 'wait', 'raise' or False")
