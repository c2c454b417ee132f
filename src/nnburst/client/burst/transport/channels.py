"""The two channels of a burst as the client opens and closes them."""

from __future__ import annotations

from typing import Final

import msgspec

from nnburst.client.burst.transport.kicks import Kicks
from nnburst.client.execution.prepared import Prepared
from nnburst.client.session.upcalls import BurstCallback
from nnburst.control.messages.burst import FreeMemory, OpenBurst
from nnburst.control.messages.message import Message
from nnburst.control.messages.session import Nothing, Opened, Release
from nnburst.fmq.cores import allowed_cores
from nnburst.fmq.message_queue import MessageQueue
from nnburst.hal.enums import ExecutionPreference
from nnburst.serialize import REQUEST_DATUM, RESULT_DATUM
from nnburst.tracing.slices import Layer, Phase, trace

#: Seconds that a control call about the burst may take.
_TIMEOUT: Final = 30.0


class BurstChannels:
    """A request and a result queue that a driver serves (NNAPI: configureExecutionBurst).

    Attributes:
        requests: written by this process.
        results: read by this process.
        kicks: socket with a byte for each result that an event loop awaits.
        handle: the driver's number for the burst.
        may_spin: both sides can run at the same moment.
    """

    def __init__(
        self,
        prepared: Prepared,
        callback: BurstCallback,
        lengths: tuple[int, int],
        *,
        max_in_flight: int = 1,
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
    ) -> None:
        """Allocate the queues and have the driver open them.

        Args:
            prepared: an open one.
            callback: what the driver may call.
            lengths: elements of the request and of the result queue.
            max_in_flight: requests that may be under way at once.
            preference: LOW_POWER keeps the driver from spinning.

        Raises:
            NnburstError: the driver refuses.
        """
        # A released model and a closed device are refused before there is anything to give back.
        handle = prepared.handle
        self._connection = prepared.session.connection
        self._upcalls = prepared.session.upcalls
        self.requests = MessageQueue.create(REQUEST_DATUM, lengths[0])
        self.results = MessageQueue.create(RESULT_DATUM, lengths[1])
        self.kicks = Kicks()
        self._callback = self._upcalls.register(callback)
        try:
            opened = self._open(handle, max_in_flight, preference)
        except BaseException:
            self._release()
            raise
        self.kicks.release_their_fd()
        self.handle = opened.handle
        self.may_spin = bool(opened.fields.get("may_spin"))

    def _open(self, handle: int, max_in_flight: int, preference: ExecutionPreference) -> Opened:
        message = OpenBurst(
            handle=handle,
            callback=self._callback,
            request_channel=msgspec.Raw(msgspec.msgpack.encode(self.requests.descriptor)),
            result_channel=msgspec.Raw(msgspec.msgpack.encode(self.results.descriptor)),
            max_in_flight=max_in_flight,
            cpus=allowed_cores(),
            preference=preference,
        )
        fds = [self.requests.memories[0].fd, self.results.memories[0].fd, self.kicks.their_fd]
        with trace(Layer.IPC, Phase.COMPILATION, "configureExecutionBurst"):
            opened, _ = self._connection.call(message, Opened, fds, timeout=_TIMEOUT)
        return opened

    def call(self, message: Message) -> None:
        """Make a control call about the burst and wait for it."""
        self._connection.call(message, Nothing, timeout=_TIMEOUT)

    def free_memory(self, slot: int) -> None:
        """Have the driver forget a slot (NNAPI: IBurstContext::freeMemory)."""
        self.call(FreeMemory(self.handle, slot))

    def abandon(self) -> None:
        """Like `close`, without waiting for the driver."""
        self._connection.post(Release(self.handle))
        self._release()

    def close(self) -> None:
        """Release the driver's end and this one; fine with a dead driver."""
        try:
            self._connection.release(self.handle)
        finally:
            self._release()

    def _release(self) -> None:
        self._upcalls.release(self._callback)
        self.requests.close()
        self.results.close()
        self.kicks.close()
