"""Declares the structs of HAL 1.0 that differ from the canonical ones.

Operation, DataLocation, RequestArgument and PerformanceInfo are the canonical ones.

NNAPI: 1.0/types.hal. Enumerations are the canonical ones without later members (see `enums`).
"""

from __future__ import annotations

import msgspec

from nnburst.compat.layouts import HidlMemory
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.model import DataLocation, Operation
from nnburst.hal.types import PerformanceInfo, RequestArgument


class Capabilities(msgspec.Struct, frozen=True):
    """Performance of float32 and of 8 bit quantised operations."""

    float32_performance: PerformanceInfo
    quantized8_performance: PerformanceInfo


class Operand(msgspec.Struct, frozen=True):
    """The canonical operand without extra parameters."""

    type: int
    dimensions: tuple[int, ...] = ()
    number_of_consumers: int = 0
    scale: float = 0.0
    zero_point: int = 0
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    location: DataLocation = DataLocation()


class Model(msgspec.Struct, frozen=True):
    """One graph, its constants and its pools."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]
    operand_values: bytes = b""
    pools: tuple[HidlMemory, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """The arguments in the model's order, and their pools; the same in 1.1 and 1.2."""

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[HidlMemory, ...] = ()
