"""Declares the structs that HAL 1.1 adds to 1.0.

NNAPI: 1.1/types.hal.
"""

from __future__ import annotations

from nnburst.compat import v1_0
from nnburst.hal.types import PerformanceInfo


class Capabilities(v1_0.Capabilities, frozen=True):
    """The capabilities of 1.0, and the performance of float32 computed as float16."""

    relaxed_float32_to_float16_performance: PerformanceInfo


class Model(v1_0.Model, frozen=True):
    """The model of 1.0, and whether float32 may be computed as float16."""

    relax_computation_float32_to_float16: bool = False
