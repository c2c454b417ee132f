"""Driver-managed buffers: which arguments of which models a buffer is for (1.3)."""

from __future__ import annotations

import msgspec


class BufferRole(msgspec.Struct, frozen=True):
    """One use of a buffer.

    Attributes:
        model_index: which of the prepared models.
        io_index: which of its inputs (or outputs).
        probability: how likely an execution uses it so, in (0, 1] (HIDL: frequency).
    """

    model_index: int
    io_index: int
    probability: float = 1.0


class BufferDesc(msgspec.Struct, frozen=True):
    """What a buffer is to hold; `dimensions` are empty, or 0 in places, which the roles decide."""

    dimensions: tuple[int, ...] = ()
