"""PendingExecution: an execution over the socket that is not waited for yet."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final

from nnburst.client.execution.execution import SocketExecution
from nnburst.client.execution.prepared import Prepared
from nnburst.client.memory.arguments import ExecutionResult
from nnburst.client.memory.memory import Memory
from nnburst.client.session.callbacks import Interrupted, Notification
from nnburst.client.session.pending import Pending
from nnburst.control.channel import Fds
from nnburst.control.messages.message import Message
from nnburst.control.messages.prepared_model import Execute, Executed, NotifyExecuted
from nnburst.hal.errors import GeneralFailure, NnburstError, OutputInsufficientSize

#: Seconds that a driver gets to take a call whose outcome comes later.
_START_TIMEOUT: Final = 30.0


class PendingExecution(Pending[ExecutionResult]):
    """An execution under way. Thread-safe; made by `PreparedModel.execute_async`.

    Arrays that lie in no pool have their results once `result()` has returned. All memory of the request
    stays until the driver has notified of it, also if it is cancelled before.
    """

    def __init__(
        self,
        prepared: Prepared,
        execution: SocketExecution,
        *,
        measure: bool,
        deadline_ns: int,
        loop_timeout_ns: int,
    ) -> None:
        """Send nothing yet."""
        session = prepared.session
        super().__init__("the execution", session.callback_thread)
        self._callbacks = session.callbacks
        self._staging = prepared.staging
        self._execution = execution
        self._private: Memory | None = None
        self._handle = prepared.hold()
        self._ending = threading.Lock()
        self._prepared: Prepared | None = prepared
        self._measure = measure
        self._deadline_ns = deadline_ns
        self._loop_timeout_ns = loop_timeout_ns

    def _start(self) -> None:
        """Copy inputs that lie in no pool, and send the request.

        Raises:
            NnburstError: it could not be sent.
        """
        try:
            size = self._execution.lay_out()
            self._private = self._staging.take(size) if size else None
            request, memories = self._execution.describe(self._private)
            self._execution.stage(self._private)

            def execute(number: int) -> Message:
                return Execute(
                    self._handle,
                    request,
                    self._measure,
                    callback=number,
                    deadline_ns=self._deadline_ns,
                    loop_timeout_ns=self._loop_timeout_ns,
                )

            with Fds() as fds:
                for memory in memories:
                    fds.add(memory.duplicate())
                self._callbacks.call(execute, list(fds), self._notified, self._start_timeout())
        except NnburstError as error:
            self._fail(error)
            raise
        except BaseException as error:
            self._fail(GeneralFailure(f"it could not be sent: {error!r}"))
            raise

    def _start_timeout(self) -> float:
        """Seconds; the driver would refuse a call that leaves after its deadline."""
        left = (self._deadline_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) * 1e-9
        return min(max(left, 0.0), _START_TIMEOUT)

    def _notified(self, outcome: Notification | NnburstError) -> None:
        if self._grows(outcome):
            self._release_pool()
            # Inputs are copied once more, which is nothing for the thread of the upcalls.
            try:
                threading.Thread(target=self._again, name="nnburst execute again").start()
            except RuntimeError as error:
                self._fail(
                    GeneralFailure(f"cannot start the thread that offers more room: {error}")
                )
        elif isinstance(outcome, NotifyExecuted):
            message = outcome
            self._release_model()
            if not self._complete(lambda this: PendingExecution._claim(this, message)):
                self._release_pool()
        elif isinstance(outcome, NnburstError):
            self._fail(outcome)
        else:
            self._fail(
                GeneralFailure(
                    "the driver answered an execution with the notification of a preparation"
                )
            )

    def _grows(self, outcome: Notification | NnburstError) -> bool:
        """Whether there is now more room if the driver asked for it."""
        return (
            isinstance(outcome, OutputInsufficientSize)
            and not self.done()
            and self._execution.grow(outcome.output_shapes)
        )

    def _again(self) -> None:
        with contextlib.suppress(BaseException):  # whatever it is, it is the outcome
            self._start()

    def _claim(self, message: NotifyExecuted) -> ExecutionResult:
        executed = Executed(message.output_shapes, message.timing)
        try:
            return self._execution.result(executed, self._private)
        except BaseException:
            self._execution.fail()
            raise
        finally:
            self._release_pool()

    def _fail(self, error: NnburstError) -> None:
        self._release_model()
        self._execution.fail()
        if isinstance(error, Interrupted):
            self._private = None  # the driver may be writing to it, so it is not used again
        self._release_pool()
        self._complete(error)

    def _release_model(self) -> None:
        """The driver does not use the model any more for this; the second time does nothing."""
        with self._ending:
            prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.release()

    def _release_pool(self) -> None:
        """The driver does not use the private pool any more; the second time does nothing."""
        with self._ending:
            private, self._private = self._private, None
        if private is not None:
            self._staging.release(private)
