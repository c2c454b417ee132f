"""One `PreparedModel.execute`: by a request that the driver has bound, or the ordinary way (ADR 25)."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.placed_request import PlacedRequest, run_placed
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.remembered_requests import LARGEST, RememberedRequest, request_key
from nnburst.client.execution.socket_arguments import SocketArguments
from nnburst.client.memory.arguments import (
    Array,
    ExecutionResult,
    boottime_deadline_ns,
    check_timeout,
    time_left,
)
from nnburst.control.messages.prepared_model import Executed, ExecuteSynchronously
from nnburst.control.messages.reusable_execution import CreateReusableExecution, ExecuteReusable
from nnburst.control.messages.session import Opened
from nnburst.hal.errors import DeadObject, MissedDeadline, NnburstError


def execute_synchronously(
    prepared: Prepared,
    inputs: Sequence[Array | Buffer | None],
    outputs: Sequence[Array | Buffer | None] | None,
    *,
    measure: bool,
    timeout: float,
) -> ExecutionResult:
    """Execute once over the socket; see `PreparedModel.execute`."""
    deadline = time.monotonic() + check_timeout(timeout)
    handle = prepared.handle
    key = request_key(inputs, outputs, measure)
    if key is not None:
        prepared.session.check_open()  # a closed device counts before anything else
        request = prepared.remembered.take(key)
        if request is None and prepared.remembered.saw(key):
            arguments = SocketArguments(prepared, inputs, outputs)
            request = _bind(prepared, key, arguments, measure, deadline)
        if request is not None:
            given = [None] * len(prepared.outputs) if outputs is None else outputs
            return _execute_again(prepared, request, inputs, given, deadline)
    arguments = SocketArguments(prepared, inputs, outputs)

    def synchronously(placed: PlacedRequest) -> ExecutionResult:
        placed.stage()
        left = time_left(deadline)
        message = ExecuteSynchronously(handle, placed.request, measure, boottime_deadline_ns(left))
        executed, _ = placed.call(message, Executed, left)
        return placed.result(executed)

    return run_placed(arguments, synchronously)


def _execute_again(
    prepared: Prepared,
    request: RememberedRequest,
    inputs: Sequence[object],
    outputs: Sequence[object],
    deadline: float,
) -> ExecutionResult:
    remembered = prepared.remembered
    try:
        request.staged.stage(inputs)
        left = time_left(deadline)
        message = ExecuteReusable(request.handle, boottime_deadline_ns(left))
        executed, _ = prepared.session.connection.call(message, Executed, timeout=left)
        result = request.result(executed, outputs)
    except BaseException:
        remembered.abandon(request)
        raise
    remembered.release(request)
    return result


def _bind(
    prepared: Prepared, key: Hashable, arguments: SocketArguments, measure: bool, deadline: float
) -> RememberedRequest | None:
    """Have the driver bind a request; None if that cannot be, or is not worth it.

    Raises:
        DeadObject: the driver has died.
        MissedDeadline: it did not answer in time.
    """
    if arguments.lay_out() > LARGEST or not prepared.remembered.make_room():
        return None
    placed = PlacedRequest(arguments)
    staged = placed.staged()
    handle = None if staged is None else _bound(prepared.handle, placed, measure, deadline)
    if staged is not None and handle is not None:
        request = RememberedRequest(key, handle, staged, measure, placed.private)
        if prepared.remembered.add(request):
            return request
    placed.private.release()
    return None


def _bound(model: int, placed: PlacedRequest, measure: bool, deadline: float) -> int | None:
    """The driver's number for a request; None if it refuses it: the ordinary way finds the reason."""
    message = CreateReusableExecution(model, placed.request, measure)
    try:
        opened, _ = placed.call(message, Opened, max(deadline - time.monotonic(), 0.0))
    except (DeadObject, MissedDeadline):
        raise
    except NnburstError:
        return None
    return opened.handle
