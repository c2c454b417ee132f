"""Executes prepared models over the socket, opens bursts on them, and waits for their preparation."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypedDict

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    boottime_deadline_ns,
    check_timeout,
    seconds_until,
    time_left,
)
from nnburst.client.burst.burst import RingBurst
from nnburst.client.burst.interface import Burst, Recover, State, check_recover
from nnburst.client.burst.recovering import RecoveringBurst
from nnburst.client.burst.resident import ResidentBurst, refuse_states
from nnburst.client.burst.states import StatefulBurst
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.socket_request import (
    SocketArguments,
    SocketRequest,
    execute_again,
    execute_synchronously,
)
from nnburst.client.session.handshake import Session
from nnburst.client.session.own_bursts import OwnBursts, PriorityNote, ThreadBursts
from nnburst.client.session.pending import Pending
from nnburst.client.session.recovery import Recovery, nothing_to_clean
from nnburst.client.session.upcalls import Notification
from nnburst.control.channel import Fds
from nnburst.control.messages import (
    Execute,
    Executed,
    Message,
    NotifyExecuted,
    NotifyPrepared,
)
from nnburst.hal import vlog
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.environment import SYNCEXEC_HAL
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    GeneralFailure,
    InvalidArgument,
    NnburstError,
    OutputInsufficientSize,
)
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.limits import BURST_CHANNEL_LENGTH, DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.utils import Closing
from nnburst.hal.whole_graph import has_slots
from nnburst.tracing.slices import Layer, Phase, trace

#: Seconds that a driver has to accept a call whose outcome comes later.
_START_TIMEOUT: Final = 30.0


class PendingExecution(Pending[ExecutionResult]):
    """An execution under way. Thread-safe; made by `PreparedModel.execute_async`.

    Arrays that lie in no pool get their results when `result()` returns. The request's memory is kept until
    the driver has reported the outcome, even after `cancel`.
    """

    def __init__(
        self,
        prepared: Prepared,
        arguments: SocketArguments,
        *,
        measure: bool,
        deadline_ns: int,
        loop_timeout_ns: int,
        attributes: Sequence[ExtensionAttribute] = (),
        within: object = None,
    ) -> None:
        self._hints = prepared.session.hints(attributes)
        session = prepared.session
        super().__init__("the execution", session.callback_thread)
        self._callbacks = session.callbacks
        self._arguments = arguments
        self._user = object()
        self._within = within  # a burst that holds the model
        self._prepared = prepared
        self._handle: int | None = None  # the first attempt gets it, which counts for repetitions
        self._measure = measure
        self._deadline_ns = deadline_ns
        self._loop_timeout_ns = loop_timeout_ns

    def _start(self) -> None:
        """Copy inputs that lie in no pool, and send the request.

        Raises:
            NnburstError: it could not be sent.
        """
        placed: SocketRequest | None = None
        try:
            if self._handle is None:
                self._handle = self._prepared.hold(self._user, self._within)
            placed = SocketRequest(self._arguments)
            self._send(placed, self._handle)
        except NnburstError as error:
            self._fail(error, placed)
            raise
        except BaseException as error:
            self._fail(GeneralFailure(f"the execution could not be sent: {error!r}"), placed)
            raise

    def _send(self, placed: SocketRequest, handle: int) -> None:
        placed.stage()

        def execute(number: int) -> Message:
            return Execute(
                handle,
                placed.request,
                self._measure,
                callback=number,
                deadline_ns=self._deadline_ns,
                loop_timeout_ns=self._loop_timeout_ns,
                hints=self._hints,
            )

        with Fds.duplicates(placed.memories) as fds:
            notified = partial(self._notified, placed)
            self._callbacks.call(execute, list(fds), notified, self._start_timeout())

    def _start_timeout(self) -> float:
        """Seconds until the call must be sent: the driver refuses calls after their deadline."""
        return min(max(seconds_until(self._deadline_ns), 0.0), _START_TIMEOUT)

    def _notified(self, placed: SocketRequest, outcome: Notification | NnburstError) -> None:
        if self._grows(outcome):
            placed.private.release()
            # On a thread of its own, since it copies the inputs again, which would block the upcall thread.
            try:
                threading.Thread(target=self._again, name="nnburst execute again").start()
            except RuntimeError as error:
                what = f"cannot start the thread that offers more room: {error}"
                self._fail(GeneralFailure(what), placed)
        elif isinstance(outcome, NotifyExecuted):
            executed = Executed(outcome.output_shapes, outcome.timing)
            self._prepared.release(self._user)
            if not self._complete(lambda _: _claim(placed, executed)):
                placed.private.release()
        elif isinstance(outcome, NnburstError):
            self._fail(outcome, placed)
        else:
            what = "the driver answered an execution with the notification of a preparation"
            self._fail(GeneralFailure(what), placed)

    def _grows(self, outcome: Notification | NnburstError) -> bool:
        """Offer more room if the driver asked for it; returns whether to execute again."""
        return (
            isinstance(outcome, OutputInsufficientSize)
            and not self.done()
            and self._arguments.grow(outcome.output_shapes)
        )

    def _again(self) -> None:
        with contextlib.suppress(BaseException):  # `_start` has stored it as the outcome
            self._start()

    def _fail(self, error: NnburstError, placed: SocketRequest | None) -> None:
        self._prepared.release(self._user)
        if placed is None:
            self._arguments.fail()
        else:
            placed.fail(error)
        self._complete(error)


def _claim(placed: SocketRequest, executed: Executed) -> ExecutionResult:
    try:
        return placed.result(executed)
    except BaseException:
        placed.arguments.fail()
        raise
    finally:
        placed.private.release()


# -- prepared model --------------------------------------------------------------------------------


@functools.cache
def executes_synchronously() -> bool:
    """Whether `PreparedModel.execute` makes one synchronous call; read once from the environment.

    Raises:
        InvalidArgument: NNBURST_SYNCEXEC_HAL is neither 0 nor 1.
    """
    return SYNCEXEC_HAL.read()


def _open_own_burst(
    reference: weakref.ref[PreparedModel], keep: Callable[[RingBurst], None]
) -> None:
    """Open a burst for a thread that executes a model, unless the model is gone or closed.

    Raises:
        NnburstError: the driver refuses, or the session allows no more bursts.
    """
    model = reference()
    if model is None or model.closed:
        return
    prepared, users = model._prepared, model._own_bursts

    def open_burst() -> RingBurst:
        burst = RingBurst._open(prepared)
        users.release_at_end_of(prepared.session.connection)
        keep(burst)
        if not prepared.session.is_alive:
            users.release()
        return burst

    prepared.session.own_bursts.open(open_burst, users)


def without_own_bursts(model: PreparedModel) -> PreparedModel:
    """Make a model's `execute` always use the socket; returns the model."""
    model._own_bursts.close()
    return model


