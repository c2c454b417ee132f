"""PendingExecution: an execution over the socket that is not waited for yet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from nnburst.client.execution.placed_request import PlacedRequest
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.socket_arguments import SocketArguments
from nnburst.client.memory.arguments import ExecutionResult, seconds_until
from nnburst.client.session.pending import Pending
from nnburst.client.session.upcalls import Notification
from nnburst.control.channel import Fds
from nnburst.control.messages.message import Message
from nnburst.control.messages.prepared_model import Execute, Executed, NotifyExecuted
from nnburst.hal.errors import GeneralFailure, NnburstError, OutputInsufficientSize
from nnburst.hal.extensions.attributes import ExtensionAttribute

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
        arguments: SocketArguments,
        *,
        measure: bool,
        deadline_ns: int,
        loop_timeout_ns: int,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> None:
        self._hints = prepared.session.hints(attributes)
        session = prepared.session
        super().__init__("the execution", session.callback_thread)
        self._callbacks = session.callbacks
        self._arguments = arguments
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
        placed: PlacedRequest | None = None
        try:
            placed = PlacedRequest(self._arguments)
            self._send(placed)
        except NnburstError as error:
            self._fail(error, placed)
            raise
        except BaseException as error:
            self._fail(GeneralFailure(f"the execution could not be sent: {error!r}"), placed)
            raise

    def _send(self, placed: PlacedRequest) -> None:
        placed.stage()

        def execute(number: int) -> Message:
            return Execute(
                self._handle,
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
        """Seconds; the driver would refuse a call that leaves after its deadline."""
        return min(max(seconds_until(self._deadline_ns), 0.0), _START_TIMEOUT)

    def _notified(self, placed: PlacedRequest, outcome: Notification | NnburstError) -> None:
        if self._grows(outcome):
            placed.private.release()
            # Inputs are copied once more, which is nothing for the thread of the upcalls.
            try:
                threading.Thread(target=self._again, name="nnburst execute again").start()
            except RuntimeError as error:
                what = f"cannot start the thread that offers more room: {error}"
                self._fail(GeneralFailure(what), placed)
        elif isinstance(outcome, NotifyExecuted):
            executed = Executed(outcome.output_shapes, outcome.timing)
            self._release_model()
            if not self._complete(lambda _: _claim(placed, executed)):
                placed.private.release()
        elif isinstance(outcome, NnburstError):
            self._fail(outcome, placed)
        else:
            what = "the driver answered an execution with the notification of a preparation"
            self._fail(GeneralFailure(what), placed)

    def _grows(self, outcome: Notification | NnburstError) -> bool:
        """Whether there is now more room if the driver asked for it."""
        return (
            isinstance(outcome, OutputInsufficientSize)
            and not self.done()
            and self._arguments.grow(outcome.output_shapes)
        )

    def _again(self) -> None:
        with contextlib.suppress(BaseException):  # whatever it is, it is the outcome
            self._start()

    def _fail(self, error: NnburstError, placed: PlacedRequest | None) -> None:
        self._release_model()
        if placed is None:
            self._arguments.fail()
        else:
            placed.fail(error)
        self._complete(error)

    def _release_model(self) -> None:
        """The driver does not use the model any more for this; the second time does nothing."""
        with self._ending:
            prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.release()


def _claim(placed: PlacedRequest, executed: Executed) -> ExecutionResult:
    try:
        return placed.result(executed)
    except BaseException:
        placed.arguments.fail()
        raise
    finally:
        placed.private.release()
