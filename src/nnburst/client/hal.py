"""Executes with fences, reusable executions and AIDL's burst, for ported HAL code; public in `nnburst.hal`.

    from nnburst import hal

    fenced = hal.execute_fenced(prepared, [x], wait_for=[fence])
    with hal.create_reusable_execution(prepared, [x], [y]) as execution:
        execution.run()

These ways go over the socket. New programs need none of them: `PreparedModel.execute` and bursts are faster.
NNAPI: IPreparedModel and IExecution of AIDL v4, ANeuralNetworksExecution_setReusable.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    boottime_deadline_ns,
    check_timeout,
    time_left,
)
from nnburst.client.execution import fenced_execution
from nnburst.client.execution.aidl_burst import AidlBurst, in_microseconds, with_timing
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.fenced_execution import (
    FencedExecution,
    check_fences,
    duration_in_ns,
)
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.socket_request import SocketArguments, SocketRequest
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.control.channel import Fds
from nnburst.control.connection import RemoteObject
from nnburst.control.fences import FenceStatus
from nnburst.control.messages import (
    CreateReusableExecution,
    Executed,
    ExecuteReusable,
    ExecuteReusableFenced,
    Fenced,
    Opened,
)
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    NnburstError,
)
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.utils import Closing
from nnburst.tracing.slices import Layer, Phase, trace

T = TypeVar("T")
_BUSY: Final = "the execution is under way: one run at a time"


class ReusableExecution(Closing):
    """A request that the driver has bound; made by `nnburst.hal.create_reusable_execution`.

    Arrays in pools are used in place; with each run the others are copied to private memory, and results are
    copied from it. One run at a time: a second one gets BurstBusy. A context manager that closes itself.
    """

    def __init__(
        self,
        prepared: Prepared,
        arguments: SocketArguments,
        measure: bool,
        timeout: float,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> None:
        """Have the driver bind the request.

        Raises:
            NnburstError: the driver refuses it.
        """
        hints = prepared.session.hints(attributes)
        self._session = prepared.session
        self._under_way = Gate(_BUSY)
        self._fenced: tuple[SyncFence, weakref.ref[FencedExecution]] | None = None
        self._placed = SocketRequest(arguments)
        self._placed.private.keep()
        self._staged = self._placed.staged()
        self._inputs, self._outputs = arguments.arrays
        self._connection = prepared.session.connection
        self._remote = RemoteObject(self._connection)
        user = object()
        try:
            # The model stays valid in the driver meanwhile, even if another thread closes it.
            message = CreateReusableExecution(
                prepared.hold(user), self._placed.request, measure, hints=hints
            )
            self._placed.call(message, Opened, timeout, remote=self._remote)
        finally:
            prepared.release(user)

    def run(self, timeout: float = 30.0) -> ExecutionResult:
        """Execute once and wait for the result.

        Args:
            timeout: seconds that the run may take; the driver gets the same deadline.

        Returns:
            Outputs, shapes and timing, also in nanoseconds as `timing_ns`.

        Raises:
            BurstBusy: a run is under way.
            OutputInsufficientSize: an output does not fit; its room is fixed.
            MissedDeadline: it took too long. The driver refuses the next run until it is done with this one.
            NnburstError: the driver reports it.
            DeadObject: the driver has died.
            Closed: this is closed.
        """
        seconds = check_timeout(timeout)

        def execute() -> ExecutionResult:
            if self._staged is not None:
                self._staged.stage(self._inputs)
            else:
                self._placed.stage()
            message = ExecuteReusable(self._remote.number, boottime_deadline_ns(seconds))
            try:
                executed, _ = self._connection.call(message, Executed, timeout=seconds)
            except NnburstError as error:
                self._placed.fail(error)
                raise
            if self._staged is None:
                return in_microseconds(self._placed, executed)
            shapes = self._staged.shapes(executed)
            return with_timing(self._staged.outputs(self._outputs, shapes), shapes, executed.timing)

        return self._alone(execute)

    def run_fenced(
        self,
        *,
        wait_for: Sequence[SyncFence] = (),
        duration: float | None = None,
        timeout: float = 30.0,
    ) -> FencedExecution:
        """Launch a run that begins when fences have signalled; see `nnburst.hal.execute_fenced`.

        The next run is refused until this one's fence has signalled. Inputs that lie in no pool are copied
        now.

        Args:
            wait_for: fences; empty to begin at once. They stay the caller's, who may close them.
            duration: seconds that it may take after the last fence; None for no limit.
            timeout: seconds that it may take from now on, waiting for fences included.

        Returns:
            The execution, which the caller closes.

        Raises:
            BurstBusy: a run is under way.
            InvalidArgument: an output has unknown dimensions, or a fence is in the error state.
            MissedDeadline, DeadObject, Closed: as for `run`.
        """
        seconds, fences = check_timeout(timeout), check_fences(wait_for)
        duration_ns = duration_in_ns(duration)

        def execute_fenced() -> FencedExecution:
            self._placed.stage()
            message = ExecuteReusableFenced(
                self._remote.number, len(fences), boottime_deadline_ns(seconds), duration_ns
            )
            with Fds.duplicates(fences) as fds:
                remote = RemoteObject(self._connection)
                answer = self._connection.call(
                    message, Fenced, list(fds), timeout=seconds, remote=remote
                )
            fenced = FencedExecution(self._session, self._placed, answer, remote)
            self._fenced = SyncFence(fenced.fence.duplicate()), weakref.ref(fenced)
            return fenced

        return self._alone(execute_fenced)

    def _alone(self, work: Callable[[], T]) -> T:
        if not self._remote.is_open:
            raise Closed("the reusable execution is closed")
        self._session.check_open()  # a forked child has not mapped the memory
        me = next(entries)
        try:
            self._under_way.enter(me)
            self._finish_fenced()
            return work()
        finally:
            leave(self._under_way.struct, me)

    def _finish_fenced(self) -> None:
        """If the last run was fenced, take its result before its memory is used again."""
        if self._fenced is None:
            return
        fence, reference = self._fenced
        if self._connection.is_alive and fence.status == FenceStatus.ACTIVE:
            raise BurstBusy(_BUSY)
        fence.close()
        self._fenced, fenced = None, reference()
        if fenced is not None:
            with contextlib.suppress(NnburstError):  # the program gets it from `fenced`
                fenced.result()

    def close(self) -> None:
        """Release the request in the driver; a run under way finishes. Twice is fine, as is a dead driver."""
        self._remote.release()

    def __repr__(self) -> str:
        state = "open" if self._remote.is_open else "closed"
        return f"<nnburst.hal.ReusableExecution: {state}>"


def execute_fenced(
    model: PreparedModel,
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
        model: that is executed.
        inputs: as for `PreparedModel.execute`.
        outputs: as for `PreparedModel.execute`.
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
    prepared, deadline = model._reached(timeout)
    fences = check_fences(wait_for)
    arguments = SocketArguments(prepared, inputs, outputs)
    with trace(Layer.RUNTIME, Phase.EXECUTION, "execute fenced"):
        return fenced_execution.execute_fenced(
            prepared, arguments, fences, duration, measure, time_left(deadline), attributes
        )


def create_reusable_execution(
    model: PreparedModel,
    inputs: Sequence[Array | Buffer | None],
    outputs: Sequence[Array | Buffer | None] | None = None,
    *,
    measure: bool = False,
    timeout: float = 30.0,
    attributes: Sequence[ExtensionAttribute] = (),
) -> ReusableExecution:
    """Create a request that the driver validates and binds once (NNAPI: createReusableExecution).

    Args:
        model: that is executed.
        inputs: as for `PreparedModel.execute`; those that lie in no pool are copied with each run.
        outputs: as for `PreparedModel.execute`; their room is fixed.
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
    prepared, deadline = model._reached(timeout)
    arguments = SocketArguments(prepared, inputs, outputs)
    return ReusableExecution(prepared, arguments, measure, time_left(deadline), attributes)


def open_aidl_burst(model: PreparedModel) -> AidlBurst:
    """Open a burst of AIDL, which the caller closes: over the socket, with deadlines and buffers.

    The descriptor of each pool is sent only once.

    Raises:
        DeadObject: the driver has died.
        Closed: model or device are closed.
    """
    return AidlBurst(model._prepared)
