"""Provides the cases of plans over several devices, and measures the cost of planning."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from nnburst._native import ffi, lib
from nnburst.bench.cases import (
    WARM_UP,
    BareFutex,
    Contestant,
    Looped,
    Samples,
    adding_model,
    durations,
)
from nnburst.bench.peer import Peer
from nnburst.client.burst.bound_request import RingRequest
from nnburst.client.burst.interface import BoundRequest, Burst
from nnburst.client.burst.steps import BoundSteps, run_steps
from nnburst.client.launch import launch
from nnburst.client.memory import Memory
from nnburst.client.session.gate import Gate
from nnburst.executor.base import Argument, Execution, Outcome
from nnburst.executor.null import NullExecutor, NullPrepared
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import FeatureLevel, OperandType, OperationType
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import (
    Capabilities,
    OutputShape,
    PerformanceInfo,
    non_extension_operand_performance,
)
from nnburst.hal.validation import validate_model
from nnburst.runtime import Manager
from nnburst.runtime.compile import compile as compile_model
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.planning.finished_model import finish
from nnburst.runtime.planning.plan import CompoundPlan, PartitioningMode
from nnburst.runtime.planning.planner import Planner

DEVICES: Final = 4
_HALF: Final = PerformanceInfo(0.5, 0.5)
_CAPABILITIES: Final = Capabilities(
    _HALF, _HALF, non_extension_operand_performance(_HALF), _HALF, _HALF
)


@dataclass(frozen=True, slots=True)
class PlanningTimes:
    """The times of planning in milliseconds, the best of the rounds.

    Attributes:
        operations: number of operations in the model.
        steps: number of steps in the plan.
        level: feature level of the devices.
        validate: time of one validation of the model.
        finish: time of finishing it: run order, validation, hash, trailing arguments.
        plan: time of planning: asking devices, placing, making steps and their models.
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
    """Make a model of ADDs, each of which reads the result of the one before."""
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


#: Seconds that a waiting execution takes.
WAIT: Final = 1e-3


class _Waiting(Execution):
    def __init__(self, shapes: tuple[OutputShape, ...]) -> None:
        self._outcome = Outcome(output_shapes=shapes)

    def run(self, *_deadlines: int | None) -> Outcome:
        time.sleep(WAIT)
        return self._outcome


class _WaitingPrepared(NullPrepared):
    def bind(self, _inputs: Sequence[Argument], outputs: Sequence[Argument]) -> _Waiting:  # type: ignore[override]
        return _Waiting(
            tuple(OutputShape(tuple(d or 1 for d in o.dimensions), True) for o in outputs)
        )


class TimedWait(NullExecutor):
    """An executor that supports every model, and whose executions wait."""

    name = "timed_wait"

    def prepare(self, model: Model, *_more: object) -> NullPrepared:
        """Prepare a model whose executions wait."""
        return _WaitingPrepared(model)


#: Bytes that pass between two steps, by the name of the case.
BETWEEN: Final = {
    "plan_of_two_steps": 64,
    "plan_of_two_150KB": 150 * 1024,
    "plan_of_two_1MB": 1 << 20,
}
_KINDS: Final = (OperationType.ADD, OperationType.MUL)


class _OneKind(DriverDevice):
    """The null executor, which supports one kind of operation only."""

    def __init__(self, kind: OperationType, core: int, executor: str = "null") -> None:
        super().__init__(lambda: launch(executor, cpus={core}), name=kind.name.lower())
        self._kind = kind

    def supported_operations(self, model: Model, pools: Sequence[Memory]) -> list[bool]:  # noqa: ARG002
        return [operation.type == self._kind for operation in model.main.operations]


