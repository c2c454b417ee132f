"""Behaviours that the original's tests require and no other file here tests (RTT)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from forked_child import true_in_child
from nnburst.hal.enums import FeatureLevel, OperandType, OperationType, ResultCode
from nnburst.hal.errors import NnburstError
from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation
from nnburst.runtime import (
    Compilation,
    Execution,
    Manager,
    Memory,
    MemoryDesc,
    Model,
    OperandDescription,
)
from nnburst.runtime.argument import Outcome
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.extensions import TYPES, TypeRegistry
from runtime.building import Built, add_model, bad_data, bad_state, finished, floats, op_failed
from runtime.computing_device import ComputingDevice
from shared_drivers import connect_to

X = np.array([1.0, 2.0], np.float32)
STATUSES = (
    ResultCode.UNAVAILABLE_DEVICE,
    ResultCode.OP_FAILED,
    ResultCode.BAD_DATA,
    ResultCode.DEAD_OBJECT,
)
WAYS: dict[str, Callable[[Execution, Compilation], None]] = {
    "compute": lambda e, _c: e.compute(),
    "start": lambda e, _c: e.start().wait(),
    "burst": lambda e, c: e.burst_compute(c.burst()),
}


@pytest.fixture(scope="module")
def driver() -> Iterator[Manager]:
    manager = Manager([DriverDevice(lambda: connect_to("reference"), name="driver")])
    yield manager
    manager.close()


def ready(compilation: Compilation) -> tuple[Execution, np.ndarray]:
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    for index in range(2):
        execution.set_input(index, X)
    execution.set_output(0, out)
    return execution, out


def told(code: ResultCode) -> tuple[ComputingDevice, Compilation]:
    """A device that takes everything and answers with `code`, and a compilation for it alone."""
    device = ComputingDevice("told", lambda _o, _m: True)
    device.on_execute = lambda _model: Outcome(code, message="device: as it was told")
    return device, finished(add_model(2), [device], Manager([device]))


@pytest.mark.parametrize("code", STATUSES, ids=lambda c: c.name)
@pytest.mark.parametrize("way", WAYS)
def test_the_status_of_a_driver_is_the_code_of_every_way(code: ResultCode, way: str) -> None:
    _, compilation = told(code)
    execution, _ = ready(compilation)
    with pytest.raises(NnburstError) as error:
        WAYS[way](execution, compilation)
    assert error.value.code == code
    with bad_state():
        execution.output_dimensions(0)


def test_a_started_computation_reports_in_wait_alone_that_the_driver_failed() -> None:
    _, compilation = told(ResultCode.OP_FAILED)
    event = ready(compilation)[0].start()
    with op_failed():
        event.wait()


def test_a_fenced_computation_of_a_failing_driver_has_no_event() -> None:
    _, compilation = told(ResultCode.OP_FAILED)
    with op_failed():
        ready(compilation)[0].start_after([])


def of_two(first: OperationType, second: OperationType, *, reverse: bool) -> Model:
    """Two operations, one after the other, added in either order."""
    built = Built()
    a, b, c = (built.tensor(2) for _ in range(3))

    def add(kind: OperationType, x: int, out: int) -> None:
        if kind is OperationType.MAXIMUM:
            built.model.add_operation(kind, [x, x], [out])
        else:
            built.add(x, x, out, kind)

    adds = [lambda: add(first, a, b), lambda: add(second, b, c)]
    for one in reversed(adds) if reverse else adds:
        one()
    return built.finish([a], [c])


@pytest.mark.parametrize(
    ("second", "reverse", "expected"),
    [
        (OperationType.MAXIMUM, False, [True, False]),
        (OperationType.MAXIMUM, True, [False, True]),
        (OperationType.MUL, False, [True, True]),
    ],
)
def test_what_is_supported_comes_in_the_order_of_adding(
    second: OperationType, reverse: bool, expected: list[bool]
) -> None:
    device = ComputingDevice("old", lambda _o, _m: True, feature_level=FeatureLevel.V1_1)
    manager = Manager([device])
    model = of_two(OperationType.ADD, second, reverse=reverse)
    assert model.supported_operations([device], manager) == expected
    assert model.supported_operations(manager.devices, manager) == [True, True]


def test_a_burst_and_its_memory_are_freed_in_either_order(driver: Manager) -> None:
    for memory_first in (True, False):
        compilation = finished(add_model(2), [driver.device("driver")], driver)
        burst, memory = compilation.burst(), Memory.allocate(24)
        execution = compilation.execution()
        for index in range(2):
            execution.set_input_from_memory(index, memory, 8 * index, 8)
        execution.set_output_from_memory(0, memory, 16, 8)
        memory.bytes[:16].view(np.float32)[...] = 1
        execution.burst_compute(burst)
        assert memory.bytes[16:].view(np.float32).tolist() == [2, 2]
        for thing in (memory, burst) if memory_first else (burst, memory):
            thing.close()


def device_memory(compilation: Compilation) -> Memory:
    desc = MemoryDesc()
    desc.add_output_role(compilation, 0, 1.0)
    desc.add_input_role(compilation, 0, 1.0)
    desc.finish()
    return desc.create_memory()


@pytest.mark.parametrize("explicit", [False, True])
def test_a_driver_keeps_the_memory_of_roles_that_are_all_its_own(
    driver: Manager, explicit: bool
) -> None:
    device = driver.device("driver")
    device.capabilities = ComputingDevice("", lambda _o, _m: True).capabilities  # type: ignore[misc]
    compilation = finished(add_model(2), [device] if explicit else None, driver)
    memory = device_memory(compilation)
    assert memory._buffer is not None
    execution = compilation.execution()
    execution.set_input(0, X)
    execution.set_input(1, X)
    execution.set_output_from_memory(0, memory)
    execution.compute()
    other, last = device_memory(compilation), Memory.allocate(8)
    Memory.copy(memory, other)
    Memory.copy(other, last)
    assert last.bytes.view(np.float32).tolist() == [2, 4]
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    execution.set_input_from_memory(0, other)
    execution.set_input(1, X)
    execution.set_output(0, out)
    execution.compute()
    assert out.tolist() == [3, 6]


def test_a_drivers_memory_of_open_dimensions_takes_only_what_has_dimensions(
    driver: Manager,
) -> None:
    device = driver.device("driver")
    memory, plain = (
        device_memory(finished(add_model(0, out=(0,)), [device], driver)),
        Memory.allocate(8),
    )
    assert memory._buffer is not None
    assert memory.size == 0
    with bad_data():
        Memory.copy(plain, memory)
    assert not memory.is_initialized
    other = device_memory(finished(add_model(2), [device], driver))
    plain.bytes[...] = X.view(np.uint8)
    Memory.copy(plain, other)
    Memory.copy(other, memory)
    assert memory.dimensions == (2,)
    assert memory.read().view(np.float32).tolist() == X.tolist()
    with bad_data():
        Memory.copy(plain, memory)


def test_roles_over_two_devices_have_plain_memory_unless_devices_were_listed() -> None:
    adder = ComputingDevice("adder", lambda o, _m: o.type == OperationType.ADD, 0.5)
    other = ComputingDevice("other", lambda o, _m: o.type == OperationType.MUL, 0.5)
    manager = Manager([adder, other])
    model = of_two(OperationType.ADD, OperationType.MUL, reverse=False)
    desc = MemoryDesc()
    compilation = finished(model, None, manager)
    desc.add_input_role(compilation, 0, 1.0)
    desc.add_output_role(compilation, 0, 1.0)
    desc.finish()
    assert desc.create_memory()._buffer is None
    listed = finished(model, [adder, other], manager)
    desc = MemoryDesc()
    desc.add_input_role(listed, 0, 1.0)
    desc.add_output_role(listed, 0, 1.0)
    desc.finish()
    with op_failed():
        desc.create_memory()


EXTENSION = Extension(
    "nnburst.test.behaviours",
    (
        ExtensionOperandTypeInformation(0, False, 8),
        ExtensionOperandTypeInformation(1, True, 4),
    ),
)


def test_operands_of_extensions_follow_what_devices_say_of_their_types() -> None:
    TYPES.register(EXTENSION, "a test")
    model = Model()
    scalar, tensor = (model.extension_operand_type(EXTENSION.name, n) for n in range(2))
    for wrong in (
        OperandDescription(scalar, (1,)),
        OperandDescription(tensor, (1 << 16, 1 << 16)),
        OperandDescription(tensor + 1, (1,)),
    ):
        with bad_data():
            model.add_operand(wrong)
    value = model.add_operand(OperandDescription(scalar))
    with bad_data():
        model.set_operand_value(value, bytes(4))
    model.set_operand_value(value, bytes(8))
    for dimensions in ((0,), ()):
        index = model.add_operand(OperandDescription(tensor, dimensions))
        with bad_data():
            model.set_operand_value(index, bytes(4))
    with bad_data():
        model.set_operand_per_channel(value, [1.0], 0)
    model.set_operand_extension_data(value, b"anything")
    model.set_operand_extension_data(value, None)
    with bad_data():
        model.set_operand_extension_data(value, b"")
    with bad_data():
        model.extension_operand_type("nobody.has.this", 0)


def test_two_drivers_that_disagree_on_an_extension_disable_it() -> None:
    registry = TypeRegistry()
    swapped = Extension(EXTENSION.name, tuple(reversed(EXTENSION.operand_types)))
    assert registry.register(EXTENSION, "first")
    assert registry.register(swapped, "second")
    assert registry.prefix(EXTENSION.name) == 1
    assert not registry.register(Extension(EXTENSION.name), "third")
    assert not registry.register(EXTENSION, "fourth")
    with bad_data():
        registry.prefix(EXTENSION.name)


def test_a_forked_child_uses_extensions_though_a_thread_was_naming_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naming, may_end = threading.Event(), threading.Event()

    class Slow(dict[int, str]):
        def __setitem__(self, prefix: int, name: str) -> None:
            naming.set()
            assert may_end.wait(60)
            super().__setitem__(prefix, name)

    monkeypatch.setattr(TYPES, "_name_of", Slow(TYPES._name_of))
    named, other = Extension("com.example.named"), Extension("com.example.other")
    for extension in (named, other):
        TYPES.register(extension, "a test")
    thread = threading.Thread(target=TYPES.prefix, args=(named.name,))
    thread.start()
    assert naming.wait(60)

    def names_both() -> bool:
        signal.alarm(20)  # in place of waiting for ever
        return all(
            TYPES.register(each, "a test") and TYPES.name(TYPES.code(each.name, 0)) == each.name
            for each in (named, other)
        )

    try:
        assert true_in_child(names_both)
    finally:
        may_end.set()
        thread.join(60)


@pytest.mark.parametrize("known", [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("way", ["compute", "fenced"])
def test_dimensions_may_be_known_early_late_or_never(known: tuple[bool, bool], way: str) -> None:
    in_model, at_execution = known
    compilation = finished(add_model(*((2,) if in_model else (0,)), out=(2,) if in_model else (0,)))
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    for index in range(2):
        execution.set_input(index, X, None if in_model else floats(2))
    execution.set_output(0, out, floats(2) if at_execution or way == "fenced" else None)
    if way == "fenced":
        execution.start_after([]).wait()
    else:
        execution.compute()
    assert out.tolist() == [2, 4]
    assert execution.output_dimensions(0) == (2,)


def test_operand_types_of_tensors_of_rank_0_are_taken() -> None:
    model = Model()
    assert model.add_operand(OperandDescription(OperandType.TENSOR_FLOAT32)) == 0
