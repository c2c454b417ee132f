"""Executable: a plan with its prepared parts, ready to compute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from nnburst.client.memory.arguments import seconds_until
from nnburst.hal.diagnostics import vlog
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import NnburstError, error_for_code
from nnburst.hal.model import Operand
from nnburst.runtime.argument import (
    Argument,
    BurstController,
    Options,
    Outcome,
    PreparedPart,
)
from nnburst.runtime.devices.cpu_device import CPU_NAME
from nnburst.runtime.devices.device import Device, Use
from nnburst.runtime.devices.driver_part import PATIENCE
from nnburst.runtime.execution.bound_plan import (
    BoundPlan,
    bind_compound,
    bind_simple,
    bursts_to_bind,
)
from nnburst.runtime.execution.bursts import Bursts, open_bursts
from nnburst.runtime.execution.compound import CompoundComputation
from nnburst.runtime.execution.compound_memory import CompoundMemory, Source
from nnburst.runtime.execution.counts import EXECUTIONS
from nnburst.runtime.execution.fence_chain import Behind, FenceChain
from nnburst.runtime.execution.plain_memory import on_plain_memory
from nnburst.runtime.execution.temporaries import Temporaries
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.memory_preference import MemoryPreference, of_device, of_roles
from nnburst.runtime.planning.plan import Direction, ExecutionStep, Plan, SimplePlan, StepRole
from nnburst.runtime.records import PlanRecorder
from nnburst.tracing.slices import Layer, Phase, trace

logger = logging.getLogger("nnburst.runtime")


@dataclass(frozen=True, slots=True)
class Interface:
    """What executions of a plan take and give.

    Attributes:
        inputs: operands of the model's inputs.
        outputs: operands of the model's outputs.
        is_one_explicit_device: whether the compilation lists exactly one.
        starts_inline: whether `Execution.start` computes before it returns.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    is_one_explicit_device: bool
    starts_inline: bool = False


