"""Attributes of extensions (RT:X8): from an application through every way to the executor."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
import pytest

import nnburst
from nnburst import Device, ModelBuilder, OperandType, OperationType, PreparedModel
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.driver.model.execution import attributes_of
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import ExtensionAttribute, Hints, hints_of
from nnburst.hal.model import ExtensionNameAndPrefix, Model
from nnburst.hal.types import TokenValuePair
from nnburst.runtime import Compilation, Execution, Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from runtime.building import add_model, bad_data, bad_state, unexpected_null
from runtime.extensions.reading import EXTENSION, FOLDER, total
from shared_drivers import connect_to

ONE: Final = ExtensionAttribute(EXTENSION, 3, b"\x05")
TWO: Final = ExtensionAttribute(EXTENSION, 4, b"")
HANG: Final = 60.0
PAIR: Final = [np.ones(2, np.float32)] * 2


def launched(executor: str) -> Device:
    """A driver of `reading.py`."""
    others = filter(None, [os.environ.get("PYTHONPATH")])
    tests = str(FOLDER.parents[1])
    return nnburst.launch(
        f"runtime.extensions.reading:{executor}",
        env={"PYTHONPATH": os.pathsep.join([tests, *others])},
    )


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with launched("Reading") as driver:
        yield driver


@pytest.fixture(scope="module")
def manager() -> Iterator[Manager]:
    with Manager([DriverDevice(partial(launched, "Reading"), name="reading")]) as made:
        yield made


def hal_model() -> Model:
    """out = a + b."""
    builder = ModelBuilder()
    a, b = (builder.input(OperandType.TENSOR_FLOAT32, (2,)) for _ in range(2))
    out = builder.output(OperandType.TENSOR_FLOAT32, (2,))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0, OperandType.INT32)], [out])
    return builder.build()


def run_reusable(prepared: PreparedModel, given: list[ExtensionAttribute]) -> np.ndarray:
    with create_reusable_execution(prepared, PAIR, attributes=given) as execution:
        execution.run(HANG)
        return np.array(execution.run(HANG).outputs[0])


def run_aidl_burst(prepared: PreparedModel, given: list[ExtensionAttribute]) -> np.ndarray:
    with open_aidl_burst(prepared) as burst:
        return np.array(burst.execute(PAIR, attributes=given, timeout=HANG).outputs[0])


#: Every way that carries attributes; bursts over queues carry none.
WAYS: Final[dict[str, Callable[[PreparedModel, list[ExtensionAttribute]], np.ndarray]]] = {
    "execute": lambda p, a: p.execute(PAIR, attributes=a, timeout=HANG).outputs[0],
    "async": lambda p, a: p.execute_async(PAIR, attributes=a).result(HANG).outputs[0],
    "fenced": lambda p, a: execute_fenced(p, PAIR, attributes=a).result(HANG).outputs[0],
    "reusable": run_reusable,
    "AIDL's burst": run_aidl_burst,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_attributes_reach_the_executor_in_every_way(
    device: Device, way: Callable[[PreparedModel, list[ExtensionAttribute]], np.ndarray]
) -> None:
    with device.prepare(hal_model(), attributes=[ONE]) as prepared:
        assert way(prepared, [ONE, TWO]).tolist() == [total([ONE]), total([ONE, TWO])]
        assert way(prepared, []).tolist() == [total([ONE]), 0]


def test_executor_without_attributes_ignores_them() -> None:
    with connect_to("reference") as driver:
        prepared = driver.prepare(hal_model(), attributes=[ONE])
        assert prepared.execute(PAIR, attributes=[TWO]).outputs[0].tolist() == [2, 2]


def test_driver_below_level_8_gets_no_attributes_and_a_log_line_notes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with launched("OldReading") as old, caplog.at_level(logging.WARNING):
        prepared = old.prepare(hal_model(), attributes=[ONE])
        assert prepared.execute(PAIR, attributes=[TWO]).outputs[0].tolist() == [0, 0]
    assert caplog.text.count("which has no attributes: 1 are not sent") == 2


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ([ONE, ONE], r"attributes\[1\]: code 3"),
        ([ExtensionAttribute(EXTENSION, 1 << 16)], r"attributes\[0\]: code"),
        ([TWO, ExtensionAttribute("a.b", -1)], r"attributes\[1\]: code"),
        ([ExtensionAttribute("a.b", "3")], r"attributes\[0\]: code"),
        ([ExtensionAttribute(None, 1)], r"attributes\[0\]: extension"),
        ([ExtensionAttribute("fibonacci", 1)], r"attributes\[0\]: extension"),
        ([ExtensionAttribute("\ud800.b", 1)], r"attributes\[0\]: extension"),
        ([ExtensionAttribute("a.b", 1, 5)], r"attributes\[0\]: value"),
        ([ExtensionAttribute("a.b", 1, [5, 6])], r"attributes\[0\]: value"),
        ([ExtensionAttribute("a.b", 1, "fast")], r"attributes\[0\]: value"),
        ([("a.b", 1, b"ab")], r"attributes\[0\] is \('a\.b'"),
    ],
)
def test_client_refuses_attributes_that_no_message_carries(
    device: Device, given: list[ExtensionAttribute], place: str, tmp_path: os.PathLike[str]
) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(InvalidArgument, match=place):
            device.prepare(hal_model(), attributes=given, cache_dir=folder)
    with device.prepare(hal_model()) as prepared, pytest.raises(InvalidArgument, match=place):
        prepared.execute(PAIR, attributes=given)


def test_values_of_attributes_may_lie_in_any_buffer(
    device: Device, tmp_path: os.PathLike[str]
) -> None:
    for value in (bytearray(b"\x05"), memoryview(b"\x05"), np.array([5], np.uint8)):
        given = [ExtensionAttribute(EXTENSION, 3, value)]
        for folder in (None, tmp_path):
            with device.prepare(hal_model(), attributes=given, cache_dir=folder) as prepared:
                assert prepared.execute(PAIR, attributes=given).outputs[0][0] == total([ONE])


def test_hints_that_repeat_a_token_or_a_prefix_are_refused_by_the_driver() -> None:
    named = (ExtensionNameAndPrefix("a.b", 1),)
    with pytest.raises(InvalidArgument, match="validation:S7"):
        attributes_of(Hints((TokenValuePair(1 << 16), TokenValuePair(1 << 16)), named))
    with pytest.raises(InvalidArgument, match="validation:S7"):
        attributes_of(Hints((TokenValuePair(-1),), named))
    with pytest.raises(InvalidArgument, match="validation:M6"):
        attributes_of(Hints((), (*named, ExtensionNameAndPrefix("c.d", 1))))


def test_hint_of_no_named_extension_is_ignored_and_the_others_arrive() -> None:
    hints = hints_of([ONE, TWO])
    assert isinstance(hints, Hints)
    strange = Hints((*hints.pairs, TokenValuePair(7 << 16)), hints.extension_name_to_prefix)
    assert attributes_of(strange) == (ONE, TWO)


def test_compilations_with_other_attributes_are_cached_apart(
    tmp_path: os.PathLike[str], device: Device
) -> None:
    del device
    with connect_to("null") as null:
        for given in ([], [ONE], [TWO], [ONE]):
            prepared = null.prepare(hal_model(), cache_dir=tmp_path, attributes=given)
            prepared.close()
        assert prepared.from_cache
    assert len(os.listdir(tmp_path)) == 3


# -- the framework ------------------------------------------------------------------------------------------


def compiled(manager: Manager, *attributes: ExtensionAttribute) -> Compilation:
    compilation = Compilation(add_model(2), [manager.device("reading")], manager=manager)
    for attribute in attributes:
        compilation.add_extension_attribute(*attribute)
    compilation.finish()
    return compilation


def ready(compilation: Compilation) -> tuple[Execution, np.ndarray]:
    """A reusable execution with its arguments, and its output."""
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    execution.reusable = True
    for index in range(2):
        execution.set_input(index, PAIR[index])
    execution.set_output(0, out)
    return execution, out


@pytest.mark.parametrize("way", ["compute", "start", "burst", "fenced"])
def test_attributes_reach_the_device_in_each_computation(manager: Manager, way: str) -> None:
    compilation = compiled(manager, TWO)
    execution, out = ready(compilation)
    execution.add_extension_attribute(*ONE)
    burst = compilation.burst()
    compute = {
        "compute": execution.compute,
        "start": lambda: execution.start().wait(),
        "burst": lambda: execution.burst_compute(burst),
        "fenced": lambda: execution.start_after([]).wait(),
    }[way]
    for _ in range(3):  # from the second on over bound requests, if it had no attributes
        out[...] = 0
        compute()
        assert out.tolist() == [total([TWO]), total([ONE])]


def test_execution_without_attributes_has_those_of_its_compilation_alone(manager: Manager) -> None:
    execution, out = ready(compiled(manager, ONE))
    for _ in range(3):
        execution.compute()
        assert out.tolist() == [total([ONE]), 0]


def test_attribute_of_what_is_not_given_is_an_unexpected_null(manager: Manager) -> None:
    compilation = Compilation(add_model(2), manager=manager)
    with unexpected_null():
        compilation.add_extension_attribute(None, 1)  # type: ignore[arg-type]
    with unexpected_null():
        compilation.add_extension_attribute(EXTENSION, 1, None)  # type: ignore[arg-type]
    execution, _ = ready(compiled(manager))
    with unexpected_null():
        execution.add_extension_attribute(None, 1)  # type: ignore[arg-type]


def test_attribute_needs_one_explicit_device_before_any_state(manager: Manager) -> None:
    of_any = Compilation(add_model(2), manager=manager)
    with bad_data():
        of_any.add_extension_attribute(*ONE)
    of_any.finish()
    with bad_data():
        of_any.add_extension_attribute(*ONE)
    with bad_data():
        of_any.execution().add_extension_attribute(*ONE)
    of_two = Compilation(add_model(2), manager.devices, manager=manager)
    with bad_data():
        of_two.add_extension_attribute(*ONE)


def test_attribute_comes_too_late_after_finish_and_after_the_first_computation(
    manager: Manager,
) -> None:
    compilation = compiled(manager)
    with bad_state():
        compilation.add_extension_attribute(*ONE)
    execution, _ = ready(compilation)
    execution.compute()
    with bad_state():
        execution.add_extension_attribute(*ONE)


@pytest.mark.parametrize("of_execution", [False, True])
def test_attribute_that_cannot_be_changes_nothing(manager: Manager, of_execution: bool) -> None:
    target: Compilation | Execution = Compilation(
        add_model(2), [manager.device("reading")], manager=manager
    )
    if of_execution:
        target = ready(compiled(manager))[0]
    target.add_extension_attribute(*ONE)
    for extension, code in ((EXTENSION, ONE.code), (EXTENSION, 1 << 16), ("com.example.none", 1)):
        with bad_data():
            target.add_extension_attribute(extension, code, b"")
    assert target._attributes.added == (ONE,)
