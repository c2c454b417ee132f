"""Runs conformance tests through the framework's objects, over plans of many steps."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.client.launch import launch
from nnburst.hal.enums import ErrorStatus, OperandType, ResultCode
from nnburst.hal.errors import NnburstError
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model as HalModel
from nnburst.hal.model import size_bytes
from nnburst.runtime import (
    Burst,
    Compilation,
    Execution,
    Manager,
    Memory,
    Model,
    OperandDescription,
)
from nnburst.runtime.devices.cpu_device import CPU_NAME
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.devices.manager import Settings
from nnburst.runtime.planning.plan import CompoundPlan, Direction
from nnburst.testing.conformance.comparison import RunResult, Unsupported
from nnburst.testing.partitioning.run import uniform

Array = npt.NDArray[Any]


class FrameworkRunner:
    """Compiles models over the devices of a manager. See `nnburst.testing.conformance.runners.Runner`.

    Attributes:
        counts: plans by kind, and executions.
    """

    def __init__(self, manager: Manager, *, burst: bool = False) -> None:
        """Compile for all devices.

        Args:
            manager: the manager; `close` closes it.
            burst: whether to execute over bursts.
        """
        self._manager = manager
        self._burst = burst
        self.counts: Counter[str] = Counter()

    def prepare(self, model: HalModel, pools: Sequence[bytes]) -> FrameworkPrepared:
        """Compile `model`; see `Runner`."""
        memories = []
        for data in pools:
            memory = Memory.allocate(max(len(data), 1))
            memory.bytes[: len(data)] = np.frombuffer(data, np.uint8)
            memories.append(memory)
        compilation = Compilation(Model.of(model, memories), manager=self._manager)
        compilation.finish()
        kind = "compound" if isinstance(compilation.plan, CompoundPlan) else "simple"
        self.counts[kind] += 1
        burst = compilation.burst() if self._burst else None
        return FrameworkPrepared(compilation, burst, self.counts)

    def close(self) -> None:
        """Close the manager, and with it its devices."""
        self._manager.close()


class FrameworkPrepared:
    """A compilation with the interface that the suites use."""

    def __init__(self, compilation: Compilation, burst: Burst | None, counts: Counter[str]) -> None:
        """Own compilation and burst; count executions in `counts`."""
        plan = compilation.plan
        steps = plan.execution_steps if isinstance(plan, CompoundPlan) else (plan,)
        self._steps = sum(plan.devices[step.device] != CPU_NAME for step in steps)
        self._counts = counts
        self._compilation = compilation
        self._burst = burst

    def run(
        self,
        inputs: Sequence[Array | None],
        output_sizes: Sequence[int],
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> RunResult:
        """Execute once; see `PreparedRun`."""
        outputs = [np.full(size, 0xA5, np.uint8) for size in output_sizes]
        with self._compilation.execution() as execution:
            began = time.perf_counter_ns()
            try:
                self._set(execution, inputs, outputs)
                execution.loop_timeout = loop_timeout_ns / 1e9
                if self._burst is None:
                    execution.compute()
                else:
                    execution.burst_compute(self._burst)
            except NnburstError as error:
                if error.code == ResultCode.OUTPUT_INSUFFICIENT_SIZE:
                    shapes = error.output_shapes
                    return RunResult(error.status, shapes, (), str(error))
                return RunResult(error.status, (), (), str(error))
            total_ns = time.perf_counter_ns() - began
            self._counts["steps on drivers"] += self._steps
            shapes = execution.output_shapes
        contents = tuple(output.tobytes() for output in outputs)
        return RunResult(ErrorStatus.NONE, shapes, contents, "", total_ns=total_ns)

    def _set(
        self, execution: Execution, inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> None:
        for index, array in enumerate(inputs):
            if array is None:
                execution.set_input(index, None)
                continue
            operand = self._compilation._operand(Direction.INPUT, index)
            description = OperandDescription(
                operand.type, array.shape, operand.scale, operand.zero_point
            )
            execution.set_input(index, np.asarray(array, order="C"), description)
        for index, output in enumerate(outputs):
            operand = self._compilation._operand(Direction.OUTPUT, index)
            size = size_bytes(OperandType(operand.type), operand.dimensions)
            execution.set_output(index, output[:size] if size and size < output.size else output)

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        """Raise Unsupported: memories with roles have tests of their own; see `PreparedRun`."""
        del inputs
        raise Unsupported("plans have tests of their own for memory domains")

    def close(self) -> None:
        """Close burst and compilation."""
        if self._burst is not None:
            self._burst.close()
        self._compilation.close()


@contextmanager
def quiet_log() -> Iterator[None]:
    """Silence the framework's log below CRITICAL; its level is restored afterwards."""
    logger = logging.getLogger("nnburst.runtime")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


#: Name and cost of each driver.
COSTS: Final = (("sample_a", 0.5), ("sample_b", 0.6))


class PricedDriver(DriverDevice):
    """A driver with a given cost."""

    def __init__(self, executor: str, name: str, cost: float) -> None:
        """Launch the driver."""
        super().__init__(lambda: launch(executor), name=name)
        self.capabilities = uniform(cost)


def two_drivers(executor: str) -> Manager:
    """A manager over two drivers of an executor, each of which refuses a pseudo-random half of operations."""
    drivers = [PricedDriver(executor, name, cost) for name, cost in COSTS]
    return Manager(drivers, settings=Settings(refuses_half=True))


class PlansRunner(FrameworkRunner):
    """Runs every model over two drivers and the CPU, each step over the socket (`--via plans`)."""

    over_bursts = False

    def __init__(self, executor: str) -> None:
        """Launch the drivers."""
        super().__init__(two_drivers(executor), burst=self.over_bursts)
        self._quiet = ExitStack()
        self._quiet.enter_context(quiet_log())

    def close(self) -> None:
        """Close the drivers, and report the counts."""
        counted = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        sys.stderr.write(f"plans: {counted}\n")
        super().close()
        self._quiet.close()


class PlansBurstRunner(PlansRunner):
    """Runs every model as `PlansRunner` does, each step over its burst (`--via plans-burst`)."""

    over_bursts = True
