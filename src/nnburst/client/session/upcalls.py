"""Answers drivers' questions and takes their notifications, on one thread per device."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nnburst.client.memory.memory import Memory
from nnburst.control.channel import Channel, Fds, ProtocolError
from nnburst.control.limits import MAX_FDS
from nnburst.control.messages.burst import BurstClosed, GetMemories, Memories
from nnburst.control.messages.device import NotifyPrepared
from nnburst.control.messages.message import Message
from nnburst.control.messages.prepared_model import NotifyExecuted
from nnburst.control.protocol import decode_upcall
from nnburst.control.service import Answer, Service, nothing
from nnburst.hal.errors import InvalidArgument


class BurstCallback(NamedTuple):
    """What a driver may call about one burst (NNAPI: IBurstCallback).

    Attributes:
        get_memories: pools behind slots, in order; raises InvalidArgument for one not in use.
        closed: the driver has ended the burst, for this reason.
    """

    get_memories: Callable[[Sequence[int]], Sequence[Memory]]
    closed: Callable[[str], None]


class UpcallServer:
    """Serves a driver's upcalls. Thread-safe; no lock is held while a callback runs."""

    def __init__(
        self,
        channel: Channel,
        notified: Callable[[NotifyPrepared | NotifyExecuted], None],
        ended: Callable[[], None],
    ) -> None:
        """Own `channel` from here on and start the thread.

        Args:
            channel: connected.
            notified: is given the notifications of asynchronous calls; must not block.
            ended: the driver does not call any more; runs on this thread, last.
        """
        self._channel = channel
        self._notified = notified
        self._ended = ended
        self._callbacks: dict[int, BurstCallback] = {}
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._serve, name="nnburst upcalls", daemon=True)
        self._thread.start()

    def register(self, callback: BurstCallback) -> int:
        """Let the driver call back; the number goes into `OpenBurst.callback`."""
        number = next(self._numbers)
        self._callbacks[number] = callback
        return number

    def unregister(self, number: int) -> None:
        """The driver may not ask any more; unknown numbers are ignored."""
        self._callbacks.pop(number, None)

    def abandon_in_child(self) -> None:
        """Leave the upcalls to the parent of this forked process."""
        self._channel.abandon_in_child()

    def close(self) -> None:
        """End the thread."""
        self._channel.shutdown()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._channel.close()

    def _serve(self) -> None:
        try:
            Service[Message](self._channel, decode_upcall, self._answer).serve()
        except ProtocolError:
            self._channel.shutdown()
        finally:
            self._ended()  # who waits for a notification would wait for ever

    def _answer(self, call: Message, _fds: Fds) -> Answer:
        if isinstance(call, GetMemories):
            return self._get_memories(call)
        if isinstance(call, NotifyPrepared | NotifyExecuted):
            self._notified(call)
        elif isinstance(call, BurstClosed) and (callback := self._callbacks.get(call.callback)):
            callback.closed(call.reason)
        return nothing()

    def _get_memories(self, call: GetMemories) -> Answer:
        if len(call.slots) > MAX_FDS:
            raise InvalidArgument(f"getMemories: {len(call.slots)} slots, at most {MAX_FDS}")
        callback = self._callbacks.get(call.callback)
        if callback is None:
            raise InvalidArgument(f"getMemories: burst {call.callback} does not exist")
        memories = callback.get_memories(call.slots)
        return Memories(tuple(memory.size for memory in memories)), Fds.duplicates(memories)