def _two_steps(size: int) -> Model:
    """An ADD and a MUL, with `size` bytes between them."""
    builder = ModelBuilder()
    shape = (1, size // 4)
    x = builder.input(OperandType.TENSOR_FLOAT32, shape)
    between = builder.temporary(OperandType.TENSOR_FLOAT32, shape)
    y = builder.output(OperandType.TENSOR_FLOAT32, shape)
    builder.operation(_KINDS[0], [x, x, builder.scalar(0)], [between])
    builder.operation(_KINDS[1], [between, x, builder.scalar(0)], [y])
    return builder.build()


def _bound(stack: ExitStack, model: Model, manager: Manager) -> BoundRequest:
    names = [device.name for device in manager.devices if not device.is_cpu]
    compiled = stack.enter_context(compile_model(model, names, manager=manager))
    return stack.enter_context(compiled.open_burst()).bind()


def simple_plan(stack: ExitStack, core: int) -> Contestant:
    """The case of a plan of one step, from `nnburst.compile`."""
    driver = DriverDevice(lambda: launch("null", cpus={core}), name="null")
    manager = stack.enter_context(Manager([driver]))
    return Looped("compiled_1in1out", _bound(stack, adding_model(1, 1), manager).run)


def plans_of_two(stack: ExitStack, cores: Sequence[int]) -> list[Contestant]:
    """Cases of a futex exchange, and of plans of two steps on two drivers, on these cores."""
    peer = stack.enter_context(Peer(cores[0]))
    devices = [_OneKind(kind, core) for kind, core in zip(_KINDS, cores, strict=True)]
    manager = stack.enter_context(Manager(devices))
    runs = {name: _bound(stack, _two_steps(size), manager).run for name, size in BETWEEN.items()}
    return [
        BareFutex(peer, "futex_two_cores"),
        *(Looped(name, run) for name, run in runs.items()),
    ]


class _Pipelined:
    """A case of executions with two steps that wait a millisecond each, several under way at once."""

    def __init__(self, name: str, requests: Sequence[BoundRequest]) -> None:
        self.name = name
        self._requests = requests

    def block(self, count: int) -> float:
        """See `Contestant`."""
        return float(np.mean(self.samples(count)))

    def samples(self, count: int) -> Samples:
        """See `Contestant`; the first ones fill the pipeline and are not counted."""
        out = deque(request.submit() for request in self._requests)
        stamps = [0] * (count + 1)
        for index in range(count + 1):
            out.popleft().result()
            stamps[index] = time.perf_counter_ns()
            out.append(self._requests[index % len(self._requests)].submit())
        for pending in out:
            pending.result()
        return durations(stamps)


def pipelines(stack: ExitStack, cores: Sequence[int]) -> list[Contestant]:
    """Cases of one and two executions under way at once, on two drivers that wait."""
    executor = f"{TimedWait.__module__}:{TimedWait.__name__}"
    devices = [_OneKind(kind, core, executor) for kind, core in zip(_KINDS, cores, strict=True)]
    manager = stack.enter_context(Manager(devices))
    names = [device.name for device in devices]
    compiled = stack.enter_context(compile_model(_two_steps(64), names, manager=manager))
    cases: list[Contestant] = []
    for name, most in (("pipeline_of_one", 1), ("pipeline_of_two", 2)):
        burst = stack.enter_context(compiled.open_burst(max_in_flight=most))
        cases.append(_Pipelined(name, [burst.bind() for _ in range(most)]))
    return cases


class _InOneProcess:
    """A case of two requests of one burst in a loop in C: the cost of a plan's steps besides their runs."""

    def __init__(self, name: str, loop: Any, steps: BoundSteps) -> None:  # noqa: ANN401 - of cffi
        self.name = name
        self._loop = loop
        self._steps = steps

    def block(self, count: int) -> float:
        """See `Contestant`."""
        self._run(WARM_UP, ffi.NULL)
        return self._run(count, ffi.NULL) / count

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        found = np.zeros(count, np.uint64)
        self._run(WARM_UP, ffi.NULL)
        self._run(count, ffi.from_buffer("uint64_t[]", found))
        return found

    def _run(self, count: int, samples: object) -> int:
        total = int(self._loop(self._steps.struct, count, samples))
        if not total:
            raise GeneralFailure(f"{self.name}: a step ended otherwise than before")
        return total


def steps_in_c(burst: Burst) -> list[Contestant]:
    """Cases of two requests by one C call, and by two calls."""
    requests = [cast("RingRequest", burst.bind()) for _ in range(2)]
    steps = BoundSteps(requests, Gate(), 30.0)
    code = run_steps(steps.struct)
    steps.conclude(code, lambda _at, _result: True)
    return [
        _InOneProcess("two_steps_in_c", lib.nnb_bench_steps, steps),
        _InOneProcess("two_runs_in_c", lib.nnb_bench_runs, steps),
    ]
