"""Declares the interface of every burst: on one driver, on a driver that is restarted, or on a plan.

    with prepared.open_burst() as burst:         # or compiled.open_burst(), or of a device with recover=True
        bound = burst.bind()
        bound.inputs[0][...] = x
        y = bound.run(timeout=0.004).outputs[0]

An option that a burst does not support is refused when the burst is opened; the error names the argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy import ndarray

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    check_count,
    check_timeout,
    copy_elements,
)
from nnburst.client.execution.buffer import Buffer, refuse_buffers
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.client.staging import in_new_pool
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import Closing, NotPicklable

#: Timeout of a call in seconds, unless the caller gives one.
DEFAULT_TIMEOUT: Final = 30.0

#: Whether a dead driver is replaced, and whether calls wait for it or raise; see `nnburst.launch`.
Recover = bool | Literal["wait", "raise"]


class State(Protocol):
    """A variable that is an input and an output of the model, as `nnburst.load` describes it."""

    @property
    def name(self) -> str:
        """The variable's name."""

    @property
    def input_index(self) -> int:
        """Position among the model's inputs."""

    @property
    def output_index(self) -> int:
        """Position among the model's outputs."""

    @property
    def initial(self) -> Array:
        """Value before the first execution; a burst copies it when it is opened."""


class SubmittedRequest(NotPicklable, ABC):
    """A request that was sent; made by `BoundRequest.submit`. Usable by the thread that uses the burst.

    Results come in the order of submission, so earlier ones are collected on the way.
    """

    __slots__ = ()

    _instead = "pickle the result instead"

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether the outcome is known, so that `result` does not wait.

        Reading this collects nothing: the outcome of a prepared model's request is known once a call such as
        `result` has taken it. To look for it without a long wait, call `result` with a short timeout.
        """

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
        """Wait like `result`, without blocking the event loop. May be called again after a cancellation."""

    @abstractmethod
    def abandon(self) -> None:
        """Give up the result: it is dropped when it comes. Does not wait; twice is fine."""

    def __repr__(self) -> str:
        state = "settled" if self.settled else "under way"
        return f"<nnburst.SubmittedRequest: {state}>"


class BoundRequest(NotPicklable, ABC):
    """A request that is bound to its arrays; made by `Burst.bind`. Usable by the thread that uses the burst.

    With `states=` each bound request is a stream of its own: a run begins with the states of the run before.
    """

    __slots__ = ()

    _instead = "bind one in the other process; results can be pickled"

    @property
    @abstractmethod
    def inputs(self) -> tuple[Array, ...]:
        """Arrays that every run reads, None if omitted; those of states are not among them.

        Write them before a run, not during it. Assignment follows numpy: of a masked array, which all other
        calls refuse, it copies the data under the mask.
        """

    @property
    @abstractmethod
    def outputs(self) -> tuple[Array, ...]:
        """Arrays that every run writes; those of states are not among them.

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
            timeout: seconds that the call may take, a recovery included; 30 unless given.

        Returns:
            The outputs (views, overwritten by the next run), shapes and timing.

        Raises:
            MissedDeadline: no result in time. The burst stays usable: the next run first waits for the
                late result and drops it.
            OutputInsufficientSize: an array is too small; `output_shapes` has what is needed.
            InvalidArgument, GeneralFailure, ResourceExhausted: the driver answered with this error.
            BurstBusy: this request was submitted and is under way, or another thread is using the burst. A
                compiled model's burst runs nothing else, either, until all that was submitted has ended.
            DeadObject: the driver has died. A run during which the driver died is never repeated.
            Closed: the burst, or a pool, was closed.
        """

    @abstractmethod
    async def run_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `run`
    ) -> ExecutionResult:
        """Execute once without blocking the event loop, even while a driver is restarted.

        If `max_in_flight` requests are under way, this one waits for its turn. It may be cancelled: the burst
        stays usable, and the result is dropped when it comes. Everything else is as for `run`.
        """

    @abstractmethod
    def submit(self, timeout: float | None = None) -> SubmittedRequest:
        """Send the request without waiting for its result; results come in the order of submission.

        Until the result is collected, inputs must not change and outputs are undefined.

        Args:
            timeout: seconds that the request may take from now on; unless given, only `result` limits the
                wait, and a plan's request has 30 s.

        Raises:
            BurstBusy: `max_in_flight` requests are under way, this one is one of them, or another thread is
                using the burst. A request that was late is under way until its result has come.
            MissedDeadline: the driver was not restarted in time.
            GeneralFailure: the request does not fit the channel.
            DeadObject, Closed: as for `run`.
        """

    @property
    def states(self) -> Mapping[str, Array]:
        """The arrays of the states that the next run reads, by name; writing them sets the state.

        Empty without `states=`. A run that fails, or during which the driver dies, leaves them as they were.
        While a run is under way, this and `reset` raise BurstBusy.
        """
        return {}

    def reset(self) -> None:
        """Set the states to their initial values; does nothing without `states=`."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        counts = f"{len(self.inputs)} inputs and {len(self.outputs)} outputs"
        return f"<nnburst.BoundRequest of {counts}: {state}>"