def session_bursts(model: PreparedModel) -> OwnBursts:
    """The bursts that the models of a model's session may open by themselves."""
    return model._prepared.session.own_bursts


def open_burst_of_plan(model: PreparedModel, *, driver_spins: bool) -> RecoveringBurst:
    """Open a burst that raises while its driver is made again, and whose last input is the slot, if any.

    Raises:
        NnburstError: as for `PreparedModel.open_burst`.
    """
    burst = model._open_ring({"driver_spins": driver_spins}, "raise")
    assert isinstance(burst, RecoveringBurst)  # any other one refuses "raise"
    return burst


class _RingOptions(TypedDict, total=False):
    """The options of `RingBurst._open`."""

    max_in_flight: int
    channel_length: int
    result_channel_length: int | None
    spin_window: float | None
    driver_spins: bool
    holds_model: bool


def _execute_model_of(
    burst: RingBurst | RecoveringBurst, inputs: Sequence[Array], timeout: float
) -> None:
    """Execute the model of a burst that holds it over the socket, even if the model was closed."""
    deadline = time.monotonic() + check_timeout(timeout)
    if isinstance(burst, RecoveringBurst):
        burst = burst.ring if burst.closed else burst._reached(int(deadline * 1e9))
    core = burst._core
    pending = PendingExecution(
        core.prepared,
        SocketArguments(core.prepared, inputs, None),
        measure=False,
        deadline_ns=boottime_deadline_ns(time_left(deadline)),
        loop_timeout_ns=DEFAULT_LOOP_TIMEOUT_NS,
        within=core.user,
    )
    pending._start()
    pending.result(time_left(deadline))


