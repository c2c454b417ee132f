"""Executable: a plan with its prepared parts, ready to compute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import Operand
from nnburst.runtime.devices.device import Device, Use
from nnburst.runtime.execution.argument import (
    Argument,
    BurstController,
    Options,
    Outcome,
    PreparedPart,
)
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.memory_preference import MemoryPreference, of_device, of_roles
from nnburst.runtime.planning.plan import Direction, Plan, SimplePlan, StepRole

logger = logging.getLogger("nnburst.runtime")


@dataclass(frozen=True, slots=True)
class Interface:
    """What executions of a plan take and give.

    Attributes:
        inputs: operands of the model's inputs.
        outputs: operands of the model's outputs.
        is_one_explicit_device: whether the compilation lists exactly one.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    is_one_explicit_device: bool


class Executable:
    """A plan and what its devices have prepared. Thread-safe.

    Attributes:
        plan: which device runs what.
        interface: what executions take and give.
        devices: by the plan's positions.
        parts: one for a simple plan, else one for each execution step.
        allows_fallback: whether the CPU computes what a device fails to (RT:R15).
        is_explicit: whether the compilation lists its devices.
        fell_back: whether the CPU has the whole model since planning failed (RT:P2).
    """

    def __init__(
        self,
        plan: Plan,
        interface: Interface,
        devices: Sequence[Device],
        parts: Sequence[PreparedPart],
        prepare_fallback: Callable[[], PreparedPart] | None,
        *,
        is_explicit: bool,
        fell_back: bool = False,
    ) -> None:
        """Own the parts.

        Args:
            plan: simple or compound.
            interface: of the model.
            devices: by the plan's positions.
            parts: in the order of the execution steps.
            prepare_fallback: has the CPU prepare the whole model; None if there is no fallback.
            is_explicit: see the attributes.
            fell_back: see the attributes.
        """
        self.plan: Final = plan
        self.interface: Final = interface
        self.devices: Final = tuple(devices)
        self.parts: Final = tuple(parts)
        self.allows_fallback: Final = prepare_fallback is not None
        self.is_explicit: Final = is_explicit
        self.fell_back: Final = fell_back
        self._prepare_fallback: Final = prepare_fallback
        self._fallback: PreparedPart | None = None
        self._lock: Final = threading.Lock()

    def execute(
        self,
        inputs: list[Argument],
        outputs: list[Argument],
        options: Options,
        bursts: Sequence[BurstController | None] = (),
    ) -> Outcome:
        """Compute once; never raises for what devices or data do.

        Args:
            inputs: one for each of the model.
            outputs: one for each of the model.
            options: how.
            bursts: of each part, from `open_bursts`; none to execute the ordinary way.
        """
        assert isinstance(self.plan, SimplePlan)
        burst = bursts[0] if bursts else None
        executor = self.parts[0] if burst is None else burst
        outcome = executor.execute(inputs, outputs, options)
        if outcome.code in (ResultCode.NO_ERROR, ResultCode.OUTPUT_INSUFFICIENT_SIZE):
            return outcome
        if not self.allows_fallback or self.devices[self.plan.device].is_cpu:
            return outcome
        logger.warning(
            "%s failed (%s: %s): the CPU computes the whole model",
            self.devices[self.plan.device].name,
            outcome.code.name,
            outcome.message,
        )
        return self.fall_back(inputs, outputs, options)

    def fall_back(
        self, inputs: list[Argument], outputs: list[Argument], options: Options
    ) -> Outcome:
        """Have the CPU compute the whole model, without deadline (RT:R14)."""
        try:
            with self._lock:
                if self._fallback is None:
                    assert self._prepare_fallback is not None
                    self._fallback = self._prepare_fallback()
        except NnburstError as error:
            return Outcome.of(error)
        unlimited = Options(loop_timeout_ns=options.loop_timeout_ns)
        return self._fallback.execute(inputs, outputs, unlimited)

    def open_bursts(self) -> list[BurstController | None]:
        """A burst for each part; None for those that have none (RT:B1)."""
        bursts: list[BurstController | None] = []
        for part in self.parts:
            try:
                bursts.append(part.open_burst())
            except NnburstError as error:
                logger.warning("a step has no burst (%s): it executes the ordinary way", error)
                bursts.append(None)
        return bursts

    def uses(self, direction: Direction, index: int) -> list[tuple[Device, Use]]:
        """What the memory of an input or output is used for, by device (RT:P20)."""
        plan = self.plan
        if isinstance(plan, SimplePlan):
            return [(self.devices[plan.device], (self.parts[0], direction, index))]
        return [self._use(role) for role in self._roles(direction, index)]

    def _use(self, role: StepRole) -> tuple[Device, Use]:
        assert not isinstance(self.plan, SimplePlan)
        steps = self.plan.execution_steps
        position = next(n for n, step in enumerate(steps) if step.index == role.step)
        device = self.devices[steps[position].device]
        return device, (self.parts[position], role.direction, role.position)

    def memory_preference(self, direction: Direction, index: int) -> MemoryPreference:
        """Alignment and padding that the devices of an argument like (RT:P19)."""
        if isinstance(self.plan, SimplePlan):
            return of_device(cast("Candidate", self.devices[self.plan.device]))
        likes = cast("Sequence[Candidate]", self.devices)  # in all that a preference looks at
        return of_roles(self.plan, likes, self._roles(direction, index))

    def _roles(self, direction: Direction, index: int) -> Sequence[StepRole]:
        assert not isinstance(self.plan, SimplePlan)
        return (self.plan.input_roles if direction == Direction.INPUT else self.plan.output_roles)[
            index
        ]

    def close(self) -> None:
        """Release the parts."""
        for part in (*self.parts, self._fallback):
            if part is not None:
                part.close()
