"""Cases of plans: models compiled over drivers of the null executor, and the C call that runs their steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np

from nnburst._native import ffi, lib
from nnburst.bench.contestants import WARM_UP, BareFutex, Contestant, Looped, Samples
from nnburst.bench.drivers import adding_model
from nnburst.bench.peer import Peer
from nnburst.bench.plans.timed_wait import TimedWait
from nnburst.client.burst.burst import Burst
from nnburst.client.burst.steps import BoundSteps, run_steps
from nnburst.client.launch import launch
from nnburst.client.memory.memory import Memory
from nnburst.client.session.gate import Gate
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.runtime import Manager
from nnburst.runtime.compile import compile as compile_model
from nnburst.runtime.compiled_burst import CompiledRequest
from nnburst.runtime.devices.driver_device import DriverDevice

#: Bytes between two steps, by the name of the case.
BETWEEN: Final = {
    "plan_of_two_steps": 64,
    "plan_of_two_150KB": 150 * 1024,
    "plan_of_two_1MB": 1 << 20,
}
_KINDS: Final = (OperationType.ADD, OperationType.MUL)


class _OneKind(DriverDevice):
    """The null executor, asked for one kind of operation only."""

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


def _bound(stack: ExitStack, model: Model, manager: Manager) -> CompiledRequest:
    names = [device.name for device in manager.devices if not device.is_cpu]
    compiled = stack.enter_context(compile_model(model, names, manager=manager))
    return stack.enter_context(compiled.open_burst()).bind()


def simple_plan(stack: ExitStack, core: int) -> Contestant:
    """A plan of one step, as `nnburst.compile` gives it."""
    driver = DriverDevice(lambda: launch("null", cpus={core}), name="null")
    manager = stack.enter_context(Manager([driver]))
    return Looped("compiled_1in1out", _bound(stack, adding_model(1, 1), manager).run)


def plans_of_two(stack: ExitStack, cores: Sequence[int]) -> list[Contestant]:
    """A bare futex exchange, and plans of two steps on two drivers, on these cores."""
    peer = stack.enter_context(Peer(cores[0]))
    devices = [_OneKind(kind, core) for kind, core in zip(_KINDS, cores, strict=True)]
    manager = stack.enter_context(Manager(devices))
    runs = {name: _bound(stack, _two_steps(size), manager).run for name, size in BETWEEN.items()}
    return [
        BareFutex(peer, "futex_two_cores"),
        *(Looped(name, run) for name, run in runs.items()),
    ]


class _Pipelined:
    """Executions of two steps that wait a millisecond each, so many of them under way at once."""

    def __init__(self, name: str, requests: Sequence[CompiledRequest]) -> None:
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
        return np.diff(np.asarray(stamps, np.int64)).astype(np.uint64)


def pipelines(stack: ExitStack, cores: Sequence[int]) -> list[Contestant]:
    """One and two executions under way at once, over two drivers that wait."""
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
    """Two requests of one burst in a loop in C: what the steps of a plan cost besides their runs."""

    def __init__(self, name: str, loop: Any, steps: BoundSteps) -> None:  # noqa: ANN401 - of cffi's
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
    """Two requests by one call, and each by a call of its own."""
    steps = BoundSteps([burst.bind(), burst.bind()], Gate(), 30.0)
    code = run_steps(steps.struct)
    steps.conclude(code, lambda _at, _result: None)
    return [
        _InOneProcess("two_steps_in_c", lib.nnb_bench_steps, steps),
        _InOneProcess("two_runs_in_c", lib.nnb_bench_runs, steps),
    ]
