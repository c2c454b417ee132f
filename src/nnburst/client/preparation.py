"""Preparation: a model that a driver is preparing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from nnburst.client.execution.prepared import Prepared
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.handshake import Session
from nnburst.client.session.pending import Pending
from nnburst.client.session.upcalls import Notification
from nnburst.control.messages.device import NotifyPrepared
from nnburst.control.messages.message import Message
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.hal.model import Model


class Preparation(Pending[PreparedModel]):
    """A model that is being prepared. Thread-safe; made by `Device.prepare_async`.

    `result()` is the prepared model, which the caller owns. One that is never fetched is released with this
    object, and one that comes after `cancel` at once.
    """

    def __init__(
        self,
        session: Session,
        model: Model,
        preference: ExecutionPreference,
        *,
        from_cache: bool = False,
    ) -> None:
        super().__init__("the preparation", session.callback_thread)
        self._session = session
        self._connection = session.connection
        self._callbacks = session.callbacks
        self._model = model
        self._preference = preference
        self._from_cache = from_cache

    def _wait(self, timeout: float) -> PreparedModel:
        """`result(timeout)`, or nothing: what comes later than that is released.

        Raises:
            NnburstError: as `result` does.
        """
        try:
            return self.result(timeout)
        except BaseException:
            self.cancel()
            raise

    def _start(self, message: Callable[[int], Message], fds: Sequence[int], timeout: float) -> None:
        """Send the call that prepares it.

        Args:
            message: makes the call from the number of its callback.
            fds: borrowed descriptors that go with it.
            timeout: seconds until it must have left.

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
        # Its finalizer runs if a result is never asked for; the garbage collector must not wait.
        unclaimed = weakref.finalize(self, self._connection.release_later, handle)
        unclaimed.atexit = False

        def claim(this: Preparation) -> PreparedModel:
            threads = message.fields.get("num_threads", 1)
            prepared = Prepared(this._session, handle, this._model, this._preference)
            unclaimed.detach()
            return PreparedModel(prepared, threads, from_cache=this._from_cache)

        if not self._complete(claim):
            unclaimed.detach()
            self._callbacks.release_unwanted(message)