class Executable:
    """A plan and what its devices have prepared. Thread-safe.

    Attributes:
        plan: which device runs what.
        interface: what executions take and give.
        devices: by the plan's positions.
        parts: one for a simple plan, else one for each execution step.
        allows_fallback: whether the CPU computes what a device fails to (RT:R15).
        is_explicit: whether the compilation lists its devices.
        recorder: is given each computation once it has ended.
        fell_back: whether the CPU has the whole model since planning failed (RT:P2).
    """

    def __init__(
        self,
        plan: Plan,
        interface: Interface,
        devices: Sequence[Device],
        parts: Sequence[PreparedPart],
        prepare_on_cpu: Callable[[ExecutionStep | None], PreparedPart] | None,
        *,
        source: Source,
        is_explicit: bool,
        recorder: PlanRecorder,
        fell_back: bool = False,
        drivers_support: bool = False,
    ) -> None:
        """Own the parts.

        Args:
            plan: simple or compound.
            interface: of the model.
            devices: by the plan's positions.
            parts: in the order of the execution steps.
            prepare_on_cpu: has the CPU prepare a step, or for None the whole model; None without fallback.
            source: the model that was placed.
            is_explicit: see the attributes.
            recorder: see the attributes.
            fell_back: see the attributes.
            drivers_support: whether a driver supports an operation of the model, for the counts.
        """
        self.plan: Final = plan
        self.interface: Final = interface
        self.devices: Final = tuple(devices)
        self.parts: Final = tuple(parts)
        self.allows_fallback: Final = prepare_on_cpu is not None
        self.is_explicit: Final = is_explicit
        self.recorder: Final = recorder
        self.fell_back: Final = fell_back
        self._drivers_support: Final = drivers_support
        self._prepare_on_cpu: Final = prepare_on_cpu
        self._fallback: PreparedPart | None = None
        self._measured: Final[dict[int, float]] = {}
        self._steps_on_cpu: Final[dict[int, PreparedPart]] = {}
        self._compound: Final = (
            None if isinstance(plan, SimplePlan) else CompoundMemory(plan, source)
        )
        self._title: Final = (
            f"execute on {self.devices[plan.device].name}" if isinstance(plan, SimplePlan) else ""
        )
        self._lock: Final = threading.Lock()

    def execute(
        self,
        inputs: list[Argument],
        outputs: list[Argument],
        options: Options,
        bursts: Sequence[BurstController | None] = (),
        temporaries: Temporaries | None = None,
        chain: FenceChain | None = None,
    ) -> Outcome:
        """Compute once; never raises for what devices or data do. `revive` comes before.

        Args:
            inputs: one for each of the model.
            outputs: one for each of the model.
            options: how.
            bursts: of each part, from `open_bursts`; none to execute the ordinary way.
            temporaries: the caller's; some of the plan's own unless given.
            chain: that the bursts begin steps behind; None if a step has ended when its burst returns.
        """
        if isinstance(self.plan, SimplePlan):
            executor = (bursts[0] if bursts else None) or self.parts[0]
            began = time.perf_counter()
            device = self.devices[self.plan.device].name
            with trace(Layer.RUNTIME, Phase.EXECUTION, self._title):
                outcome = executor.execute(inputs, outputs, options)
            if chain is None:
                self._measured[0] = time.perf_counter() - began
            if vlog.on("execution"):
                vlog.write("execution", "%s: %s", self._title, outcome.code.name)
            on_cpu = self.devices[self.plan.device].is_cpu
            whole = self.allows_fallback and not on_cpu and not outcome.has_result
            if outcome.has_result:
                EXECUTIONS.add(device)
                self._count(on_drivers=not on_cpu)
        else:
            parts = _Parts(self, bursts, chain, options)
            outcome, whole = self._execute_steps(inputs, outputs, options, parts, temporaries)
        if whole and chain is not None:
            chain.settle(options.deadline_ns)
            whole = chain.may_fall_back
        if not whole:
            return outcome
        logger.warning(
            "the plan failed (%s: %s): the CPU computes the whole model",
            outcome.code.name,
            outcome.message,
        )
        return self.fall_back(inputs, outputs, options, outcome)

    def revive(
        self,
        deadline_ns: int | None,
        began_ns: int | None,
        bursts: Sequence[BurstController | None] = (),
    ) -> None:
        """Have prepared again what died with its driver, before anything is computed.

        A driver that is not there again, or has died since the computation began, stays dead for it: its
        steps fail as DEAD_OBJECT.

        Args:
            deadline_ns: on CLOCK_BOOTTIME; None if it may take as long as it takes.
            began_ns: when the computation began, on CLOCK_MONOTONIC; None for one that is still to begin.
            bursts: as for `execute`.
        """
        for number, part in enumerate(self.parts):
            executor = (bursts[number] if bursts else None) or part
            try:
                executor.revive(_seconds_left(deadline_ns), began_ns)
            except NnburstError as error:
                logger.warning("a step has no driver (%s): this computation goes on without", error)

    def _execute_steps(
        self,
        inputs: list[Argument],
        outputs: list[Argument],
        options: Options,
        parts: _Parts,
        lent: Temporaries | None,
    ) -> tuple[Outcome, bool]:
        """Run the steps; whether the CPU is to compute the whole model comes second."""
        assert self._compound is not None
        try:
            temporaries = lent or self._compound.take()
        except NnburstError as error:
            return Outcome.of(error), self.allows_fallback
        computation = CompoundComputation(
            self._compound.plan,
            self._compound.models,
            temporaries,
            parts,
            options,
        )
        is_done = False
        try:
            found = computation.run(inputs, outputs, allow_fallback=self.allows_fallback)
            is_done = not computation.is_tainted
        finally:
            for device in computation.executed:
                EXECUTIONS.add(CPU_NAME if device < 0 else self.devices[device].name)
            if lent is None:
                self._compound.release(temporaries, usable=is_done)
            if is_done and parts.end_when_they_return:
                self._measured.update(computation.seconds)
        if found[0].has_result:
            self._count(on_drivers=any(device >= 0 for device in computation.executed))
        return found

    def _count(self, *, on_drivers: bool) -> None:
        """Count a computation of the whole model that gave a result."""
        if self._drivers_support:
            EXECUTIONS.add_supported(on_drivers=on_drivers)

    def begin(
        self, inputs: list[Argument], outputs: list[Argument], options: Options, chain: FenceChain
    ) -> Outcome:
        """Begin the steps of one computation behind a chain, which holds the temporaries until its end.

        Returns:
            What is known now: why it failed, or success if the chain knows the rest.
        """
        temporaries = None
        if self._compound is not None:
            try:
                temporaries = self._compound.take()
            except NnburstError as error:
                return Outcome.of(error)
            chain.lend(partial(_release_temporaries, self._compound, temporaries))
        bursts = [Behind(part, chain) for part in self.parts]
        return self.execute(inputs, outputs, options, bursts, temporaries, chain)

    @property
    def has_known_temporaries(self) -> bool:
        """Whether the sizes of all values between steps are known."""
        return isinstance(self.plan, SimplePlan) or not self.plan.dynamic_temporaries

    def bind(
        self,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        bursts: Bursts,
        timeout: float = PATIENCE,
    ) -> BoundPlan | None:
        """Bind arguments to the bursts of all steps, which then run by one call of C's.

        Args:
            inputs: one for each of the model.
            outputs: one for each of the model.
            bursts: from `open_bursts`.
            timeout: seconds of each run.

        Returns:
            None if `execute` alone can do it: records are kept, a step has no burst, the plan has control
            flow or shapes that are not known, or an argument lies in a buffer.

        Raises:
            NnburstError: an argument does not fit, or a driver cannot be reached.
        """
        if self.recorder.is_on:
            return None
        if self._compound is None:
            return bind_simple(inputs, outputs, bursts, timeout)
        return bind_compound(self._compound, inputs, outputs, bursts, timeout)

    def can_bind(self, bursts: Bursts) -> bool:
        """Whether `bind` can give anything for such bursts, whatever the arguments."""
        plan = None if self._compound is None else self._compound.plan
        return bursts_to_bind(plan, bursts) is not None

    def run(self, bound: BoundPlan, options: Options, bursts: Bursts) -> Outcome:
        """Run a bound plan once; as `conclude`."""
        return self.conclude(bound, bound.run(), options, bursts)

    def conclude(self, bound: BoundPlan, code: int, options: Options, bursts: Bursts) -> Outcome:
        """What came of a run of a bound plan that ended with `code`: as if `execute` had run it.

        A step that failed is not repeated, unless by the CPU if the compilation's mode allows that; the steps
        behind it follow. Outputs are copied to where the application wants them.

        Raises:
            BurstBusy: another run is inside; this one has not begun.
            Closed: a burst or a pool was closed.
        """
        ended = bound.conclude(code)
        if ended is None:
            outcome = bound.outcome
        else:
            outcome = self.go_on(bound, [*ended, *bursts.of_parts[len(ended) :]], options)
        if outcome.code == ResultCode.NO_ERROR:
            bound.copy_out()
        return outcome

    def go_on(
        self, bound: BoundPlan, bursts: Sequence[BurstController | None], options: Options
    ) -> Outcome:
        """Execute a bound plan the ordinary way; some of the bursts only stand for steps that have ended."""
        return self.execute(*bound.arguments, options, bursts, bound.temporaries)

    @property
    def measured(self) -> dict[int, float]:
        """Seconds that each step took when it was executed last, by its index; of plans of several steps."""
        return dict(self._measured)

    def fall_back(
        self,
        inputs: list[Argument],
        outputs: list[Argument],
        options: Options,
        failure: Outcome,
    ) -> Outcome:
        """Have the CPU compute the whole model, without deadline (RT:R14).

        What it cannot prepare, such as operations of extensions, stays the failure that it was.
        """
        try:
            with self._lock:
                if self._fallback is None:
                    assert self._prepare_on_cpu is not None
                    self._fallback = self._prepare_on_cpu(None)
            self._fallback.revive(None, None)  # the CPU may be a driver
        except NnburstError as error:
            logger.warning("the CPU cannot stand in, the first failure counts: %s", error)
            return failure
        unlimited = Options(loop_timeout_ns=options.loop_timeout_ns)
        with trace(Layer.RUNTIME, Phase.EXECUTION, "the whole model on the CPU"):
            outcome = on_plain_memory(self._fallback, inputs, outputs, unlimited)
        if outcome.has_result:
            EXECUTIONS.add(CPU_NAME)
            self._count(on_drivers=False)
        return outcome

    def step_on_cpu(self, number: int) -> PreparedPart:
        """Execution step `number` as the CPU prepares it, once.

        Raises:
            NnburstError: it does not.
        """
        assert self._prepare_on_cpu is not None
        with self._lock:
            if number not in self._steps_on_cpu:
                assert not isinstance(self.plan, SimplePlan)
                step = self.plan.execution_steps[number]
                self._steps_on_cpu[number] = self._prepare_on_cpu(step)
            part = self._steps_on_cpu[number]
        part.revive(None, None)  # the CPU may be a driver
        return part

    def open_bursts(self) -> Bursts:
        """A burst for each part; None for those that have none (RT:B1)."""
        return open_bursts(self.parts)

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
        for part in (*self.parts, self._fallback, *self._steps_on_cpu.values()):
            if part is not None:
                part.close()
        if self._compound is not None:
            self._compound.close()