class PreparedModel(Closing):
    """A model that a driver has prepared. Thread-safe. A context manager that closes itself.

    Attributes:
        num_threads: threads that an execution uses, as the driver reports.
        from_cache: whether the driver took it from a compilation cache instead of compiling it.
    """

    _instead = "pickle the model and prepare it in the other process"

    def __init__(
        self, prepared: Prepared, num_threads: int = 1, *, from_cache: bool = False
    ) -> None:
        """Own `prepared` from here on."""
        self.num_threads = num_threads
        self.from_cache = from_cache
        self._prepared = prepared
        self._has_slots = has_slots(prepared.model)
        self._closed = False
        self._waits = True
        self._recovery: Recovery | None = None
        self._make: Callable[[], PreparedModel] | None = None
        self._own_bursts: Final[ThreadBursts[RingBurst]] = ThreadBursts(
            partial(_open_own_burst, weakref.ref(self))
        )
        self._thread: Final = self._own_bursts.local

    def _recover_by(
        self, recovery: Recovery, make: Callable[[], PreparedModel], *, waits: bool
    ) -> None:
        """Prepare the model again by `make` for each later driver; `waits`: whether calls wait for that."""
        self._make = make
        self._waits = waits
        self._recovery = recovery
        recovery.add(self)

    def _renew(self) -> Callable[[], None]:
        """Prepare the model again; see `Mortal`."""
        make = self._make
        if make is not None:  # else `close` was called meanwhile
            new = self._prepared = make()._prepared
            if self._closed:
                new.close()
        return nothing_to_clean  # objects that still use the old model raise DeadObject

    def _reached(self, timeout: float) -> tuple[Prepared, float]:
        """Wait for a live driver; returns the driver's model, and the call's deadline on `time.monotonic`.

        Raises:
            NnburstError: the model is not prepared again in time; see `Recovery.reach`.
        """
        seconds = check_timeout(timeout)
        deadline = time.monotonic() + seconds
        if self._recovery is not None and not self.is_alive and not self._closed:
            self._recovery.reach(self, int(deadline * 1e9), waits=self._waits)
        return self._prepared, deadline

    def _revive(self, seconds: float | None, began_ns: int | None = None) -> None:
        """Wait until the model is prepared again if its driver has died.

        Args:
            seconds: longest wait of this call; None for no limit.
            began_ns: time on CLOCK_MONOTONIC: if the driver died after it, do not wait; None always waits.

        Raises:
            MissedDeadline: the model is still being prepared.
            DeadObject: the model could not be prepared, or its driver died after `began_ns`.
            Closed: the model is closed.
        """
        if self._recovery is not None and not self.is_alive:
            self._recovery.revive(self, seconds, began_ns, self._prepared.session.ended_ns)

    @property
    def recoveries(self) -> int:
        """Number of times that its driver was restarted or connected to again; 0 without `recover=`."""
        return 0 if self._recovery is None else self._recovery.count

    @property
    def model(self) -> Model:
        """The model as it was given to `Device.prepare`."""
        return self._prepared.model

    @property
    def pid(self) -> int:
        """Number of the process that executes it."""
        return self._prepared.session.pid

    @property
    def preference(self) -> ExecutionPreference:
        """The goal of its optimisation, as given to `Device.prepare`."""
        return self._prepared.preference

    @property
    def inputs(self) -> Sequence[Parameter]:
        """Type and shape of each input."""
        return self._prepared.inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """Type and shape of each output."""
        return self._prepared.outputs

    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> ExecutionResult:
        """Execute once (NNAPI: executeSynchronously).

        A thread's first call goes over the socket. With the second call, the client opens a burst for the
        thread; later calls use it and cost about as much as `Burst.execute`. A burst that is not used for
        some seconds is closed. No bursts are opened after `Device.prepare(..., bursts=False)`, or while a
        device has models of several priorities. Requests with buffers or attributes always go over the
        socket.

        Arrays that lie in a pool of this device are used in place; others are copied through
        a private pool. Inputs must not change until this returns.

        Args:
            inputs: an array or a buffer (`Device.allocate_buffer`) for each input of the model; None if
                the operation allows to omit it.
            outputs: arrays or buffers to write to, or None for a new array for each. If the model leaves an
                output's shape open, a given array is room for it, and the result is a view of its beginning.
            measure: whether to time the execution.
            timeout: seconds that the execution may take.
            attributes: of vendor extensions, for the device; unknown ones are ignored.

        Returns:
            Outputs (the given arrays and buffers, or new arrays), shapes and timing.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was sent.
            OutputInsufficientSize: a given array is too small; `output_shapes` has the needed shapes.
            GeneralFailure, ResourceExhausted: the driver reports this error.
            MissedDeadline: it took too long.
            DeadObject: the driver has died.
            Closed: the model or the device is closed.
        """
        mine = self._thread.mine
        burst = mine.burst
        if burst is not None and not attributes:
            mine.is_used = True
            try:
                return burst.execute(inputs, outputs, measure=measure, timeout=timeout)
            except BurstBusy:
                pass  # a signal handler calls in the middle of another call: use the socket
            except GeneralFailure:
                mine.burst = None  # the driver may have ended the burst; open another one
                mine.calls = 0
                raise
        return self._execute_over_socket(inputs, outputs, measure, timeout, attributes)

    def _execute_over_socket(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None,
        measure: bool,
        timeout: float,
        attributes: Sequence[ExtensionAttribute],
    ) -> ExecutionResult:
        vlog.write("execution", "execute over the socket: model %d", self._prepared.handle)
        prepared, deadline = self._reached(timeout)
        if not executes_synchronously():
            pending = self.execute_async(
                inputs,
                outputs,
                measure=measure,
                timeout=time_left(deadline),
                attributes=attributes,
            )
            try:
                return pending.result(time_left(deadline))
            except BaseException:
                pending.cancel()
                raise
        with trace(Layer.RUNTIME, Phase.EXECUTION, "execute"):
            mine = self._thread.mine
            result = None
            if not attributes and not self._own_bursts.is_opening(mine):
                result = execute_again(prepared, inputs, outputs, measure, deadline)
            if result is None:
                result = execute_synchronously(
                    prepared,
                    inputs,
                    outputs,
                    measure=measure,
                    deadline=deadline,
                    attributes=attributes,
                )
            mine.calls += 1
            return result

    def execute_async(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
        attributes: Sequence[ExtensionAttribute] = (),
        callback: Callable[[PendingExecution], object] | None = None,
    ) -> PendingExecution:
        """Start an execution without waiting for its result (NNAPI: execute_1_3).

        Args:
            inputs: as for `execute`, and so are `outputs` and `measure`. Inputs in pools must not change
                until it is done; others are copied before this returns, and once more if the driver
                asks for larger outputs.
            outputs: arrays outside of pools, and buffers, have their results when `result()` of the returned
                object has returned.
            measure: whether to time the execution.
            timeout: seconds after which the driver is to give up.
            deadline_ns: the same as a time on CLOCK_BOOTTIME, in nanoseconds; replaces `timeout`.
            loop_timeout_ns: nanoseconds after which a WHILE ends; the driver's limit is 15 s.
            attributes: of vendor extensions, for the device; unknown ones are ignored.
            callback: called once with the returned object, also after a failure; see
                `Pending.add_done_callback`.

        Returns:
            A pending execution, whose result is that of the execution; it can be awaited.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was sent.
            MissedDeadline: the driver does not take the call.
            DeadObject: the driver has died.
            Closed: model or device are closed.
        """
        prepared, deadline = self._reached(timeout)
        if deadline_ns is None:
            deadline_ns = boottime_deadline_ns(time_left(deadline))
        pending = PendingExecution(
            prepared,
            SocketArguments(prepared, inputs, outputs),
            measure=measure,
            deadline_ns=deadline_ns,
            loop_timeout_ns=loop_timeout_ns,
            attributes=attributes,
        )
        if callback is not None:
            pending.add_done_callback(callback)
        pending._start()
        return pending

    def open_burst(
        self,
        *,
        max_in_flight: int = 1,
        channel_length: int = BURST_CHANNEL_LENGTH,
        result_channel_length: int | None = None,
        spin_window: float | None = None,
        driver_spins: bool = True,
        states: Sequence[State] = (),
        recover: Recover | None = None,
    ) -> Burst:
        """Open a burst, which the caller closes: executions over shared memory, a microsecond each.

        Args:
            max_in_flight: requests that may be under way at once (`BoundRequest.submit`), 1 to 1,024.
            channel_length: elements of the request ring; a request needs 2 + inputs + outputs + pools +
                given dimensions. One that does not fit goes over the socket.
            result_channel_length: elements of the result ring; unless given, `channel_length`, or as many as
                the shapes need if the model leaves some of its outputs open.
            spin_window: seconds to spin for a result before sleeping, less than 60; 0 never spins. The
                default depends on the model's preference: LOW_POWER never spins.
            driver_spins: whether the driver may spin for the next request, too; False if it would take a core
                from another driver.
            states: pairs of an output and the input that it becomes in the next run, like
                `ImportedModel.states`. Each state has two places in pools of the client, used in turn without
                a copy; states outlive the driver. They are not among the burst's inputs and outputs.
            recover: "wait" or "raise" for this burst, of a device that was opened with `recover=`
                (see `nnburst.launch`); False for a burst that ends with its driver. Unless given, the burst
                behaves as the device.

        Raises:
            InvalidArgument: a number is out of range, a state is not an input and output of the model, or is
                listed twice, or `recover` is given for a device without `recover=`.
            DeadObject: the driver has died.
            Closed: the model or the device is closed.
            NnburstError: the driver refuses, for example because the client has too many bursts.
        """
        if self._has_slots:
            refuse_states(states)
        options: _RingOptions = {
            "max_in_flight": max_in_flight,
            "channel_length": channel_length,
            "result_channel_length": result_channel_length,
            "spin_window": spin_window,
            "driver_spins": driver_spins,
        }
        burst = self._open_ring(options, recover)
        if self._has_slots:
            return ResidentBurst.over(burst, partial(_execute_model_of, burst))
        return StatefulBurst.over(burst, states)

    def _open_ring(
        self, options: _RingOptions, recover: Recover | None
    ) -> RingBurst | RecoveringBurst:
        """Open a burst whose last input is the slot if the model has slots."""
        options["holds_model"] = self._has_slots
        recovery, prepare_again = self._recovery, self._make
        if recover is not None and recover is not False:
            waits = check_recover(recover)
            if recovery is None:
                raise InvalidArgument(
                    f"recover: {recover!r}, but the device was opened without it:"
                    " nnburst.launch(..., recover=True), or connect"
                )
        elif recovery is not None:
            waits = self._waits
        if recovery is None or recover is False:
            return RingBurst._open(self._prepared, **options)
        if prepare_again is None:
            raise Closed("the prepared model is released")
        return RecoveringBurst(
            recovery,
            self._reached_burst(options),
            partial(self._open_again, prepare_again, options),
            waits,
        )

    def _open_again(self, prepare: Callable[[], PreparedModel], options: _RingOptions) -> RingBurst:
        """Open a burst of a `RecoveringBurst` after a recovery; `prepare` is what `_recover_by` was given."""
        if not self._closed:
            with contextlib.suppress(Closed):  # `close` was called meanwhile
                return RingBurst._open(self._prepared, **options)
        with prepare() as own:  # only for this burst, which goes on without it
            return RingBurst._open(own._prepared, **options)

    def _reached_burst(self, options: _RingOptions) -> RingBurst:
        """Open the first burst of a `RecoveringBurst`; waits for a live driver."""
        prepared, _ = self._reached(_START_TIMEOUT)
        return RingBurst._open(prepared, **options)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def is_alive(self) -> bool:
        """Whether the driver is alive and this object is open."""
        prepared = self._prepared
        return not prepared.closed and prepared.session.is_alive

    @property
    def _ended_ns(self) -> int:
        """The time at which the driver's end was noticed, on CLOCK_MONOTONIC; 0 before."""
        return self._prepared.session.ended_ns

    def close(self) -> None:
        """Release the model; its bursts and the executions under way go on.

        A burst that goes on after a driver's death has the next driver prepare the model for this burst
        alone. Twice is fine, and so is a dead driver.
        """
        self._closed = True
        self._make = None  # with the pools that it has
        self._own_bursts.close()
        with trace(Layer.RUNTIME, Phase.TERMINATION, "close a model"):
            self._prepared.close()

    def __repr__(self) -> str:
        state = "released" if self.closed else "open"
        return (
            f"<nnburst.PreparedModel on {self._prepared.session.name}: {len(self.inputs)} inputs,"
            f" {len(self.outputs)} outputs, {state}>"
        )


