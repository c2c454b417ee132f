"""IBurstContext and IBurstCallback of HIDL: bursts over message queues."""

from __future__ import annotations

from typing import Annotated

import msgspec

from nnburst.control.messages.message import Call, Handle, Result, Slot, Upcall
from nnburst.hal.enums import ExecutionPreference


class OpenBurst(Call, frozen=True, tag="ConfigureExecutionBurst"):
    """IPreparedModel::configureExecutionBurst: open a burst; the fds are those of the two descriptors.

    A third one is the driver's end of a stream socket, to which it sends a byte with a result that the client
    awaits in an event loop.

    Attributes:
        handle: the prepared model.
        callback: what the client calls this burst in `GetMemories`.
        request_channel: descriptor of the client's request queue, encoded.
        result_channel: descriptor of the client's result queue, encoded.
        max_in_flight: requests that may be under way at once.
        cpus: cores that the client's thread may run on; both sides share them fairly.
        preference: decides about spinning.
    """

    handle: Handle
    callback: int
    request_channel: msgspec.Raw
    result_channel: msgspec.Raw
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    cpus: tuple[int, ...] = ()
    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER

    @property
    def fd_count(self) -> None:
        """By the descriptors; the burst checks."""
        return


class FreeMemory(Call, frozen=True):
    """IBurstContext::freeMemory: forget a slot; answered when it is forgotten."""

    handle: Handle
    slot: Slot


class GetMemories(Upcall, frozen=True):
    """IBurstCallback::getMemories: the pools behind these slots of one burst (upcall)."""

    callback: int
    slots: tuple[Slot, ...]


class Memories(Result, frozen=True):
    """Answer to `GetMemories`: sizes of the pools, one fd for each, in the order of the slots."""

    sizes: tuple[Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)], ...]

    @property
    def fd_count(self) -> int:
        """The pools."""
        return len(self.sizes)


class BurstClosed(Upcall, frozen=True):
    """A burst has ended by itself: its queues cannot be trusted, or results were not read (upcall).

    Attributes:
        callback: which burst, as in `GetMemories`.
        reason: for people.
    """

    callback: int
    reason: str
