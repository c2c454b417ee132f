"""Prepared: what executions and bursts need of a model that a driver has prepared."""

from __future__ import annotations

import contextlib
import threading
import weakref

from nnburst.client.execution.remembered_requests import RememberedRequests
from nnburst.client.memory.arguments import parameters
from nnburst.client.memory.staging import StagingPools
from nnburst.client.session.handshake import Session
from nnburst.control.connection import Connection
from nnburst.control.messages.session import Release
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.errors import Closed
from nnburst.hal.model import Model


class Prepared:
    """The driver's handle of a prepared model, and what a client remembers of it. Thread-safe.

    Attributes:
        session: of the driver.
        model: as it was given.
        preference: as it was given.
        inputs: what each input must look like.
        outputs: what each output must look like.
        staging: private pools for arrays that lie in no pool.
        remembered: requests that the driver keeps bound.
    """

    def __init__(
        self,
        session: Session,
        handle: int,
        model: Model,
        preference: ExecutionPreference,
    ) -> None:
        """Own `handle` from here on.

        Args:
            session: of the driver that prepared it.
            handle: the driver's number for it.
            model: what was prepared.
            preference: as given to `Device.prepare`.
        """
        self.session = session
        self.model = model
        self.preference = preference
        self.inputs, self.outputs = parameters(model, session.supported_extensions)
        self.staging = StagingPools(session.allocate)
        self._handle = handle
        self._closed = False
        self._lock = threading.Lock()
        self._pending = 0
        self._connection = session.connection
        self.remembered = RememberedRequests(self._connection)
        self._finalizer = weakref.finalize(
            self, _abandon, self._connection, handle, self.staging, self.remembered
        )

    @property
    def handle(self) -> int:
        """The driver's number for it.

        Raises:
            Closed: it was released.
        """
        if self._closed:
            raise Closed("the prepared model is released")
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def hold(self) -> int:
        """The driver's number for it, which stays valid until `release`.

        Raises:
            Closed: it was released.
        """
        with self._lock:
            handle = self.handle
            self._pending += 1
        return handle

    def release(self) -> None:
        """An execution under way has ended; after `close` the last one releases the model."""
        with self._lock:
            self._pending -= 1
            last = self._closed and not self._pending
        if last:
            self._connection.post(Release(self._handle))

    def close(self) -> None:
        """Release it; executions under way go on. Twice is fine, and so is a dead driver."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            busy = self._pending > 0
        self._finalizer.detach()
        self.remembered.close()
        self.staging.close()
        if busy:
            return  # the last one releases it
        with contextlib.suppress(Closed):  # the device is closed, and with it all that it had
            self.session.connection.release(self._handle)


def _abandon(
    connection: Connection, handle: int, staging: StagingPools, remembered: RememberedRequests
) -> None:
    """Release what was never closed: the driver gets the word with the next call."""
    remembered.close()
    staging.close()
    connection.release_later(handle)
