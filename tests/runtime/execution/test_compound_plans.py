"""Plans of several steps: what flows between them, falls back, repeats (RTT:P9 to P12, F1, F2, L1, I6)."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from nnburst.hal.enums import OperandType, OperationType, ResultCode
from nnburst.hal.errors import NnburstError, OutputInsufficientSize
from nnburst.hal.model import Model as HalModel
from nnburst.hal.model import Operation
from nnburst.runtime import Compilation, Manager, Model
from nnburst.runtime.argument import Outcome
from nnburst.runtime.execution.temporaries import TemporaryPool
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    SimplePlan,
    WhileStep,
)
from runtime.building import Built, bad_data, finished, floats, op_failed, scalar
from runtime.computing_device import ComputingDevice

X = np.array([1.0, 2.0], np.float32)


def only(*kinds: OperationType) -> object:
    def supports(operation: Operation, _model: HalModel) -> bool:
        return operation.type in kinds

    return supports


def chain() -> Model:
    """(x + x) * x, then + x."""
    built = Built()
    x, s, p, y = (built.tensor(2) for _ in range(4))
    built.add(x, x, s)
    built.add(s, x, p, OperationType.MUL)
    built.add(p, x, y)
    return built.finish([x], [y])


def compute(compilation: Compilation, x: np.ndarray = X, way: str = "compute") -> np.ndarray:
    execution, out = compilation.execution(), np.zeros(x.size, np.float32)
    execution.set_input(0, x)
    execution.set_output(0, out)
    if way == "burst":
        with compilation.burst() as burst:
            execution.burst_compute(burst)
    elif way == "start":
        execution.start().wait()
    elif way == "fenced":
        execution.start_after([]).wait()
    else:
        execution.compute()
    return out


@pytest.fixture
def adder() -> ComputingDevice:
    return ComputingDevice("adder", only(OperationType.ADD), 0.5)


@pytest.fixture
def multiplier() -> ComputingDevice:
    return ComputingDevice("multiplier", only(OperationType.MUL), 0.6)


@pytest.mark.parametrize("way", ["compute", "burst", "start", "fenced"])
def test_two_explicit_devices_share_a_model(
    adder: ComputingDevice, multiplier: ComputingDevice, way: str
) -> None:
    compilation = finished(chain(), [adder, multiplier], Manager([adder, multiplier]))
    plan = compilation.plan
    assert isinstance(plan, CompoundPlan)
    assert [step.device for step in plan.execution_steps] == [0, 1, 0]
    assert compute(compilation, way=way).tolist() == [3.0, 10.0]
    assert (adder.executed, multiplier.executed) == (2, 1)


def test_an_explicit_device_that_lacks_an_operation_is_not_replaced(
    adder: ComputingDevice,
) -> None:
    compilation = Compilation(chain(), [adder], manager=Manager([adder]))
    with bad_data():
        compilation.finish()


@pytest.mark.parametrize("fails", ["adder", "multiplier", "both"])
def test_a_step_that_fails_is_computed_by_the_cpu(
    adder: ComputingDevice, multiplier: ComputingDevice, fails: str
) -> None:
    for device in (adder, multiplier):
        if fails in (device.name, "both"):
            device.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED, message="told to fail")
    compilation = finished(chain(), None, Manager([adder, multiplier]))
    for _ in range(2):
        assert compute(compilation).tolist() == [3.0, 10.0]


@pytest.mark.parametrize(
    "code",
    [
        ResultCode.UNAVAILABLE_DEVICE,
        ResultCode.OP_FAILED,
        ResultCode.BAD_DATA,
        ResultCode.DEAD_OBJECT,
        ResultCode.MISSED_DEADLINE_TRANSIENT,
        ResultCode.RESOURCE_EXHAUSTED_PERSISTENT,
    ],
)
@pytest.mark.parametrize("way", ["compute", "burst", "start", "fenced"])
def test_with_an_explicit_list_the_code_of_a_failing_step_is_the_result(
    adder: ComputingDevice, multiplier: ComputingDevice, code: ResultCode, way: str
) -> None:
    multiplier.on_execute = lambda _model: Outcome(code, message="told to fail")
    compilation = finished(chain(), [adder, multiplier], Manager([adder, multiplier]))
    with pytest.raises(NnburstError, match="told to fail") as error:
        compute(compilation, way=way)
    assert error.value.code == code


def test_a_device_that_lies_about_shapes_fails_its_step(multiplier: ComputingDevice) -> None:
    from nnburst.hal.types import OutputShape

    multiplier.on_execute = lambda _model: Outcome(output_shapes=(OutputShape((3,), True),))
    manager = Manager([multiplier])
    with op_failed():
        compute(finished(chain(), [multiplier, manager.cpu], manager))
    assert compute(finished(chain(), None, manager)).tolist() == [3.0, 10.0]


def test_a_device_that_does_not_prepare_leaves_the_model_to_the_cpu(
    adder: ComputingDevice, multiplier: ComputingDevice
) -> None:
    from nnburst.hal.errors import GeneralFailure

    multiplier.on_prepare = lambda _model: GeneralFailure("prepare: told to fail")
    manager = Manager([adder, multiplier])
    compilation = finished(chain(), None, manager)
    assert isinstance(compilation.plan, SimplePlan)
    assert compilation._finished_executable.fell_back
    assert compute(compilation).tolist() == [3.0, 10.0]
    explicit = Compilation(chain(), [adder, multiplier], manager=manager)
    with op_failed():
        explicit.finish()


def open_chain() -> Model:
    """Two PADs of x feed an ADD; what the first gives has no known shape and is no output."""
    built = Built()
    model = built.model
    x = built.tensor(2)
    paddings = model.add_operand(floats(1, 2).__class__(OperandType.TENSOR_INT32, (1, 2)))
    model.set_operand_value(paddings, np.array([[1, 2]], np.int32))
    inner, outer, y = built.tensor(0), built.tensor(0), built.tensor(0)
    model.add_operation(OperationType.PAD, [x, paddings], [inner])
    model.add_operation(OperationType.PAD, [x, paddings], [outer])
    built.add(inner, outer, y)
    return built.finish([x], [outer, y])


def test_a_temporary_of_unknown_size_grows_until_it_fits() -> None:
    padder = ComputingDevice("padder", only(OperationType.PAD))
    manager = Manager([padder])
    compilation = finished(open_chain(), None, manager)
    assert isinstance(compilation.plan, CompoundPlan)
    assert len(compilation.plan.dynamic_temporaries) == 1
    for room, enough in ((40, True), (20, True), (16, False), (4, False)):
        execution = compilation.execution()
        outputs = [np.zeros(room, np.uint8) for _ in range(2)]
        execution.set_input(0, X)
        for index, output in enumerate(outputs):
            execution.set_output(index, output)
        if not enough:
            with pytest.raises(OutputInsufficientSize):
                execution.compute()
            continue
        execution.compute()
        assert execution.output_dimensions(0) == execution.output_dimensions(1) == (5,)
        assert outputs[1][:20].view(np.float32).tolist() == [0, 2, 4, 0, 0]


def endless() -> Model:
    """A WHILE whose condition is its input, then SQRT."""
    cond, body = Built(), Built()
    flag, value = cond.model.add_operand(scalar_tensor()), cond.tensor(2)
    again = cond.model.add_operand(scalar_tensor())
    cond.model.add_operation(OperationType.LOGICAL_OR, [flag, flag], [again])
    condition = cond.finish([flag, value], [again])
    flag, value = body.model.add_operand(scalar_tensor()), body.tensor(2)
    flag_out, value_out = body.model.add_operand(scalar_tensor()), body.tensor(2)
    body.model.add_operation(OperationType.LOGICAL_OR, [flag, flag], [flag_out])
    body.add(value, value, value_out)
    step = body.finish([flag, value], [flag_out, value_out])
    built = Built()
    flag, value = built.model.add_operand(scalar_tensor()), built.tensor(2)
    flag_out, value_out, y = (
        built.model.add_operand(scalar_tensor()),
        built.tensor(2),
        built.tensor(2),
    )
    models = [built.model.add_operand(scalar(OperandType.SUBGRAPH)) for _ in range(2)]
    for operand, model in zip(models, (condition, step), strict=True):
        built.model.set_operand_value_from_model(operand, model)
    built.model.add_operation(OperationType.WHILE, [*models, flag, value], [flag_out, value_out])
    built.model.add_operation(OperationType.SQRT, [value_out], [y])
    return built.finish([flag, value], [y])


def scalar_tensor() -> object:
    from nnburst.runtime import OperandDescription

    return OperandDescription(OperandType.TENSOR_BOOL8, (1,))


def run_endless(compilation: Compilation, flag: bool, timeout: float = 2.0) -> np.ndarray:
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    execution.set_input(0, np.array([flag]))
    execution.set_input(1, np.array([4.0, 9.0], np.float32))
    execution.set_output(0, out)
    execution.loop_timeout = timeout
    execution.compute()
    return out


def test_the_partial_fallback_repeats_the_step_and_not_the_loop_before_it() -> None:
    driver = ComputingDevice("driver", only(OperationType.SQRT), 0.1)
    driver.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED, message="always")
    compilation = finished(endless(), None, Manager([driver]))
    plan = compilation.plan
    assert isinstance(plan, CompoundPlan)
    kinds = [type(step) for step in plan.steps]
    assert kinds == [WhileStep, ExecutionStep, GotoStep, ExecutionStep, GotoStep, ExecutionStep]
    assert run_endless(compilation, False).tolist() == [2.0, 3.0]
    assert driver.executed == 1


def test_an_endless_loop_ends_by_its_timeout_without_fallback() -> None:
    driver = ComputingDevice("driver", only(OperationType.SQRT), 0.1)
    compilation = finished(endless(), None, Manager([driver]))
    with pytest.raises(NnburstError) as error:
        run_endless(compilation, True, 1e-3)
    assert error.value.code in (
        ResultCode.MISSED_DEADLINE_TRANSIENT,
        ResultCode.MISSED_DEADLINE_PERSISTENT,
    )


def test_a_simple_plan_that_fails_succeeds_through_the_cpu() -> None:
    driver = ComputingDevice("driver", only(OperationType.SQRT), 0.1)
    driver.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED, message="always")
    built = Built()
    x, y = built.tensor(2), built.tensor(2)
    built.model.add_operation(OperationType.SQRT, [x], [y])
    compilation = finished(built.finish([x], [y]), None, Manager([driver]))
    assert isinstance(compilation.plan, SimplePlan)
    assert compute(compilation, np.array([4.0, 9.0], np.float32)).tolist() == [2.0, 3.0]
    assert driver.executed == 1


def test_a_reader_cannot_map_temporaries_of_another_device_for_writing() -> None:
    with TemporaryPool(4096, frozenset((1,))) as pool:
        pool.view(1, 0, 4)[...] = 7
        reading = pool.view(0, 0, 4)
        assert reading.tolist() == [7] * 4
        assert not reading.flags.writeable
        for attached, may_write in ((pool._for_readers, False), (pool._for_writers, True)):
            fd = attached.duplicate()
            try:
                with mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE):
                    assert may_write
            except PermissionError:
                assert not may_write
            finally:
                os.close(fd)


def test_temporaries_are_kept_for_the_next_computation(
    adder: ComputingDevice, multiplier: ComputingDevice
) -> None:
    compilation = finished(chain(), None, Manager([adder, multiplier]))
    compute(compilation)
    memory = compilation._finished_executable._compound
    assert memory is not None
    first = memory.take()
    memory.release(first)
    compute(compilation)
    assert memory.take() is first
