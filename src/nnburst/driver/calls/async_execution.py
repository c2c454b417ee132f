"""IPreparedModel::execute: what its caller waits for, and what comes after."""

from __future__ import annotations

import contextlib
import time

from nnburst.control.channel import Fds
from nnburst.control.messages.prepared_model import Execute, NotifyExecuted
from nnburst.driver.calls.async_call import naming
from nnburst.driver.model.bound_execution import execute_bound
from nnburst.driver.model.pools import Pool, adopt_request_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.validation.values import validate_duration


class AsyncExecution:
    """A request that is bound and waits for its turn.

    Attributes:
        priority: its model's.
    """

    def __init__(self, session: ClientSession, call: Execute, fds: Fds) -> None:
        """Check a request and bind it to its memory.

        Args:
            session: whose call it is.
            call: hostile until checked here.
            fds: the request's pools.

        Raises:
            InvalidArgument: E2: the request is not valid for the model; E3: its deadline or loop timeout
                cannot be; E6: it uses a buffer for what that was not allocated for.
            GeneralFailure: E5: a pool cannot be mapped.
            NnburstError: the executor's reason not to bind it.
        """
        self._called = time.perf_counter_ns()
        self._call = call
        with contextlib.ExitStack() as cleanup:
            with naming("E2"):
                model = cleanup.enter_context(session.objects.acquire(call.handle, PreparedModel))
                pools = adopt_request_pools(call.request.pools, fds, session.buffers)
                cleanup.callback(close_pools, pools)
                self._counted = cleanup.enter_context(
                    model.target.counters.execution(measure=call.measure)
                )
            with naming("E3"):
                validate_duration("deadline", call.deadline_ns)
                validate_duration("loop timeout", call.loop_timeout_ns)
            with naming("E2"):
                self._execution = model.target.bind(call.request, pools)
            cleanup.callback(self._execution.close)
            # What is mapped stays so; many executions may wait, and descriptors are few.
            close_pools([pool for pool in pools if isinstance(pool, Pool)])
            self.priority = model.target.priority
            self._cleanup = cleanup.pop_all()

    def run(self) -> NotifyExecuted:
        """Execute; the notification of success.

        Raises:
            NnburstError: with the status that the client shall see (device:E4, E7 to E9).
        """
        call = self._call
        with self._cleanup:
            executed = execute_bound(
                self._execution,
                self._counted,
                self._called if call.measure else None,
                call.deadline_ns,
                call.loop_timeout_ns,
            )
        return NotifyExecuted(
            call.callback,
            ErrorStatus.NONE,
            output_shapes=executed.output_shapes,
            timing=executed.timing,
        )

    def cancel(self) -> None:
        """It will not run."""
        self._cleanup.close()
