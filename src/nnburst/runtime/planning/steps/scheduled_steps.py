"""Steps by a schedule instead of by the best device of each operation."""

from __future__ import annotations

from collections.abc import Iterable

from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.models.run_order import WRITTEN
from nnburst.runtime.planning.placement.schedule_search import Schedule, ScheduledStep
from nnburst.runtime.planning.plan import ExecutionStep
from nnburst.runtime.planning.steps.step_builder import StepBuilder


def scheduled_steps(source: FinishedModel, schedule: Schedule) -> list[StepBuilder]:
    """A step for each of a schedule's; control flow belongs to the device that it is given to."""
    return [_builder(source, index, step) for index, step in enumerate(schedule)]


def lone_step(source: FinishedModel, step: ScheduledStep, device: Candidate) -> ExecutionStep:
    """One step by itself, as if all before it had run.

    Raises:
        GeneralFailure: it has no inputs or no outputs, or the device cannot report a size (RT:P16, P17).
    """
    builder = _builder(source, 0, step)
    inside = set(step.operations)
    read_outside = {
        index
        for number, operation in enumerate(source.model.main.operations)
        if number not in inside
        for index in operation.inputs
    }
    return builder.finish(device, read_outside & set(builder.temps_written), read_outside)


def readers_wait(source: FinishedModel) -> list[int]:
    """For each main operation, as a mask, the operations whose results it reads."""
    main = source.model.main
    writers = {
        index: number
        for number, operation in enumerate(main.operations)
        for index in operation.outputs
    }
    return [
        _mask(writers[i] for i in operation.inputs if main.operands[i].lifetime in WRITTEN)
        for operation in main.operations
    ]


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _builder(source: FinishedModel, index: int, step: ScheduledStep) -> StepBuilder:
    builder = StepBuilder(source, index, 0, 0, step.device)
    for number in step.operations:
        builder.add(number)
    return builder