# -- preparation -----------------------------------------------------------------------------------


class Preparation(Pending[PreparedModel]):
    """A model that is being prepared. Thread-safe; made by `Device.prepare_async`.

    `result()` returns the prepared model, which the caller owns. A model that is never fetched is released
    with this object; a model that comes after `cancel` is released at once.
    """

    def __init__(
        self,
        session: Session,
        model: Model,
        preference: ExecutionPreference,
        note: PriorityNote | None = None,
        *,
        from_cache: bool = False,
    ) -> None:
        super().__init__("the preparation", session.callback_thread)
        self._session = session
        self._connection = session.connection
        self._callbacks = session.callbacks
        self._model = model
        self._preference = preference
        self._note = note
        self._from_cache = from_cache

    def _wait(self, timeout: float) -> PreparedModel:
        """Return `result(timeout)`, and cancel the preparation if that raises.

        Raises:
            NnburstError: as from `result`.
        """
        try:
            return self.result(timeout)
        except BaseException:
            self.cancel()
            raise

    def _start(self, message: Callable[[int], Message], fds: Sequence[int], timeout: float) -> None:
        """Send the call that prepares the model.

        Args:
            message: makes the call from the number of its callback.
            fds: borrowed descriptors that are sent with it.
            timeout: seconds until it must be sent.

        Raises:
            NnburstError: it could not be sent.
        """
        self._callbacks.call(message, fds, self._notified, timeout)

    def _notified(self, outcome: Notification | NnburstError) -> None:
        if isinstance(outcome, NnburstError):
            self._complete(outcome)
            return
        if not isinstance(outcome, NotifyPrepared) or outcome.handle is None:
            self._complete(
                GeneralFailure("the driver notified of a prepared model without a handle")
            )
            return
        message = outcome
        handle: int = outcome.handle
        # If the result is never fetched, this finalizer releases the model, without waiting.
        unclaimed = weakref.finalize(self, self._connection.release_later, handle)
        unclaimed.atexit = False

        def claim(this: Preparation) -> PreparedModel:
            threads = message.fields.get("num_threads", 1)
            prepared = Prepared(this._session, handle, this._model, this._preference, this._note)
            unclaimed.detach()
            return PreparedModel(prepared, threads, from_cache=this._from_cache)

        if not self._complete(claim):
            unclaimed.detach()
            self._callbacks.release_unwanted(message)
