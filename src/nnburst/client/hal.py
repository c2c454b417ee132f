"""Ways to execute of NNAPI's HAL, for code that is ported from it; public in `nnburst.hal`.

    from nnburst import hal

    fenced = hal.execute_fenced(prepared, [x], wait_for=[fence])

They go over the socket. New programs need none of them: `PreparedModel.execute` and bursts are faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.client.arguments import Array, time_left
from nnburst.client.execution import fenced_execution
from nnburst.client.execution.aidl_burst import AidlBurst
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.fenced_execution import FencedExecution, check_fences
from nnburst.client.execution.reusable_execution import ReusableExecution
from nnburst.client.execution.socket_request import SocketArguments
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.tracing.slices import Layer, Phase, trace


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
    """A request that the driver validates and binds once (NNAPI: createReusableExecution).

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
