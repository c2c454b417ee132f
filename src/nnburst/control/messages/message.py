"""What every message is made of."""

from __future__ import annotations

from typing import Annotated

import msgspec

from nnburst.hal.limits import MAX_NUMBER_OF_CACHE_FILES

Handle = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Slot = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1024)]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Callback = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Token = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
MemoryIdentifier = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
CacheFiles = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER_OF_CACHE_FILES)]


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="message"):
    """Root of all messages; the class name is the tag."""

    @property
    def fd_count(self) -> int | None:
        """How many file descriptors belong to the message; None where its handler decides."""
        return 0
