"""PreparedModel: executes over the socket and opens bursts."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nnburst.client.execution.execution import SocketExecution
from nnburst.client.execution.pending_execution import PendingExecution
from nnburst.client.memory.arguments import (
    Array,
    ExecutionResult,
    boottime_deadline_ns,
    check_count,
    check_timeout,
    parameters,
)
from nnburst.client.memory.staging import StagingPools
from nnburst.control.connection import Connection
from nnburst.control.messages import Release
from nnburst.hal.closing import Closing
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.environment import SYNCEXEC_HAL
from nnburst.hal.errors import Closed
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model

if TYPE_CHECKING:
    from nnburst.client.burst.burst import Burst
    from nnburst.client.device import Device
    from nnburst.client.execution.aidl_burst import AidlBurst
    from nnburst.client.execution.fenced_execution import FencedExecution
    from nnburst.client.execution.reusable_execution import ReusableExecution
    from nnburst.client.execution.sync_fence import SyncFence
    from nnburst.client.memory.buffer import Buffer


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
        device: where it was prepared.
        model: as given to `Device.prepare`.
        preference: as given to `Device.prepare`.
        num_threads: threads that an execution uses, as the driver says.
        inputs: what each input must look like.
        outputs: what each output must look like.
        staging: private pools for arrays that lie in none of the device's.
        from_cache: whether the driver took it from a compilation cache instead of compiling it.
    """

    from_cache = False

    def __init__(
        self,
        device: Device,
        handle: int,
        model: Model,
        preference: ExecutionPreference,
        num_threads: int = 1,
    ) -> None:
        """Own `handle` from here on."""
        self.num_threads = num_threads
        self.device = device
        self.model = model
        self.preference = preference
        self.inputs, self.outputs = parameters(model, device.supported_extensions)
        self._handle = handle
        self._closed = False
        self._lock = threading.Lock()
        self._pending = 0
        self.staging = StagingPools(device.allocate)
        self._connection = device.connection
        self._finalizer = weakref.finalize(self, _abandon, self._connection, handle, self.staging)

    @property
    def handle(self) -> int:
        """The driver's number for it.

        Raises:
            Closed: it was released.
        """
        if self._closed:
            raise Closed("the prepared model is released")
        return self._handle

    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
    ) -> ExecutionResult:
        """Execute once over the socket (NNAPI: executeSynchronously).

        Arrays that lie in a pool of this device are used where they are; others are copied through
        a private pool. Inputs must not change until this returns.

        Args:
            inputs: an array or a buffer (`Device.allocate_buffer`) for each input of the model; None where
                the operation allows to omit it.
            outputs: arrays or buffers to write to, or None for a new array each. Where the model does not say
                an output's whole shape, a given array is a buffer, and the result is a view of it.
            measure: whether to time it.
            timeout: seconds.

        Returns:
            Outputs (the given arrays and buffers, or new arrays), shapes and timing.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was sent.
            OutputInsufficientSize: a given buffer is too small; `output_shapes` says what is needed.
            MissedDeadline: it took too long.
            DeadObject: the driver has died.
            Closed: model or device are closed.
        """
        if not executes_synchronously():
            pending = self.execute_async(inputs, outputs, measure=measure, timeout=timeout)
            try:
                return pending.result(timeout)
            except BaseException:
                pending.cancel()
                raise
        deadline = time.monotonic() + check_timeout(timeout)
        handle = self.handle
        execution = self.arguments(inputs, outputs)
        return execution.run(
            lambda private: execution.synchronously(
                handle, private, measure=measure, deadline=deadline
            )
        )

    def execute_async(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
        callback: Callable[[PendingExecution], object] | None = None,
    ) -> PendingExecution:
        """Execute once while this program goes on (NNAPI: execute_1_3).

        Args:
            inputs: as for `execute`, and so are `outputs` and `measure`. Inputs in pools must not change
                until it is done; others are copied before this returns, and once more where the driver
                asks for larger outputs.
            outputs: arrays outside of pools, and buffers, have the results once `result()` of what this
                returns has returned.
            measure: whether to time it.
            timeout: seconds after which the driver is to give up.
            deadline_ns: the same as a moment on CLOCK_BOOTTIME; counts instead of `timeout`.
            loop_timeout_ns: after which a WHILE ends; the driver's limit is 15 s.
            callback: called once with what this returns, whatever comes; see `Pending.add_done_callback`.

        Returns:
            What becomes the result; can be awaited.

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
            self,
            self.arguments(inputs, outputs),
            measure=measure,
            deadline_ns=deadline_ns,
            loop_timeout_ns=loop_timeout_ns,
        )
        if callback is not None:
            pending.add_done_callback(callback)
        pending.launch()
        return pending

    def arguments(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None,
    ) -> SocketExecution:
        """The arguments of one execution, checked."""
        self.device.connection  # noqa: B018 - a closed device is told before anything else
        check_count("inputs", inputs, self.inputs)
        given: Sequence[Array | Buffer | None] = (
            [None] * len(self.outputs) if outputs is None else outputs
        )
        check_count("outputs", given, self.outputs)
        return SocketExecution(self, inputs, given)

    def execute_fenced(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        wait_for: Sequence[SyncFence] = (),
        duration: float | None = None,
        timeout: float = 30.0,
        measure: bool = False,
    ) -> FencedExecution:
        """Launch an execution that begins when fences have signalled (NNAPI: executeFenced).

        Inputs that lie in a pool must be ready when the last fence signals, and may not change until the
        execution's own fence does; others are copied now.

        Args:
            inputs: as for `execute`.
            outputs: as for `execute`.
            wait_for: fences; none to begin at once. They stay the caller's, who may close them.
            duration: seconds that it may take from the last fence on.
            timeout: seconds that it may take from now on, its fences included.
            measure: whether to time it.

        Raises:
            InvalidArgument: an argument does not fit the model, an output has unknown dimensions, or a fence
                is in the error state already.
            DeadObject: the driver has died.
            Closed: model, device or a fence are closed.
        """
        from nnburst.client.execution.fenced_execution import check_fences, execute_fenced

        seconds, fences = check_timeout(timeout), check_fences(wait_for)
        execution = self.arguments(inputs, outputs)
        return execute_fenced(self, execution, fences, duration, measure, seconds)

    def create_reusable_execution(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
    ) -> ReusableExecution:
        """A request that the driver validates and binds once (NNAPI: createReusableExecution).

        Args:
            inputs: as for `execute`; those that lie in no pool are copied with each run.
            outputs: as for `execute`; their room is fixed.
            measure: whether to time every run.
            timeout: seconds that its creation may take.

        Raises:
            InvalidArgument: an argument does not fit the model.
            DeadObject: the driver has died.
            Closed: model or device are closed.
        """
        from nnburst.client.execution.reusable_execution import ReusableExecution

        seconds = check_timeout(timeout)
        return ReusableExecution(self, self.arguments(inputs, outputs), measure, seconds)

    def open_aidl_burst(self) -> AidlBurst:
        """Open a burst of AIDL: over the socket, with deadlines and buffers; memory is sent once.

        Raises:
            DeadObject: the driver has died.
            Closed: model or device are closed.
        """
        from nnburst.client.execution.aidl_burst import AidlBurst

        return AidlBurst(self)

    def open_burst(self, *, max_in_flight: int = 1, **options: Any) -> Burst:  # noqa: ANN401
        """Open a burst: executions over shared memory, a microsecond each.

        Args:
            max_in_flight: requests that may be under way at once.
            options: see `nnburst.client.burst.burst.Burst.open`.
        """
        from nnburst.client.burst.burst import Burst

        return Burst.open(self, max_in_flight=max_in_flight, **options)

    def hold(self) -> int:
        """The driver's number for it, which stays valid until `let_go`.

        Raises:
            Closed: it was released.
        """
        with self._lock:
            handle = self.handle
            self._pending += 1
        return handle

    def let_go(self) -> None:
        """An execution under way has ended; after `close` the last one releases the model."""
        with self._lock:
            self._pending -= 1
            last = self._closed and not self._pending
        if last:
            self._connection.post(Release(self._handle))

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def is_alive(self) -> bool:
        """Whether the driver is there and this object is open."""
        return not self._closed and self.device.is_alive

    def close(self) -> None:
        """Release the model; its bursts and the executions under way go on.

        Twice is fine, and so is a dead driver.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            busy = self._pending > 0
        self._finalizer.detach()
        self.staging.close()
        if busy:
            return  # the last one says so
        with contextlib.suppress(Closed):  # the device is closed, and with it all that it had
            self.device.connection.release(self._handle)

    def __repr__(self) -> str:
        state = "released" if self._closed else "open"
        return (
            f"<nnburst.PreparedModel on {self.device.name}: {len(self.inputs)} inputs,"
            f" {len(self.outputs)} outputs, {state}>"
        )


def _abandon(connection: Connection, handle: int, staging: StagingPools) -> None:
    """What happens to a prepared model that nobody closed: the driver hears of it with the next call."""
    staging.close()
    connection.release_later(handle)
