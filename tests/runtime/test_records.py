"""Records: each compilation and computation, given to the application alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

import nnburst
from nnburst import ModelBuilder
from nnburst.hal.enums import OperandType, OperationType, ResultCode
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.model import Operand
from nnburst.hal.types import Timing
from nnburst.runtime import CompilationRecord, ExecutionRecord, Manager
from nnburst.runtime.argument import Outcome
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.records import ExecutionMode, OperandClass, Record, operand_class
from runtime.building import add_model, finished
from runtime.computing_device import ComputingDevice
from shared_drivers import connect_to

X = np.array([1.0, 2.0], np.float32)
F32 = OperandType.TENSOR_FLOAT32


@pytest.fixture
def adder() -> ComputingDevice:
    return ComputingDevice("adder", lambda _operation, _model: True)


@pytest.fixture
def manager(adder: ComputingDevice) -> Iterator[Manager]:
    with Manager([adder]) as made:
        yield made


def kept(manager: Manager) -> list[Record]:
    records: list[Record] = []
    manager.records.callback = records.append
    return records


@pytest.mark.parametrize("mode", list(ExecutionMode))
def test_one_compilation_and_one_computation_give_a_record_each(
    manager: Manager, mode: ExecutionMode
) -> None:
    records = kept(manager)
    compilation = finished(add_model(2), manager=manager)
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    for index in range(2):
        execution.set_input(index, X)
    execution.set_output(0, out)
    if mode is ExecutionMode.SYNC:
        execution.compute()
    elif mode is ExecutionMode.BURST:
        with compilation.burst() as burst:
            execution.burst_compute(burst)
    else:
        event = execution.start() if mode is ExecutionMode.ASYNC else execution.start_after()
        event.wait()
    compiled, computed = records
    assert isinstance(compiled, CompilationRecord)
    assert isinstance(computed, ExecutionRecord)
    assert (compiled.code, compiled.fell_back_to_cpu) == (ResultCode.NO_ERROR, False)
    assert compiled.duration_ns > 0
    assert (computed.code, computed.mode) == (ResultCode.NO_ERROR, mode)
    assert (computed.runtime_ns is None) == (mode is ExecutionMode.ASYNC_WITH_DEPS)
    assert (computed.driver_ns, computed.hardware_ns) == (None, None)
    assert computed.facts == compiled.facts
    facts = compiled.facts
    assert facts.architecture_hash == compilation.model._finished_model.architecture_hash
    assert facts.device_id == f"adder=1,nnapi-reference={nnburst.__version__}"
    assert (facts.input_class, facts.output_class) == (OperandClass.FLOAT32, OperandClass.FLOAT32)
    assert not facts.is_explicit
    assert not facts.has_caching
    assert not facts.has_control_flow
    assert not facts.has_dynamic_temporaries


def test_a_compilation_that_fails_and_one_that_falls_back_are_recorded(
    manager: Manager, adder: ComputingDevice
) -> None:
    records = kept(manager)
    adder.on_prepare = lambda _model: NnburstError("it does not want to")
    finished(add_model(2), manager=manager)
    with pytest.raises(NnburstError, match="does not want"):
        finished(add_model(2), [adder], manager)
    fell_back, failed = records
    assert isinstance(fell_back, CompilationRecord)
    assert isinstance(failed, CompilationRecord)
    assert (fell_back.code, fell_back.fell_back_to_cpu) == (ResultCode.NO_ERROR, True)
    assert (failed.code, failed.fell_back_to_cpu) == (ResultCode.OP_FAILED, False)
    assert (fell_back.facts.is_explicit, failed.facts.is_explicit) == (False, True)
    assert failed.facts.device_id == "adder=1"


def test_a_failed_computation_is_recorded_with_its_code(
    manager: Manager, adder: ComputingDevice
) -> None:
    compilation = finished(add_model(2), [adder], manager)
    records = kept(manager)
    adder.on_execute = lambda _model: Outcome(ResultCode.RESOURCE_EXHAUSTED_TRANSIENT)
    execution = compilation.execution()
    for index in range(2):
        execution.set_input(index, X)
    execution.set_output(0, np.zeros(2, np.float32))
    with pytest.raises(NnburstError):
        execution.compute()
    assert [record.code for record in records] == [ResultCode.RESOURCE_EXHAUSTED_TRANSIENT]


def test_a_measured_computation_that_fails_is_recorded_without_times(
    manager: Manager, adder: ComputingDevice
) -> None:
    compilation = finished(add_model(2), [adder], manager)
    records = kept(manager)
    adder.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED, timing=Timing(3, 5))
    execution = compilation.execution()
    execution.measure_timing = True
    for index in range(2):
        execution.set_input(index, X)
    execution.set_output(0, np.zeros(2, np.float32))
    with pytest.raises(NnburstError):
        execution.compute()
    (record,) = records
    assert isinstance(record, ExecutionRecord)
    assert record.runtime_ns is not None
    assert (record.code, record.driver_ns, record.hardware_ns) == (ResultCode.OP_FAILED, None, None)


@pytest.mark.parametrize("mode", list(ExecutionMode))
def test_a_computation_that_ends_for_a_missing_argument_is_recorded(
    manager: Manager, mode: ExecutionMode
) -> None:
    compilation = finished(add_model(2), manager=manager)
    records = kept(manager)
    execution = compilation.execution()
    with compilation.burst() as burst, pytest.raises(InvalidArgument, match="it is not set"):
        if mode is ExecutionMode.SYNC:
            execution.compute()
        elif mode is ExecutionMode.BURST:
            execution.burst_compute(burst)
        elif mode is ExecutionMode.ASYNC:
            execution.start()
        else:
            execution.start_after()
    (record,) = records
    assert isinstance(record, ExecutionRecord)
    assert (record.code, record.mode) == (ResultCode.BAD_DATA, mode)


def test_a_compiled_model_and_its_bursts_are_recorded_over_a_driver() -> None:
    with Manager([DriverDevice(lambda: connect_to("reference"), name="driver")]) as manager:
        records = kept(manager)
        builder = ModelBuilder()
        x, y = builder.input(F32, (2,)), builder.output(F32, (2,))
        builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
        with (
            nnburst.compile(builder.build(), ["driver"], manager=manager) as compiled,
            compiled.open_burst() as burst,
        ):
            compiled.execute([X], measure=True)
            burst.execute([X])
            bound = burst.bind([X], None)
            for _ in range(3):
                bound.run()
        modes = [record.mode for record in records if isinstance(record, ExecutionRecord)]
        assert modes == [ExecutionMode.SYNC, *[ExecutionMode.BURST] * 4]
        measured = records[1]
        assert isinstance(measured, ExecutionRecord)
        assert measured.driver_ns is not None


def test_nothing_is_recorded_without_a_callback_or_behind_it(manager: Manager) -> None:
    records = kept(manager)
    manager.records.callback = None
    finished(add_model(2), manager=manager)
    assert records == []


def test_a_callback_that_raises_is_logged_and_breaks_nothing(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_record: Record) -> None:
        raise RuntimeError("the application's own fault")

    manager.records.callback = broken
    with caplog.at_level(logging.ERROR):
        finished(add_model(2), manager=manager)
    assert "the callback for records failed" in caplog.text


_FLOAT, _HALF, _INT = OperandType.FLOAT32, OperandType.TENSOR_FLOAT16, OperandType.TENSOR_INT32
_QUANT = OperandType.TENSOR_QUANT8_ASYMM


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], OperandClass.UNKNOWN),
        ([_FLOAT], OperandClass.OTHER),
        ([F32], OperandClass.FLOAT32),
        ([_FLOAT, F32], OperandClass.FLOAT32),
        ([F32, _FLOAT], OperandClass.FLOAT32),
        ([_FLOAT, _HALF, _INT], OperandClass.FLOAT16),
        ([_HALF, F32], OperandClass.MIXED),
        ([_HALF, F32, _HALF], OperandClass.MIXED),
        ([_FLOAT, _QUANT], OperandClass.QUANT),
        ([_QUANT, OperandType.TENSOR_QUANT16_SYMM], OperandClass.QUANT),
    ],
)
def test_real_and_quantised_tensors_say_the_class_and_others_do_not(
    types: list[OperandType], expected: OperandClass
) -> None:
    assert operand_class([Operand(kind) for kind in types]) == expected
