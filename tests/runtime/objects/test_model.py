"""Model: states, codes and order of checks (RTT:V3 to V11, V47, V48, O1 to O3)."""

from __future__ import annotations

import os

import numpy as np
import pytest

from nnburst.hal.enums import OperandType, OperationType
from nnburst.runtime import Compilation, Manager, Memory, Model, OperandDescription
from nnburst.runtime.planning.plan import Direction
from runtime.building import (
    Built,
    add_model,
    bad_data,
    bad_state,
    floats,
    scalar,
    unexpected_null,
)

PER_CHANNEL = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL


def test_a_value_has_the_size_of_its_operand() -> None:
    model = Model()
    index = model.add_operand(scalar(OperandType.FLOAT32))
    with bad_data():
        model.set_operand_value(index, bytes(20))
    with bad_data():
        model.set_operand_value(index + 1, bytes(4))
    with bad_data():
        model.set_operand_value(index, b"")
    with unexpected_null():
        model.set_operand_value(index, None, length=4)
    model.set_operand_value(index, None)
    model.set_operand_value(index, bytes(4))


def test_null_is_refused_before_the_state_and_the_state_before_data() -> None:
    model = add_model(2)
    with unexpected_null():
        model.set_operand_value(99, None, length=4)
    with unexpected_null():
        model.add_operation(99, None, [0])
    for call in (
        lambda: model.set_operand_value(99, bytes(20)),
        lambda: model.set_operand_value_from_memory(99, Memory.allocate(4), 0, 4),
        lambda: model.set_operand_value_from_model(99, Model()),
        lambda: model.add_operand(OperandDescription(-7)),
        lambda: model.add_operation(99, [99], [99]),
        lambda: model.identify_inputs_and_outputs([99], [99]),
        lambda: model.relax(),
        lambda: model.finish(),
    ):
        with bad_state():
            call()


def test_a_memory_constant_lies_within_its_memory() -> None:
    memory = Memory.allocate(20)
    model = Model()
    index = model.add_operand(scalar(OperandType.FLOAT32))
    for where, offset, length in ((-1, 0, 4), (index, 0, 20), (index, 21, 4), (index, 17, 4)):
        with bad_data():
            model.set_operand_value_from_memory(where, memory, offset, length)
    model.set_operand_value_from_memory(index, memory, 16, 4)


def test_a_model_as_a_value_is_finished() -> None:
    model = Model()
    with bad_state():
        model.set_operand_value_from_model(0, Model())
    inner = add_model(2)
    for index in (-1, 0):
        with bad_data():
            model.set_operand_value_from_model(index, inner)
    model.set_operand_value_from_model(model.add_operand(scalar(OperandType.SUBGRAPH)), inner)


def test_an_oem_scalar_takes_a_value_of_any_length_and_an_oem_tensor_only_of_its_own() -> None:
    model = Model()
    index = model.add_operand(scalar(OperandType.OEM))
    for size in (1, 7, 500):
        model.set_operand_value(index, bytes(size))
    tensor = model.add_operand(OperandDescription(OperandType.TENSOR_OEM_BYTE, (4,)))
    model.set_operand_value(tensor, bytes(4))
    with bad_data():
        model.set_operand_value(tensor, bytes(5))


def test_an_operation_has_lists_a_known_code_and_operands_of_its_types() -> None:
    model = Model()
    a = model.add_operand(floats(2))
    with unexpected_null():
        model.add_operation(OperationType.ADD, None, [a])
    with unexpected_null():
        model.add_operation(OperationType.ADD, [a], None)
    for code, inputs in ((106, [a]), (0x7ABC0003, [a]), (OperationType.ADD, [a, a]), (0, [a, 9])):
        with bad_data():
            model.add_operation(code, inputs, [a])


def test_operations_may_be_added_in_the_reverse_of_run_order() -> None:
    built = Built()
    a, b, c, d = (built.tensor(2) for _ in range(4))
    built.add(c, a, d)
    built.add(b, a, c)
    built.add(a, a, b)
    model = built.finish([a], [d])
    assert model._finished_model.run_orders[0] == (2, 1, 0)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [([0], [0]), ([0, 0], [1]), ([0], [1, 1]), ([2], [1]), ([9], [1])],
    ids=["both", "input twice", "output twice", "constant", "no such operand"],
)
def test_an_operand_is_listed_once(inputs: list[int], outputs: list[int]) -> None:
    built = Built()
    built.tensor(2), built.tensor(2), built.constant([1.0, 2.0])
    with bad_data():
        built.model.identify_inputs_and_outputs(inputs, outputs)
    built.model.identify_inputs_and_outputs([0], [1])


