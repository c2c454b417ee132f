"""Compilation: states, codes and order of checks (RTT:V13 to V19, W1, I6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nnburst.hal.enums import OperandType, ResultCode
from nnburst.hal.errors import NnburstError
from nnburst.runtime import Compilation, Manager, MemoryDesc, Model, OperandDescription
from nnburst.runtime.planning.plan import Direction
from runtime.building import add_model, bad_data, bad_state, finished, unexpected_null


@pytest.fixture
def manager() -> Manager:
    return Manager([])


def oem_model() -> Model:
    """A model that no device here supports."""
    model = Model()
    a, b = (
        model.add_operand(OperandDescription(OperandType.TENSOR_OEM_BYTE, (2,))) for _ in range(2)
    )
    model.add_operation(10000, [a], [b])
    model.identify_inputs_and_outputs([a], [b])
    model.finish()
    return model


def test_an_unfinished_model_has_no_compilation(manager: Manager) -> None:
    with bad_state():
        Compilation(Model(), manager=manager)
    with unexpected_null():
        Compilation(None, manager=manager)  # type: ignore[arg-type]


def test_a_list_of_devices_has_known_devices_once(manager: Manager) -> None:
    model = add_model(2)
    for devices in ([], [manager.cpu, manager.cpu], [Manager([]).cpu], ["nnapi-reference"]):
        with bad_data():
            Compilation(model, devices, manager=manager)  # type: ignore[arg-type]
        with bad_data():
            model.supported_operations(devices, manager)  # type: ignore[arg-type]
    for ask in (Compilation, Model.supported_operations):
        with unexpected_null():
            ask(model, [manager.cpu, None])  # type: ignore[operator]


def test_settings_take_what_nnapi_names(manager: Manager) -> None:
    compilation = Compilation(add_model(2), manager=manager)
    for preference in (40, 3, -1):
        with bad_data():
            compilation.preference = preference
    for priority in (0, 99, 111):
        with bad_data():
            compilation.priority = priority
    compilation.preference, compilation.priority = 2, 110
    assert (compilation.preference, compilation.priority) == (2, 110)


def test_a_timeout_needs_one_explicit_device(manager: Manager) -> None:
    model = add_model(2)
    with bad_data():
        Compilation(model, manager=manager).timeout = 1.0
    compilation = Compilation(model, [manager.cpu], manager=manager)
    compilation.timeout = 1e-9
    with pytest.raises(NnburstError) as error:
        compilation.finish()
    assert error.value.code == ResultCode.MISSED_DEADLINE_PERSISTENT
    compilation = Compilation(model, [manager.cpu], manager=manager)
    compilation.timeout = 1e30
    compilation.finish()


def test_a_finished_compilation_cannot_change(manager: Manager) -> None:
    for compilation in (finished(add_model(2), [manager.cpu], manager), failed(manager)):
        for change in (
            lambda c: setattr(c, "preference", 40),
            lambda c: setattr(c, "priority", 7),
            lambda c: setattr(c, "timeout", 1),
            lambda c: c.set_caching("", b""),
            lambda c: c.finish(),
        ):
            with bad_state():
                change(compilation)


def failed(manager: Manager) -> Compilation:
    """A compilation that is finished without success."""
    compilation = Compilation(oem_model(), [manager.cpu], manager=manager)
    with bad_data():
        compilation.finish()
    return compilation


@pytest.mark.parametrize("make", [lambda m: Compilation(add_model(2), manager=m), failed])
def test_what_is_not_finished_gives_nothing(
    manager: Manager, make: Callable[[Manager], Compilation]
) -> None:
    compilation = make(manager)
    for use in (
        lambda: compilation.memory_preference(Direction.INPUT, 0),
        compilation.execution,
        compilation.burst,
        lambda: compilation.plan,
    ):
        with bad_state():
            use()
    with bad_data():
        MemoryDesc().add_input_role(compilation, 0, 1.0)


def test_memory_preference_is_for_arguments_that_are_there(manager: Manager) -> None:
    compilation = finished(add_model(2))
    assert compilation.memory_preference(Direction.INPUT, 1) == (64, 64)
    for direction, index in ((Direction.INPUT, 2), (Direction.OUTPUT, 1), (Direction.OUTPUT, -1)):
        with bad_data():
            compilation.memory_preference(direction, index)
    for other in ("INPUT", 0, None):  # which would count outputs
        with bad_data():
            compilation.memory_preference(other, 0)  # type: ignore[arg-type]


def test_what_was_never_finished_closes(manager: Manager) -> None:
    for devices in (None, [manager.cpu]):
        Compilation(add_model(2), devices, manager=manager).close()


def test_an_execution_outlives_its_compilation_object() -> None:
    execution = finished(add_model(2)).execution()
    execution.close()
