"""Answers what drivers ask: getMemories, on one thread per device."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

from nnburst.client.memory import Memory
from nnburst.control.channel import Channel, Fds, ProtocolError
from nnburst.control.messages import GetMemories, Memories, Message, decode_upcall
from nnburst.control.service import Answer, Service, nothing
from nnburst.hal.errors import InvalidArgument

#: Pools behind slots, in order. Raises InvalidArgument for a slot that is not in use.
MemoryLookup = Callable[[Sequence[int]], Sequence[Memory]]


class UpcallServer:
    """Serves a driver's upcalls. Thread-safe; no lock is held while a lookup runs."""

    def __init__(self, channel: Channel) -> None:
        """Own `channel` from here on and start the thread."""
        self._channel = channel
        self._lookups: dict[int, MemoryLookup] = {}
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._serve, name="nnburst upcalls", daemon=True)
        self._thread.start()

    def register(self, lookup: MemoryLookup) -> int:
        """Let the driver ask `lookup`; the number goes into `ConfigureExecutionBurst.callback`."""
        number = next(self._numbers)
        self._lookups[number] = lookup
        return number

    def unregister(self, number: int) -> None:
        """The driver may not ask any more; unknown numbers are ignored."""
        self._lookups.pop(number, None)

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
            self._channel.shutdown()  # upcalls of this driver fail from now on, and it will say so

    def _answer(self, call: Message, _fds: Fds) -> Answer:
        return self._get_memories(call) if isinstance(call, GetMemories) else nothing()

    def _get_memories(self, call: GetMemories) -> Answer:
        lookup = self._lookups.get(call.callback)
        if lookup is None:
            raise InvalidArgument(f"getMemories: there is no burst {call.callback}")
        memories = lookup(call.slots)
        fds = Fds()
        for memory in memories:
            fds.add(memory.duplicate())
        return Memories(tuple(memory.size for memory in memories)), fds
