"""One `PreparedModel.execute`: by a request that the driver has bound, or the ordinary way (ADR 25)."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.execution import SocketExecution
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.remembered_requests import LARGEST, RememberedRequest, request_key
from nnburst.client.memory.arguments import Array, ExecutionResult, check_timeout
from nnburst.client.memory.memory import Memory
from nnburst.control.channel import Fds
from nnburst.control.messages.reusable_execution import CreateReusableExecution
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
            execution = SocketExecution(prepared, inputs, outputs)
            request = _bind(prepared, key, execution, measure, deadline)
        if request is not None:
            given = [None] * len(prepared.outputs) if outputs is None else outputs
            return _execute_again(prepared, request, inputs, given, deadline)
    execution = SocketExecution(prepared, inputs, outputs)
    return execution.run(
        lambda private: execution.synchronously(handle, private, measure=measure, deadline=deadline)
    )


def _execute_again(
    prepared: Prepared,
    request: RememberedRequest,
    inputs: Sequence[object],
    outputs: Sequence[object],
    deadline: float,
) -> ExecutionResult:
    remembered = prepared.remembered
    try:
        result = request.execute(prepared.session.connection, inputs, outputs, deadline)
    except BaseException:
        remembered.abandon(request)
        raise
    remembered.release(request)
    return result


def _bind(
    prepared: Prepared, key: Hashable, execution: SocketExecution, measure: bool, deadline: float
) -> RememberedRequest | None:
    """Have the driver bind a request; None if that cannot be, or is not worth it.

    Raises:
        DeadObject: the driver has died.
        MissedDeadline: it did not answer in time.
    """
    size = execution.lay_out()
    if size > LARGEST or not prepared.remembered.make_room():
        return None
    private = prepared.staging.take(size) if size else None
    staged = execution.staged(private)
    handle = None if staged is None else _bound(prepared, execution, private, measure, deadline)
    if staged is not None and handle is not None:
        request = RememberedRequest(key, handle, private, staged, measure)
        if prepared.remembered.add(request):
            return request
    if private is not None:
        prepared.staging.release(private)
    return None


def _bound(
    prepared: Prepared,
    execution: SocketExecution,
    private: Memory | None,
    measure: bool,
    deadline: float,
) -> int | None:
    """The driver's number for a request; None if it refuses it: the ordinary way finds the reason."""
    request, memories = execution.describe(private)
    message = CreateReusableExecution(prepared.handle, request, measure)
    left = max(deadline - time.monotonic(), 0.0)
    with Fds() as fds:
        for memory in memories:
            fds.add(memory.duplicate())
        try:
            connection = prepared.session.connection
            opened, _ = connection.call(message, Opened, list(fds), timeout=left)
        except (DeadObject, MissedDeadline):
            raise
        except NnburstError:
            return None
    return opened.handle
