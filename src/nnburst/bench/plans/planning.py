"""What planning costs: a chain of operations over devices that answer at once, and its parts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nnburst.compat.layouts.performance import non_extension_operand_performance
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.capabilities import Capabilities, PerformanceInfo
from nnburst.hal.enums import FeatureLevel, OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.validation import validate_model
from nnburst.runtime.planning.models.finish import finish
from nnburst.runtime.planning.plan import CompoundPlan, PartitioningMode
from nnburst.runtime.planning.planner import Planner

DEVICES: Final = 4
_HALF: Final = PerformanceInfo(0.5, 0.5)
_CAPABILITIES: Final = Capabilities(
    _HALF, _HALF, non_extension_operand_performance(_HALF), _HALF, _HALF
)


@dataclass(frozen=True, slots=True)
class PlanningTimes:
    """Best of the rounds, in milliseconds.

    Attributes:
        operations: of the model.
        steps: of the plan.
        level: feature level of the devices.
        validate: one validation of the model.
        finish: run order, validation, hash, trailing arguments.
        plan: asking, placing, steps and their models.
    """

    operations: int
    steps: int
    level: int
    validate: float
    finish: float
    plan: float


@dataclass(frozen=True, slots=True)
class _Ready:
    """A device that takes every fourth run of operations and answers at once."""

    number: int
    run: int
    feature_level: FeatureLevel
    version_string: str = "1"
    is_cpu: bool = False
    capabilities: Capabilities = _CAPABILITIES

    @property
    def name(self) -> str:
        return f"ready{self.number}"

    def supported_operations(self, model: Model, pools: Sequence[int]) -> list[bool]:
        del pools
        count = len(model.main.operations)
        return [n // self.run % DEVICES == self.number for n in range(count)]


def chain(operations: int) -> Model:
    """So many ADDs, each of which reads the one before."""
    builder = ModelBuilder()
    value = builder.input(OperandType.TENSOR_FLOAT32, (1,))
    one = builder.constant(OperandType.TENSOR_FLOAT32, [1.0])
    activation = builder.scalar(0)
    for number in range(operations):
        make = builder.output if number == operations - 1 else builder.temporary
        result = make(OperandType.TENSOR_FLOAT32, (1,))
        builder.operation(OperationType.ADD, [value, one, activation], [result])
        value = result
    return builder.build()


def measure(
    operations: int, steps: int, rounds: int, level: FeatureLevel = FeatureLevel.AIDL_V4
) -> PlanningTimes:
    """Plan a chain of `operations` in `steps` steps, `rounds` times."""
    model = chain(operations)
    devices = [_Ready(n, operations // steps, level) for n in range(DEVICES)]
    laps = []
    for _ in range(rounds):
        began = time.perf_counter()
        validate_model(model, SIGNATURES)
        validated = time.perf_counter()
        source = finish(model)
        finished = time.perf_counter()
        planner = Planner(source, devices, prepare=lambda _: None, release=lambda _: None)
        plan = planner.plan(PartitioningMode.WITHOUT_FALLBACK).plan
        laps.append((validated - began, finished - validated, time.perf_counter() - finished))
    assert isinstance(plan, CompoundPlan)
    best = [1e3 * min(column) for column in zip(*laps, strict=True)]
    return PlanningTimes(operations, len(plan.steps), int(level), best[0], best[1], best[2])
