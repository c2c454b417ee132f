"""The HAL's request: arguments in pools (1.0 layout, the only one that a burst can carry)."""

from __future__ import annotations

import msgspec

from nnburst.hal.model import DataLocation, MemoryPool


class RequestArgument(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input or output of a request.

    Attributes:
        has_no_value: the argument is omitted; `location` is then all zero and `dimensions` empty.
        location: byte range in one of the request's pools.
        dimensions: extents, where they say more than the model's; empty to take the model's.
    """

    has_no_value: bool = False
    location: DataLocation = DataLocation()
    dimensions: tuple[int, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """Inputs and outputs in the model's order, and the pools that they lie in."""

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[MemoryPool, ...] = ()
