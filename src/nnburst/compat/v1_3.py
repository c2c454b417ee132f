"""Declares the structs of HAL 1.3 that differ from the canonical ones: memory, buffers and clocks.

NNAPI: 1.3/types.hal.
"""

from __future__ import annotations

import msgspec

from nnburst.compat.layouts import HidlMemory
from nnburst.hal.model import BufferToken, ExtensionNameAndPrefix, Subgraph
from nnburst.hal.types import RequestArgument


class Model(msgspec.Struct, frozen=True):
    """The canonical model with hidl_memory as pools."""

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes = b""
    pools: tuple[HidlMemory, ...] = ()
    relax_computation_float32_to_float16: bool = False
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """The arguments in the model's order, and their pools, which may be buffers of the driver."""

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[HidlMemory | BufferToken, ...] = ()


class BufferRole(msgspec.Struct, frozen=True):
    """The canonical role, whose `probability` is called `frequency` here."""

    model_index: int
    io_index: int
    frequency: float


class OptionalTimePoint(msgspec.Struct, frozen=True):
    """A time in nanoseconds on the steady clock (CLOCK_MONOTONIC), or None."""

    nanoseconds_since_epoch: int | None = None


class OptionalTimeoutDuration(msgspec.Struct, frozen=True):
    """A duration in nanoseconds, or None."""

    nanoseconds: int | None = None
