"""Executions are counted by device, and what drivers execute of what they support."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nnburst
from nnburst import ModelBuilder, OperandType, OperationType
from nnburst.hal.enums import ResultCode
from nnburst.runtime import Manager
from nnburst.runtime.argument import Outcome
from nnburst.runtime.execution.executable import ExecutionCounts
from runtime.computing_device import ComputingDevice

T = OperandType.TENSOR_FLOAT32
X = np.array([[1.0, 2.0, 3.0]], np.float32)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> ExecutionCounts:
    fresh = ExecutionCounts()
    monkeypatch.setattr("nnburst.runtime.execution.executable.EXECUTIONS", fresh)
    return fresh


def chain() -> nnburst.Model:
    """(x + x) * x."""
    builder = ModelBuilder()
    x, s, y = builder.input(T, (1, 3)), builder.temporary(T, (1, 3)), builder.output(T, (1, 3))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [s])
    builder.operation(OperationType.MUL, [s, x, builder.scalar(0)], [y])
    return builder.build()


def only(*kinds: OperationType) -> Callable[..., bool]:
    return lambda operation, _model: operation.type in kinds


def compute(device: ComputingDevice, times: int = 1) -> None:
    with (
        Manager([device]) as manager,
        nnburst.compile(chain(), manager=manager) as compiled,
    ):
        for _ in range(times):
            assert compiled.execute([X]).outputs[0].tolist() == (2 * X * X).tolist()


def test_a_step_on_a_driver_makes_it_an_execution_on_drivers(counts: ExecutionCounts) -> None:
    compute(ComputingDevice("adder", only(OperationType.ADD), 0.5), times=3)
    assert counts.as_json() == {
        "by_device": {"adder": 3, "nnapi-reference": 3},
        "supported_by_drivers": 3,
        "on_drivers": 3,
    }


def test_a_whole_model_on_a_driver_is_one_execution_on_drivers(counts: ExecutionCounts) -> None:
    compute(ComputingDevice("both", only(OperationType.ADD, OperationType.MUL), 0.5))
    assert counts.as_json() == {
        "by_device": {"both": 1},
        "supported_by_drivers": 1,
        "on_drivers": 1,
    }


def test_what_a_slow_driver_supports_counts_although_the_cpu_executes_it(
    counts: ExecutionCounts,
) -> None:
    compute(ComputingDevice("slow", only(OperationType.ADD), 2.0))
    assert counts.as_json() == {
        "by_device": {"nnapi-reference": 1},
        "supported_by_drivers": 1,
        "on_drivers": 0,
    }


def test_a_model_of_which_drivers_support_nothing_counts_only_by_device(
    counts: ExecutionCounts,
) -> None:
    compute(ComputingDevice("other", only(OperationType.CONV_2D), 0.5))
    assert counts.as_json() == {
        "by_device": {"nnapi-reference": 1},
        "supported_by_drivers": 0,
        "on_drivers": 0,
    }


def test_an_execution_that_the_cpu_had_to_repeat_is_not_on_drivers(counts: ExecutionCounts) -> None:
    device = ComputingDevice("failing", only(OperationType.ADD, OperationType.MUL), 0.5)
    device.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED)
    compute(device)
    assert device.executed == 1
    assert counts.as_json() == {
        "by_device": {"nnapi-reference": 1},
        "supported_by_drivers": 1,
        "on_drivers": 0,
    }


def test_an_execution_that_fails_on_the_cpu_too_is_not_counted(counts: ExecutionCounts) -> None:
    builder = ModelBuilder()
    a, b, y = builder.input(T, (0, 3)), builder.input(T, (0, 3)), builder.output(T, (0, 3))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [y])
    device = ComputingDevice("adder", only(OperationType.ADD), 0.5)
    with (
        Manager([device]) as manager,
        nnburst.compile(builder.build(), manager=manager) as compiled,
        pytest.raises(nnburst.NnburstError, match="broadcast"),
    ):
        compiled.execute([np.zeros((2, 3), np.float32), np.zeros((3, 3), np.float32)])
    assert device.executed == 1
    assert counts.as_json() == {"by_device": {}, "supported_by_drivers": 0, "on_drivers": 0}
