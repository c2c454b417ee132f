"""Plans a finished model and has the parts of the plan prepared (RT:P1 to P3, P9).

A `Placement` decides which device gets which operation: by the costs that devices declare
(`DeclaredPlacement`), or by times measured on this model (`nnburst.runtime.measured_placement`). Then it asks
the planner for the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from nnburst.hal import vlog
from nnburst.hal.enums import ExecutionPreference, OperationType, ResultCode, operation_name
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.model import Model, Operation, is_extension
from nnburst.runtime.planning.finished_model import FinishedModel
from nnburst.runtime.planning.placement import BestDevices
from nnburst.runtime.planning.plan import (
    Candidate,
    CompoundPlan,
    ExecutionStep,
    Part,
    PartitioningMode,
    Plan,
    SimplePlan,
    SourceOperand,
    Step,
)
from nnburst.runtime.planning.slices import hal_model
from nnburst.runtime.planning.steps import (
    Boundaries,
    Partitioner,
    RawStep,
    Schedule,
    StepBuilder,
    StepRoles,
    scheduled_steps,
)

T = TypeVar("T")

#: Has a device prepare a part, and returns the prepared part. A step gets no deadline and no attributes, a
#: simple plan gets the compilation's (RT:P9, P16).
Prepare = Callable[[Part], T]
#: Releases a prepared part of a plan that is discarded.
Release = Callable[[T], None]


@dataclass(frozen=True, slots=True)
class PreparedPlan(Generic[T]):
    """A plan whose parts are prepared.

    Attributes:
        plan: a simple or compound plan.
        prepared: the parts from `Prepare`: one for a simple plan, else one for each execution step, in order.
        fell_back: whether the whole model was given to the CPU after planning had failed (RT:P2).
    """

    plan: Plan
    prepared: tuple[T, ...]
    fell_back: bool = False


_log: Final = logging.getLogger("nnburst.runtime")
#: Errors of the caller, after which the CPU is not tried (RT:P2).
_FINAL: Final = (ResultCode.BAD_DATA, ResultCode.UNEXPECTED_NULL)


class Planner(Generic[T]):
    """Makes plans of one model over one list of devices. Not thread-safe; it only keeps its arguments."""

    def __init__(
        self,
        source: FinishedModel,
        devices: Sequence[Candidate],
        *,
        prepare: Prepare[T],
        release: Release[T],
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        strict_slicing: bool = False,
        review: Callable[[Plan], None] | None = None,
    ) -> None:
        """Keep the arguments.

        Args:
            source: the model.
            devices: the devices in the order of the list, at least one; the order breaks ties.
            prepare: has a device prepare a part. Called in the order of the steps, as soon as a step model is
                made; its first NnburstError ends the plan.
            release: releases each prepared part of a plan that is discarded.
            preference: whether power or time is compared.
            strict_slicing: whether an unexpectedly invalid slice is an error (RT:S6).
            review: called with each partitioned plan when all its parts are prepared; its NnburstError
                counts as an error of planning.
        """
        self._source = source
        self._devices = devices
        self._names = tuple(device.name for device in devices)
        self._prepare = prepare
        self._release = release
        self._preference = preference
        self._strict = strict_slicing
        self._review = review

    def plan(self, mode: PartitioningMode, cpu: Candidate | None = None) -> PreparedPlan[T]:
        """Make a plan by the rules of a mode (RT:P1, P2).

        Args:
            mode: whether to partition, and whether the CPU takes over when a plan fails.
            cpu: the CPU device, needed if the mode may use it and it is not listed.

        Raises:
            InvalidArgument: no listed device can run some operation (RT:P3), or a device refused its part.
            NnburstError: planning or preparing failed, and the mode or the model forbids the CPU; or the CPU
                failed.
        """
        if mode is PartitioningMode.NONE:
            return self._on_cpu(cpu, fell_back=False)
        try:
            return self.partition()
        except NnburstError as error:
            if error.code in _FINAL or mode is PartitioningMode.WITHOUT_FALLBACK:
                raise
            if any(map(_is_vendors, self._source.model.main.operations)):
                _log.error(
                    "no fallback: the CPU device runs no OEM and no extension operations: %s", error
                )
                raise
            _log.warning("the whole model goes to the CPU device: %s", error)
        return self._on_cpu(cpu, fell_back=True)

    def partition(self) -> PreparedPlan[T]:
        """Make a plan of the best devices, whatever the mode.

        Raises:
            NnburstError: as for `plan` without fallback.
        """
        best_devices = BestDevices(
            self._source, self._devices, self._preference, strict_slicing=self._strict
        )
        best = best_devices.find(0)
        if vlog.on("compilation"):
            names = (*self._names, "(the interpreter of control flow)")
            for at, device in enumerate(best):
                kind = operation_name(self._source.model.main.operations[at].type)
                vlog.write(
                    "compilation",
                    "operation %d %s: %s",
                    at,
                    kind,
                    names[min(device, len(names) - 1)],
                )
        only = set(best)
        if len(only) == 1 and best[0] != best_devices.interpreter:
            return self._reviewed(_simple(best[0], self._names, best_devices.model(0)))
        layout = Partitioner(self._source, best_devices.find, best_devices.interpreter)
        layout.lay_out_main(best)
        return self._compound(layout.steps, layout.source_models)

    def follow(self, schedule: Schedule) -> PreparedPlan[T]:
        """Make the plan of a schedule, whatever the mode; one step gives a simple plan.

        Args:
            schedule: steps with every operation of the main model once, in an order in which they can run.

        Raises:
            NnburstError: as for `plan` without fallback.
        """
        if len(schedule) == 1:
            whole = hal_model(self._source)
            return self._reviewed(_simple(schedule[0].device, self._names, whole))
        return self._compound(scheduled_steps(self._source, schedule), [0])

    def _on_cpu(self, cpu: Candidate | None, *, fell_back: bool) -> PreparedPlan[T]:
        """The whole model as a simple plan on the CPU device."""
        listed = (n for n, device in enumerate(self._devices) if device.is_cpu)
        position = next(listed, len(self._devices))
        names = self._names
        if position == len(self._devices):
            if cpu is None:
                raise InvalidArgument("cpu: not given, and no listed device is the CPU device")
            names = (*names, cpu.name)
        plan = _simple(position, names, hal_model(self._source))
        return PreparedPlan(plan, (self._prepare(plan),), fell_back)

    def _reviewed(self, plan: SimplePlan) -> PreparedPlan[T]:
        prepared: list[T] = []
        try:
            prepared.append(self._prepare(plan))
            self._check(plan)
        except BaseException:
            self._release_all(prepared)
            raise
        return PreparedPlan(plan, tuple(prepared))

    def _compound(self, raw: Sequence[RawStep], source_models: Sequence[int]) -> PreparedPlan[T]:
        prepared: list[T] = []
        try:
            plan = self._finished(raw, source_models, prepared)
            self._check(plan)
        except BaseException:
            self._release_all(prepared)
            raise
        return PreparedPlan(plan, tuple(prepared))

    def _finished(
        self, raw_steps: Sequence[RawStep], source_models: Sequence[int], prepared: list[T]
    ) -> CompoundPlan:
        """Finish and prepare one step after another; stop at the first error (RT:P16)."""
        boundaries = Boundaries(self._source, raw_steps, source_models)
        steps: list[Step] = []
        dynamic: list[tuple[SourceOperand, int]] = []
        for raw in raw_steps:
            if not isinstance(raw, StepBuilder):
                steps.append(raw)
                continue
            step = raw.finish(
                self._devices[raw.device],
                boundaries.temps_out[raw.index],
                boundaries.downstream[raw.source_model],
            )
            steps.append(step)
            dynamic += _dynamic_temporaries(step)
            prepared.append(self._prepare(step))
        roles = StepRoles(steps)
        main = self._source.model.main
        return CompoundPlan(
            devices=self._names,
            steps=tuple(steps),
            source_models=tuple(source_models),
            dynamic_temporaries=tuple(sorted(dynamic)),
            boundary_constants=boundaries.boundary_constants,
            input_roles=tuple(roles.of(SourceOperand(0, i)) for i in main.input_indexes),
            output_roles=tuple(roles.of(SourceOperand(0, i)) for i in main.output_indexes),
        )

    def _check(self, plan: Plan) -> None:
        if self._review is not None:
            self._review(plan)

    def _release_all(self, prepared: Sequence[T]) -> None:
        for each in prepared:
            self._release(each)


class Placement(Protocol):
    """A way to decide which device runs what."""

    def place(self, planner: Planner[T]) -> PreparedPlan[T]:
        """Decide, and have the planner make the plan.

        Raises:
            NnburstError: as for `Planner.plan`.
        """
        ...


@dataclass(frozen=True, slots=True)
class DeclaredPlacement:
    """Placement by the costs that devices declare.

    Attributes:
        mode: whether to partition, and whether the CPU takes over when a plan fails.
        cpu: the CPU device, needed if the mode may use it and it is not listed.
    """

    mode: PartitioningMode
    cpu: Candidate | None = None

    def place(self, planner: Planner[T]) -> PreparedPlan[T]:
        """Make a plan by the rules of the mode."""
        return planner.plan(self.mode, self.cpu)


def _simple(
    device: int, names: tuple[str, ...], whole: tuple[Model, tuple[int, ...]]
) -> SimplePlan:
    model, pools = whole
    return SimplePlan(names, device, model, pools, tuple(range(len(model.main.operations))))


def _dynamic_temporaries(step: ExecutionStep) -> list[tuple[SourceOperand, int]]:
    outputs = step.outputs
    return [
        (SourceOperand(step.source_model, outputs[position].source), step.index)
        for position in step.dynamic_outputs
    ]


def _is_vendors(operation: Operation) -> bool:
    """Whether an operation is OEM or an extension's."""
    return operation.type == OperationType.OEM_OPERATION or is_extension(operation.type)