def _seconds_left(deadline_ns: int | None) -> float | None:
    return None if deadline_ns is None else max(0.0, seconds_until(deadline_ns))


def _release_temporaries(memory: CompoundMemory, temporaries: Temporaries, usable: bool) -> None:
    memory.release(temporaries, usable=usable)


class _Parts:
    """What executes the steps of one computation."""

    def __init__(
        self,
        executable: Executable,
        bursts: Sequence[BurstController | None],
        chain: FenceChain | None,
        options: Options,
    ) -> None:
        self._executable = executable
        self._bursts = bursts
        self._chain = chain
        self._deadline_ns = options.deadline_ns

    @property
    def end_when_they_return(self) -> bool:
        return self._chain is None

    def settle(self) -> None:
        if self._chain is not None:
            before = self._chain.settle(self._deadline_ns)
            if before.code != ResultCode.NO_ERROR:
                raise error_for_code(before.code, before.message)

    def part(self, step: int) -> PreparedPart:
        return self._executable.parts[step]

    def burst(self, step: int) -> BurstController | None:
        return self._bursts[step] if self._bursts else None

    def on_cpu(self, step: int) -> PreparedPart:
        return self._executable.step_on_cpu(step)

    def is_cpu(self, device: int) -> bool:
        return self._executable.devices[device].is_cpu

    def name(self, device: int) -> str:
        return self._executable.devices[device].name
