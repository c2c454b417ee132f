"""Simulates devices of known cost under a virtual clock, and lists every plan of a model."""

from __future__ import annotations

import itertools
import math
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import unpack_from

import numpy as np

from nnburst.hal.enums import FeatureLevel, OperandType, OperationType, ResultCode
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model, Operation, size_bytes
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Capabilities
from nnburst.runtime.argument import Argument, Options, Outcome
from nnburst.runtime.planning.finished_model import FinishedModel
from nnburst.runtime.planning.plan import ExecutionStep
from nnburst.runtime.planning.steps import Schedule, ScheduledStep, lone_step, readers_wait
from nnburst.testing.partitioning.run import uniform

F32 = OperandType.TENSOR_FLOAT32


class VirtualClock:
    """Seconds that pass only when something takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class KnownDevice:
    """A device whose steps cost a fixed part, one for each operation, and one for each byte that crosses."""

    name: str
    step: float
    byte: float
    clock: VirtualClock
    spread: float = 20.0
    refuses: frozenset[int] = frozenset()
    prepared: int = 0
    executed: int = 0
    version_string: str = "1"
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4
    is_cpu: bool = False
    capabilities: Capabilities = field(default_factory=lambda: uniform(0.5))
    noise: np.random.Generator | None = None

    def supported_operations(self, model: Model, pools: Sequence[int]) -> list[bool]:
        del pools
        return [operation.type not in self.refuses for operation in model.main.operations]

    def operation_seconds(self, operation: Operation, model: Model) -> float:
        """By type and fused activation, from 1 to `spread` microseconds."""
        activation = 0
        if operation.type in (OperationType.ADD, OperationType.MUL):
            at = model.main.operands[operation.inputs[2]].location.offset
            activation = unpack_from("<i", model.operand_values, at)[0]
        lot = zlib.crc32(f"{self.name} {int(operation.type)} {activation}".encode()) / 2**32
        return 1e-6 * self.spread**lot

    def seconds(self, model: Model) -> float:
        """The cost of a step with this model."""
        main = model.main
        crossing = sum(
            size_bytes(F32, main.operands[index].dimensions)
            for index in (*main.input_indexes, *main.output_indexes)
        )
        operations = sum(self.operation_seconds(o, model) for o in main.operations)
        return self.step + self.byte * crossing + operations

    def prepare(self, step: ExecutionStep) -> KnownPart:
        self.prepared += 1
        return KnownPart([(self, step.model)])


@dataclass
class KnownPart:
    """A prepared model whose execution takes time and computes nothing."""

    steps: list[tuple[KnownDevice, Model]]
    fails: bool = False

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        del inputs, outputs, options
        for device, model in self.steps:
            device.executed += 1
            factor = 1.0 if device.noise is None else device.noise.lognormal(0, 0.05)
            device.clock.now += factor * device.seconds(model)
        return Outcome(ResultCode.OP_FAILED) if self.fails else Outcome()

    died_ns = None

    def revive(self) -> None:
        """Do nothing, since the device cannot die."""

    def open_burst(self) -> None:
        return None

    def close(self) -> None:
        pass


def grown(rng: np.random.Generator, operations: int) -> Model:
    """A random graph without control flow; every result is read or an output."""
    builder = ModelBuilder()
    dims = [(int(rng.integers(1, 200)),)]
    values = [builder.input(F32, dims[0]) for _ in range(2)]
    read: set[int] = set()
    made: list[int] = []
    plans = []
    for _ in range(operations):
        a, b = (int(rng.choice(values[-4:])) for _ in range(2))
        kind = OperationType(int(rng.choice([0, 18, OperationType.TANH, OperationType.MAXIMUM])))
        read |= {a} if kind == OperationType.TANH else {a, b}
        plans.append((kind, a, b, len(values)))
        values.append(len(values))
        made.append(values[-1])
    indexes: dict[int, int] = {0: values[0], 1: values[1]}
    for kind, a, b, result in plans:
        make = builder.temporary if result in read else builder.output
        indexes[result] = make(F32, dims[0])
        inputs = [indexes[a]] if kind == OperationType.TANH else [indexes[a], indexes[b]]
        if kind in (OperationType.ADD, OperationType.MUL):
            inputs.append(builder.scalar(int(rng.integers(4))))
        builder.operation(kind, inputs, [indexes[result]])
    return builder.build()


class Enumerated:
    """Every assignment of a model's operations to devices, as the partitioner would lay it out (RT:P10)."""

    def __init__(self, source: FinishedModel, devices: Sequence[KnownDevice]) -> None:
        self._source = source
        self._devices = devices
        self._waits = readers_wait(source)
        self._costs: dict[ScheduledStep, float] = {}

    def best(self) -> float:
        """Seconds of the cheapest assignment."""
        count = len(self._waits)
        assignments = itertools.product(range(len(self._devices)), repeat=count)
        return min(self.seconds(self.laid_out(assignment)) for assignment in assignments)

    def laid_out(self, assignment: Sequence[int]) -> Schedule:
        """The steps of an assignment."""
        done, steps = 0, []
        queues: list[deque[int]] = [deque() for _ in self._devices]
        queued: set[int] = set()

        def enqueue() -> None:
            for number, waits in enumerate(self._waits):
                if number not in queued and not waits & ~done:
                    queued.add(number)
                    queues[assignment[number]].append(number)

        enqueue()
        while any(queues):
            device = max(n for n, queue in enumerate(queues) if queue)
            run = []
            while queues[device]:
                run.append(queues[device].popleft())
                done |= 1 << run[-1]
                enqueue()
            steps.append(ScheduledStep(device, tuple(sorted(run))))
        return tuple(steps)

    def seconds(self, schedule: Schedule) -> float:
        """The real cost of a schedule."""
        return sum(map(self._step, schedule))

    def _step(self, step: ScheduledStep) -> float:
        if step not in self._costs:
            device = self._devices[step.device]
            operations = self._source.model.main.operations
            if any(operations[number].type in device.refuses for number in step.operations):
                self._costs[step] = math.inf
            else:
                try:
                    found = lone_step(self._source, step, device)
                    self._costs[step] = device.seconds(found.model)
                except GeneralFailure:
                    self._costs[step] = math.inf
        return self._costs[step]


def assembled(
    source: FinishedModel, devices: Sequence[KnownDevice], schedule: Schedule
) -> KnownPart:
    """A whole plan."""
    parts = []
    for step in schedule:
        device = devices[step.device]
        found = lone_step(source, step, device)
        parts.append((device, found.model))
    return KnownPart(parts)
