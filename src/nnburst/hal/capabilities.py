"""What a device reports about its speed (1.2 and 1.3 layout)."""

from __future__ import annotations

import msgspec


class PerformanceInfo(msgspec.Struct, frozen=True):
    """Ratios to the CPU reference; lower is better, 1.0 is as good."""

    exec_time: float
    power_usage: float


class OperandPerformance(msgspec.Struct, frozen=True):
    """Performance of operations whose first operand is of `type`."""

    type: int
    info: PerformanceInfo


class Capabilities(msgspec.Struct, frozen=True):
    """Performance of a device.

    Attributes:
        relaxed_float32_to_float16_performance_scalar: float32 computed as float16, scalars.
        relaxed_float32_to_float16_performance_tensor: the same for tensors.
        operand_performance: one entry per type, ascending by type; a type without one counts as
            infinitely slow. SUBGRAPH has none.
        if_performance: overhead of IF.
        while_performance: overhead of WHILE.
    """

    relaxed_float32_to_float16_performance_scalar: PerformanceInfo
    relaxed_float32_to_float16_performance_tensor: PerformanceInfo
    operand_performance: tuple[OperandPerformance, ...]
    if_performance: PerformanceInfo
    while_performance: PerformanceInfo