class _Closed(Protocol):
    """A bound request, or its struct, which know whether they are closed."""

    @property
    def closed(self) -> int:
        """True or not 0 if it is closed."""


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
            if self._struct.closed:  # a forked child has not mapped the memory
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
        """Copy an argument whose type or layout differs from its place, if the argument fits."""
        view, parameter = self.inputs[at], self._parameters[at]
        if view is None:
            if array is not None:
                raise InvalidArgument(
                    f"{parameter.name} is {type(array).__name__}, expected None: it was omitted"
                )
            return
        given = parameter.check_input(np.ascontiguousarray(array) if _strided(array) else array)
        if given.shape != view.shape:
            raise InvalidArgument(
                f"{parameter.name} has shape {given.shape}, expected {view.shape}, which was bound"
            )
        copy_elements(view.view(parameter.dtype), given)  # opaque, where two dtypes may differ

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
        """Whether the drivers that execute are alive now and this object is open."""

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
        """Bind a request: arrays are used in place, and the packet is written once.

        Args:
            inputs: arrays in the first 4 GiB of pools (`Device.allocate(...).array(...)`), None for an
                omitted one; new arrays in one new pool unless given. A plan also takes others, and copies
                them.
            outputs: arrays in pools, None for a new one; all new unless given. If the model leaves a shape
                open, an array is room, and the result is a view of its beginning.
            measure: whether to time every execution; a plan is timed only if it has one step.
            output_bytes: for each output the bytes of a new array whose shape the model leaves open, or None.

        Raises:
            InvalidArgument: an array does not fit the model, does not lie in a pool, or begins beyond 4 GiB.
            ResourceExhausted: there is not enough memory.
            MissedDeadline: the driver does not release pools that were closed before.
            Closed: the burst, its device or a pool is closed. A dead driver is reported by the first run.
        """

    @abstractmethod
    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        copy: bool = True,
    ) -> ExecutionResult:
        """Execute once on numpy arrays.

        Arrays that lie in a pool are used in place; others are copied through a private pool. Requests are
        cached, so calls with the same arrays cost only their run. Except for plans, arguments may be buffers
        of the device; such a request goes over the socket, since bursts cannot carry the tokens of buffers.
        So does one with an array that begins beyond the first 4 GiB of a pool: packets have 32 bits for
        offsets.

        Args:
            inputs: one for each input; None if the operation allows to omit it.
            outputs: arrays to write to, each in a place of its own; None to return new arrays, or views of
                the burst's own memory.
            measure: whether to time the execution.
            timeout: seconds that the call may take, a recovery included.
            copy: with `outputs` None: whether results are copies, or views that any later `execute` of this
                burst may overwrite, also one with `outputs`. Such a view may be its input.

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
        """Make a function of arrays over one bound request: the quickest way to execute arrays.

        An output whose shape the model leaves open has room for 64 KiB; `bind` takes more, as `output_bytes`.

        Args:
            inputs: arrays with the types and shapes of later arguments, needed if the model leaves shapes
                open or inputs are omitted (None); otherwise the model's shapes are used.
            copy: whether results are copies, or views that the next call overwrites.
            timeout: seconds that each call may take.

        Raises:
            InvalidArgument: an array does not fit the model, or is not given for a shape that is open.
            Closed: the burst or its device is closed.
        """

    @property
    def states(self) -> Mapping[str, Array]:
        """The states of `execute`; see `BoundRequest.states`. Bound requests and functions have their own."""
        return {}

    def reset(self) -> None:
        """Set the states of `execute` to their initial values; does nothing without `states=`."""

    def slot(self) -> Burst:
        """Open a new sequence of a graph whose states stay in the driver (`nnburst.load(resident=True)`).

        All calls on the returned burst share one state: `execute`, bound requests of any shape and functions.
        Its `reset` sets the state to zeros. Closing it frees its memory in the driver; so does the end of the
        burst or the client. One thread at a time, as for the burst.

        Raises:
            InvalidArgument: the burst has no states in its driver.
            ResourceExhausted: the client has as many slots as it may have, or memory is short.
            DeadObject: the driver has died.
        """
        raise InvalidArgument("slot: the model has no states that stay in the driver")

    def statistics(self) -> dict[str, int]:
        """Counters of the client's side since the burst was opened, by name; empty for a plan.

        A recovery sets them to zero, since it opens a new burst.

        * `executions`, and late results that were `dropped`.
        * Waits: `sleeps`, nanoseconds of spinning (`spun_ns`), and how often a spinner lost its core
          (`descheduled`) or stopped because cores were scarce (`crowded`).
        * The learned period of the results: `period_ns` (0 if there is no period), results met awake and
          asleep (`met_awake`, `met_asleep`; those that come within two microseconds do not count),
          `outliers` that did not change the period, and how often one was `rhythm_found` and
          `rhythm_lost`.
        """
        return {}


def arrays_like(
    parameters: Sequence[Parameter], arrays: Sequence[Array | None] | None
) -> list[Array | None]:
    """Make private arrays like the given ones, or as the model declares; None stays None.

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
    """Make an array for each input, all in one new pool.

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
    """Implement `Burst.function` for a burst of any kind."""
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
    """Check `recover`, and return whether calls wait until the driver is restarted.

    Raises:
        InvalidArgument: `recover` is not one of the allowed values.
    """
    if recover is True or recover == "wait":
        return True
    if recover == "raise":
        return False
    raise InvalidArgument(f"recover: {recover!r}, expected True, 'wait', 'raise' or False")