def test_a_model_that_is_not_valid_stays_so() -> None:
    built = Built()
    a, b = built.tensor(2), built.tensor(2)
    built.model.identify_inputs_and_outputs([a], [b])
    with bad_data():
        built.model.finish()
    with bad_state():
        built.model.finish()
    assert not built.model.is_finished


def test_a_cycle_is_not_a_model() -> None:
    built = Built()
    a, b, c = (built.tensor(2) for _ in range(3))
    built.add(a, b, c)
    built.add(a, c, b)
    built.model.identify_inputs_and_outputs([a], [c])
    with bad_data():
        built.model.finish()


@pytest.mark.parametrize(
    "description",
    [
        OperandDescription(OperandType.INT32, (1,)),
        OperandDescription(OperandType.TENSOR_FLOAT32, (2,), scale=-1.0),
        OperandDescription(OperandType.TENSOR_QUANT8_ASYMM, (2,), 1.0, 256),
        OperandDescription(OperandType.TENSOR_FLOAT32, (1 << 20, 1 << 20)),
        OperandDescription(OperandType.TENSOR_FLOAT32, None),
        OperandDescription(0x7ABC0001, (2,)),
        OperandDescription(17),
        OperandDescription(PER_CHANNEL, (2,), 1.0),
        OperandDescription(PER_CHANNEL, (2,), 0.0, 1),
    ],
    ids=str,
)
def test_an_operand_type_that_makes_no_sense_is_refused(description: OperandDescription) -> None:
    model = Model()
    with bad_data():
        model.add_operand(description)
    assert model.operand_count == 0


@pytest.mark.parametrize("kind", [k for k in OperandType if k != PER_CHANNEL], ids=lambda k: k.name)
def test_per_channel_scales_are_for_their_type_alone(kind: OperandType) -> None:
    model = Model()
    quantised = "QUANT" in kind.name
    dimensions = (4,) if kind.name.startswith("TENSOR") else ()
    index = model.add_operand(OperandDescription(kind, dimensions, 1.0 if quantised else 0.0))
    with bad_data():
        model.set_operand_per_channel(index, [1.0] * 4, 0)


@pytest.mark.parametrize(
    ("scales", "axis"),
    [([1.0] * 4, 7), ([1.0] * 3, 0), ([1.0] * 10, 0), ([1, 1, 1, -1], 0), (None, 0), ([], 0)],
)
def test_per_channel_scales_fit_their_dimension(scales: list[float] | None, axis: int) -> None:
    model = Model()
    index = model.add_operand(OperandDescription(PER_CHANNEL, (4, 1, 1, 1)))
    with bad_data():
        model.set_operand_per_channel(index, scales, axis)
    model.set_operand_per_channel(index, [1.0] * 4, 0)


def test_extension_data_is_for_operands_of_extensions() -> None:
    model = Model()
    index = model.add_operand(floats(2))
    with bad_data():
        model.set_operand_extension_data(index, b"abc")
    with bad_data():
        model.set_operand_extension_data(9, None)
    with unexpected_null():
        model.set_operand_extension_data(index, None, length=3)


def test_large_values_are_read_when_the_model_is_finished_and_small_ones_at_once() -> None:
    built = Built()
    large, small = np.ones(64, np.float32), np.ones(2, np.float32)
    a, b = built.constant(large), built.tensor(64)
    model = built.model
    model.set_operand_value(a, large)
    c, d = built.constant(small), built.tensor(2)
    model.set_operand_value(c, small)
    e, f = built.tensor(64), built.tensor(2)
    built.add(a, b, e)
    built.add(c, d, f)
    large[...] = small[...] = 5
    built.finish([b, d], [e, f])
    pool = model._memories[0].bytes
    assert pool[:256].view(np.float32).tolist() == [5.0] * 64
    assert model._built_model.model.operand_values[:8] == np.ones(2, np.float32).tobytes()


def test_a_model_that_was_never_finished_closes() -> None:
    with Built().model as model:
        model.add_operand(floats(2))
    with bad_state():
        model.add_operand(floats(2))


def test_what_was_made_from_a_model_outlives_it() -> None:
    model = add_model(2)
    compilation = Compilation(model, manager=Manager([]))
    model.close()
    compilation.finish()
    assert compilation.memory_preference(Direction.OUTPUT, 0).alignment
    compilation.execution().close()


def test_a_forked_child_refuses_and_frees_nothing() -> None:
    model = add_model(2)
    pid = os.fork()
    if not pid:
        try:
            with bad_state():
                model._check_open()
            model.close()
            os._exit(0 if not model.closed else 2)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
