"""Declares the structs of HAL 1.2. Operand, Extension, OutputShape, Timing are canonical, Request is 1.0's.

NNAPI: 1.2/types.hal.
"""

from __future__ import annotations

import msgspec

from nnburst.compat.layouts import HidlMemory
from nnburst.hal.model import ExtensionNameAndPrefix, Subgraph
from nnburst.hal.types import OperandPerformance, PerformanceInfo


class Capabilities(msgspec.Struct, frozen=True):
    """The canonical capabilities without control flow."""

    relaxed_float32_to_float16_performance_scalar: PerformanceInfo
    relaxed_float32_to_float16_performance_tensor: PerformanceInfo
    operand_performance: tuple[OperandPerformance, ...]


class Model(Subgraph, frozen=True):
    """One graph, its constants and pools, and the extensions that it uses."""

    operand_values: bytes = b""
    pools: tuple[HidlMemory, ...] = ()
    relax_computation_float32_to_float16: bool = False
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()
