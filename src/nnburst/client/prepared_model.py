"""PreparedModel: executes over the socket and opens bursts."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable, Sequence

from nnburst.client.burst.burst import Burst
from nnburst.client.execution.aidl_burst import AidlBurst
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.fenced_execution import (
    FencedExecution,
    check_fences,
    execute_fenced,
)
from nnburst.client.execution.pending_execution import PendingExecution
from nnburst.client.execution.placed_request import PlacedRequest, execute_synchronously
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.remembered_requests import LARGEST, RememberedRequest, request_key
from nnburst.client.execution.reusable_execution import ReusableExecution
from nnburst.client.execution.socket_arguments import SocketArguments
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.memory.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    boottime_deadline_ns,
    check_timeout,
    time_left,
)
from nnburst.control.messages.prepared_model import Executed
from nnburst.control.messages.reusable_execution import CreateReusableExecution, ExecuteReusable
from nnburst.control.messages.session import Opened
from nnburst.hal.closing import Closing
from nnburst.hal.diagnostics import vlog
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.environment import SYNCEXEC_HAL
from nnburst.hal.errors import DeadObject, MissedDeadline, NnburstError
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.limits import BURST_CHANNEL_LENGTH, DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.tracing.slices import Layer, Phase, trace


@functools.cache
def executes_synchronously() -> bool:
    """Whether `PreparedModel.execute` is one call; read once from the environment.

    Raises:
        InvalidArgument: NNBURST_SYNCEXEC_HAL is neither 0 nor 1.
    """
    return SYNCEXEC_HAL.read()


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
        """What it was optimised for, as it was given to `Device.prepare`."""
        return self._prepared.preference

    @property
    def inputs(self) -> Sequence[Parameter]:
        """What each input must look like."""
        return self._prepared.inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """What each output must look like."""
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
        """Execute once over the socket (NNAPI: executeSynchronously).

        Arrays that lie in a pool of this device are used in place; others are copied through
        a private pool. Inputs must not change until this returns.

        Args:
            inputs: an array or a buffer (`Device.allocate_buffer`) for each input of the model; None if
                the operation allows to omit it.
            outputs: arrays or buffers to write to, or None for a new array each. If the model leaves
                an output's shape open, a given array is room for it, and the result is a view of its
                beginning.
            measure: whether to time it.
            timeout: seconds that it may take.
            attributes: of vendor extensions, for the device; unknown ones are ignored.

        Returns:
            Outputs (the given arrays and buffers, or new arrays), shapes and timing.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was sent.
            OutputInsufficientSize: a given array is too small; `output_shapes` has what is needed.
            GeneralFailure, ResourceExhausted: the driver's reason.
            MissedDeadline: it took too long.
            DeadObject: the driver has died.
            Closed: model or device are closed.
        """
        vlog.write("execution", "execute over the socket: model %d", self._prepared.handle)
        if not executes_synchronously():
            pending = self.execute_async(
                inputs, outputs, measure=measure, timeout=timeout, attributes=attributes
            )
            try:
                return pending.result(timeout)
            except BaseException:
                pending.cancel()
                raise
        with trace(Layer.RUNTIME, Phase.EXECUTION, "execute"):
            deadline = time.monotonic() + check_timeout(timeout)
            request = None if attributes else self._remembered(inputs, outputs, measure, deadline)
            if request is not None:
                return self._execute_again(request, inputs, outputs, deadline)
            return execute_synchronously(
                self._prepared,
                inputs,
                outputs,
                measure=measure,
                deadline=deadline,
                attributes=attributes,
            )

    def _remembered(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None,
        measure: bool,
        deadline: float,
    ) -> RememberedRequest | None:
        """The request that the driver has bound for such arrays; None if it has to be sent whole (ADR 25).

        When such arrays come for the second time, the driver is asked to bind it.
        """
        prepared = self._prepared
        prepared.handle  # noqa: B018 - a released model is refused
        key = request_key(inputs, outputs, measure)
        if key is None:
            return None
        prepared.session.check_open()  # a closed device counts before anything else
        request = prepared.remembered.take(key)
        if request is None and prepared.remembered.saw(key):
            request = _bind(SocketArguments(prepared, inputs, outputs), key, measure, deadline)
        return request

    def _execute_again(
        self,
        request: RememberedRequest,
        inputs: Sequence[object],
        outputs: Sequence[object] | None,
        deadline: float,
    ) -> ExecutionResult:
        """Execute what the driver has bound: contents are copied to its pool, and a handle is sent."""
        remembered = self._prepared.remembered
        given = [None] * len(self.outputs) if outputs is None else outputs
        try:
            request.staged.stage(inputs)
            left = time_left(deadline)
            message = ExecuteReusable(request.handle, boottime_deadline_ns(left))
            executed, _ = self._prepared.session.connection.call(message, Executed, timeout=left)
            result = request.result(executed, given)
        except BaseException:
            remembered.abandon(request)
            raise
        remembered.release(request)
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
        """Execute once while this program goes on (NNAPI: execute_1_3).

        Args:
            inputs: as for `execute`, and so are `outputs` and `measure`. Inputs in pools must not change
                until it is done; others are copied before this returns, and once more if the driver
                asks for larger outputs.
            outputs: arrays outside of pools, and buffers, have the results once `result()` of what this
                returns has returned.
            measure: whether to time it.
            timeout: seconds after which the driver is to give up.
            deadline_ns: the same as a moment on CLOCK_BOOTTIME, in nanoseconds; counts instead of `timeout`.
            loop_timeout_ns: nanoseconds after which a WHILE ends; the driver's limit is 15 s.
            attributes: of vendor extensions, for the device; unknown ones are ignored.
            callback: called once with what this returns, also if it fails; see `Pending.add_done_callback`.

        Returns:
            A pending execution, whose result is that of the execution; it can be awaited.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was sent.
            MissedDeadline: the driver does not take the call.
            DeadObject: the driver has died.
            Closed: model or device are closed.
        """
        seconds = check_timeout(timeout)
        if deadline_ns is None:
            deadline_ns = boottime_deadline_ns(seconds)
        pending = PendingExecution(
            self._prepared,
            SocketArguments(self._prepared, inputs, outputs),
            measure=measure,
            deadline_ns=deadline_ns,
            loop_timeout_ns=loop_timeout_ns,
            attributes=attributes,
        )
        if callback is not None:
            pending.add_done_callback(callback)
        pending._start()
        return pending

    def execute_fenced(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        wait_for: Sequence[SyncFence] = (),
        duration: float | None = None,
        timeout: float = 30.0,
        measure: bool = False,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> FencedExecution:
        """Launch an execution that begins when fences have signalled (NNAPI: executeFenced).

        Inputs that lie in a pool must be ready when the last fence signals, and may not change until the
        execution's own fence does; others are copied now.

        Args:
            inputs: as for `execute`.
            outputs: as for `execute`.
            wait_for: fences; empty to begin at once. They stay the caller's, who may close them.
            duration: seconds that it may take after the last fence; None for no limit.
            timeout: seconds that it may take from now on, waiting for fences included.
            measure: whether to time it.
            attributes: of vendor extensions, for the device; unknown ones are ignored.

        Returns:
            The execution, which the caller closes.

        Raises:
            InvalidArgument: an argument does not fit the model, an output has unknown dimensions, or a fence
                is in the error state already.
            MissedDeadline: the driver does not take the call.
            DeadObject: the driver has died.
            Closed: model, device or a fence are closed.
        """
        seconds, fences = check_timeout(timeout), check_fences(wait_for)
        arguments = SocketArguments(self._prepared, inputs, outputs)
        with trace(Layer.RUNTIME, Phase.EXECUTION, "execute fenced"):
            return execute_fenced(
                self._prepared, arguments, fences, duration, measure, seconds, attributes
            )

    def create_reusable_execution(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> ReusableExecution:
        """A request that the driver validates and binds once (NNAPI: createReusableExecution).

        Args:
            inputs: as for `execute`; those that lie in no pool are copied with each run.
            outputs: as for `execute`; their room is fixed.
            measure: whether to time every run.
            timeout: seconds that creating it may take.
            attributes: of vendor extensions, for every run; the device ignores unknown ones.

        Returns:
            The execution, which the caller closes.

        Raises:
            InvalidArgument: an argument does not fit the model.
            MissedDeadline: the driver does not answer.
            DeadObject: the driver has died.
            Closed: model or device are closed.
        """
        seconds = check_timeout(timeout)
        arguments = SocketArguments(self._prepared, inputs, outputs)
        return ReusableExecution(self._prepared, arguments, measure, seconds, attributes)

    def open_aidl_burst(self) -> AidlBurst:
        """Open a burst of AIDL, which the caller closes: over the socket, with deadlines and buffers.

        The descriptor of each pool is sent only once.

        Raises:
            DeadObject: the driver has died.
            Closed: model or device are closed.
        """
        return AidlBurst(self._prepared)

    def open_burst(
        self,
        *,
        max_in_flight: int = 1,
        channel_length: int = BURST_CHANNEL_LENGTH,
        result_channel_length: int | None = None,
        spin_window: float | None = None,
        driver_spins: bool = True,
    ) -> Burst:
        """Open a burst, which the caller closes: executions over shared memory, a microsecond each.

        Args:
            max_in_flight: requests that may be under way at once (`BoundRequest.submit`), 1 to 1,024.
            channel_length: elements of the request ring; a request needs 2 + inputs + outputs + pools +
                given dimensions. One that does not fit goes over the socket.
            result_channel_length: elements of the result ring; as many unless given.
            spin_window: seconds to spin for a result before sleeping, less than 60; 0 never spins. By
                default what the model was prepared for decides: LOW_POWER never spins.
            driver_spins: whether the driver may spin for the next request, too; False if it would take a core
                from another driver.

        Raises:
            InvalidArgument: a number is out of range.
            DeadObject: the driver has died.
            Closed: model or device are closed.
            NnburstError: the driver refuses, for example since the client has too many bursts.
        """
        return Burst._open(
            self._prepared,
            max_in_flight=max_in_flight,
            channel_length=channel_length,
            result_channel_length=result_channel_length,
            spin_window=spin_window,
            driver_spins=driver_spins,
        )

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._prepared.closed

    @property
    def is_alive(self) -> bool:
        """Whether the driver is there and this object is open."""
        return not self._prepared.closed and self._prepared.session.is_alive

    @property
    def _ended_ns(self) -> int:
        """When the driver's end was noticed, on CLOCK_MONOTONIC; 0 before."""
        return self._prepared.session.ended_ns

    def close(self) -> None:
        """Release the model; its bursts and the executions under way go on.

        Twice is fine, and so is a dead driver.
        """
        with trace(Layer.RUNTIME, Phase.TERMINATION, "close a model"):
            self._prepared.close()

    def __repr__(self) -> str:
        state = "released" if self.closed else "open"
        return (
            f"<nnburst.PreparedModel on {self._prepared.session.name}: {len(self.inputs)} inputs,"
            f" {len(self.outputs)} outputs, {state}>"
        )


def _bind(
    arguments: SocketArguments, key: Hashable, measure: bool, deadline: float
) -> RememberedRequest | None:
    """Have the driver bind a request; None if that cannot be, or is not worth it.

    Raises:
        DeadObject: the driver has died.
        MissedDeadline: it did not answer in time.
    """
    remembered = arguments.prepared.remembered
    if arguments.lay_out() > LARGEST or not remembered.make_room():
        return None
    placed = PlacedRequest(arguments)
    staged = placed.staged()
    handle = None if staged is None else _bound(placed, measure, deadline)
    if staged is not None and handle is not None:
        request = RememberedRequest(key, handle, staged, measure, placed.private)
        if remembered.add(request):
            return request
    placed.private.release()
    return None


def _bound(placed: PlacedRequest, measure: bool, deadline: float) -> int | None:
    """The driver's number for a request; None if it refuses it: sent whole, it is refused with the reason."""
    model = placed.arguments.prepared.handle
    message = CreateReusableExecution(model, placed.request, measure)
    try:
        opened, _ = placed.call(message, Opened, max(deadline - time.monotonic(), 0.0))
    except (DeadObject, MissedDeadline):
        raise
    except NnburstError:
        return None
    return opened.handle
