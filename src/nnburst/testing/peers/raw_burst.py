"""A burst without a client's care: sends any packet, returns what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst._native import lib
from nnburst.client.burst.slots import SlotTable
from nnburst.client.burst.transport.channels import BurstChannels
from nnburst.client.memory.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.upcalls import BurstCallback
from nnburst.fmq.event_flag import EventFlagBits
from nnburst.hal.closing import Closing
from nnburst.hal.errors import GeneralFailure, MissedDeadline
from nnburst.hal.limits import BURST_CHANNEL_LENGTH
from nnburst.serialize import DATUM_BYTES

Packet = npt.NDArray[Any]

#: Looks at the ring before sleeping: most answers come within microseconds.
_POLLS: Final = 2000
#: Seconds between two looks whether the driver lives.
_GLANCE: Final = 0.1


class RawBurst(Closing):
    """An open burst whose packets are the caller's business. One thread at a time."""

    def __init__(
        self,
        prepared_model: PreparedModel,
        lengths: tuple[int, int] = (BURST_CHANNEL_LENGTH, BURST_CHANNEL_LENGTH),
        max_in_flight: int = 1,
        memories: Callable[[Sequence[int]], Sequence[Memory]] | None = None,
    ) -> None:
        """Open it.

        Args:
            prepared_model: an open one.
            lengths: of the request and the result ring.
            max_in_flight: what is sent to the driver.
            memories: answers getMemories instead of what `slot_of` has given out.
        """
        self._session = prepared_model._prepared.session
        self._slots = SlotTable()
        self.ended = ""
        self.channels = BurstChannels(
            prepared_model._prepared,
            BurstCallback(memories or self._slots.memories, self._failed),
            lengths,
            max_in_flight=max_in_flight,
        )
        self._memories: list[Memory] = []

    def _failed(self, reason: str) -> None:
        self.ended = reason

    def slot_of(self, memory: Memory) -> int:
        """The slot that the driver may ask about for `memory`, which is kept alive."""
        self._memories.append(memory)
        return self._slots.slot_of(memory)[0]

    def send(self, packet: Packet | bytes) -> None:
        """Put a packet into the request ring as it is and wake the driver."""
        data = packet if isinstance(packet, bytes) else packet.tobytes()
        elements = np.frombuffer(data, self.channels.requests.dtype)
        if not self.channels.requests.write(elements):
            raise GeneralFailure(f"a packet of {len(elements)} elements does not fit the ring")
        flag = self.channels.requests.event_flag
        if flag is not None:
            lib.nnb_event_flag_notify(flag.word, int(EventFlagBits.NOT_EMPTY))

    def receive(self, timeout: float = 5.0) -> bytes:
        """Everything in the result ring, as soon as there is something.

        Raises:
            MissedDeadline: nothing came.
            DeadObject: nothing will: the driver has died.
        """
        results = self.channels.results
        for _ in range(_POLLS):
            if lib.nnb_ring_available_to_read(results.ring):
                break
        else:
            self._sleep(timeout)
        count = results.available_to_read()
        found = results.read(count)
        return b"" if found is None else found.tobytes()

    def _sleep(self, timeout: float) -> None:
        results, deadline = self.channels.results, time.monotonic() + timeout
        flag = results.event_flag
        while not results.available_to_read():
            left = deadline - time.monotonic()
            if left <= 0 or flag is None:
                raise MissedDeadline(f"no result within {timeout:g} s")
            if not self._session.is_alive:
                raise self._session.connection.end_error()
            flag.wait(EventFlagBits.NOT_EMPTY, min(left, _GLANCE))

    def exchange(self, packet: Packet | bytes, timeout: float = 5.0) -> bytes:
        """Send and receive."""
        self.send(packet)
        return self.receive(timeout)

    @property
    def quantum(self) -> int:
        """Bytes of an element."""
        return DATUM_BYTES

    def close(self) -> None:
        """End the burst."""
        self.channels.close()
