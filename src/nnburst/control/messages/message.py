"""What every message is made of."""

from __future__ import annotations

from typing import Annotated

import msgspec

from nnburst.hal.extensions.attributes import Hints
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, MAX_NUMBER_OF_CACHE_FILES
from nnburst.hal.request import Request

#: The title tells a handle from other numbers of the same range if messages are looked at by their types.
Handle = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1, title="handle")]
Slot = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1024)]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Callback = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Token = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
MemoryIdentifier = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
CacheFiles = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER_OF_CACHE_FILES)]


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="message"):
    """Root of all messages; the class name is the tag, unless the class states another one."""

    @property
    def fd_count(self) -> int | None:
        """How many file descriptors belong to the message; None if its handler decides."""
        return 0


class Call(Message, frozen=True):
    """Root of what a client asks of its driver."""


class Upcall(Message, frozen=True):
    """Root of what a driver asks of its client, or notifies it of."""


class Result(Message, frozen=True):
    """Root of what a call or an upcall is answered with."""


class RequestMessage(Call, frozen=True):
    """What brings a request: one fd for each pool of it that is shared memory, in order.

    Attributes:
        handle: the prepared model (or what the call names).
        request: inputs and outputs.
        measure: whether to time it.
        deadline_ns: CLOCK_BOOTTIME at which the result is useless.
        loop_timeout_ns: limit of a WHILE.
        hints: for vendor extensions of the device; sent only if there is one.
    """

    handle: Handle
    request: Request
    measure: bool = False
    deadline_ns: Nanoseconds | None = None
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def fd_count(self) -> int:
        """The pools."""
        return self.request.memory_count
