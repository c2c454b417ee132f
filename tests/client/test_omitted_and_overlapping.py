"""Inputs that are None and outputs that lie on an input are refused alike on every road."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import nnburst
from client.burst_helpers import F32
from nnburst import Device, InvalidArgument, ModelBuilder, OperationType, PreparedModel
from nnburst.client.hal import create_reusable_execution, execute_fenced

SHAPE: Final = (3, 3)
X: Final = np.arange(9, dtype=np.float32).reshape(SHAPE)
Road = Callable[[PreparedModel, list[Any], list[Any] | None], object]


def transposing() -> nnburst.Model:
    """The second input may be None: TRANSPOSE reverses the axes then."""
    builder = ModelBuilder()
    x = builder.input(F32, SHAPE)
    axes = builder.input(nnburst.OperandType.TENSOR_INT32, (2,))
    y = builder.output(F32, SHAPE)
    builder.operation(OperationType.TRANSPOSE, [x, axes], [y])
    return builder.build()


def adding() -> nnburst.Model:
    builder = ModelBuilder()
    a, b = (builder.input(F32, SHAPE) for _ in range(2))
    y = builder.output(F32, SHAPE)
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [y])
    return builder.build()


def burst(prepared: PreparedModel, use: Callable[[Any], object]) -> object:
    with prepared.open_burst() as opened:
        return use(opened)


def plan(use: Callable[[Any], object], model: nnburst.Model) -> object:
    with nnburst.compile(model, ["nnapi-reference"]) as compiled:
        return use(compiled)


def plan_burst(use: Callable[[Any], object], model: nnburst.Model) -> object:
    def opened(compiled: Any) -> object:
        with compiled.open_burst() as found:
            return use(found)

    return plan(opened, model)


ROADS: dict[str, Road] = {
    "execute": lambda p, i, o: p.execute(i, o),
    "execute_async": lambda p, i, o: p.execute_async(i, o),
    "execute_fenced": lambda p, i, o: execute_fenced(p, i, o),
    "reusable execution": lambda p, i, o: create_reusable_execution(p, i, o),
    "burst": lambda p, i, o: burst(p, lambda b: b.execute(i, o)),
    "bind": lambda p, i, o: burst(p, lambda b: b.bind(i, o)),
    "plan": lambda p, i, o: plan(lambda c: c.execute(i, o), p.model),
    "burst of a plan": lambda p, i, o: plan_burst(lambda b: b.execute(i, o), p.model),
    "bind of a plan": lambda p, i, o: plan_burst(lambda b: b.bind(i, o).run(), p.model),
}


def doubling_and_squaring() -> nnburst.Model:
    builder = ModelBuilder()
    x = builder.input(F32, SHAPE)
    for operation in (OperationType.ADD, OperationType.MUL):
        builder.operation(operation, [x, x, builder.scalar(0)], [builder.output(F32, SHAPE)])
    return builder.build()


@pytest.fixture(scope="module")
def two_outputs(device: Device) -> Iterator[PreparedModel]:
    with device.prepare(doubling_and_squaring()) as prepared:
        yield prepared


@pytest.fixture(scope="module")
def adder(device: Device) -> Iterator[PreparedModel]:
    with device.prepare(adding()) as prepared:
        yield prepared


@pytest.mark.parametrize("road", ROADS)
def test_input_that_no_operation_can_do_without_is_refused(adder: PreparedModel, road: str) -> None:
    x = nnburst.Memory(64).array(np.float32, SHAPE, 0)
    with pytest.raises(InvalidArgument, match=r"inputs\[1\] is None"):
        ROADS[road](adder, [x, None], None)


def test_input_of_an_operation_that_can_do_without_may_be_none(device: Device) -> None:
    with device.prepare(transposing()) as prepared, prepared.open_burst() as opened:
        for _ in range(3):
            assert np.array_equal(prepared.execute([X, None]).outputs[0], X.T)
            assert np.array_equal(opened.execute([X, None]).outputs[0], X.T)


@pytest.mark.parametrize("offset", [0, 4, 32])
@pytest.mark.parametrize("road", ROADS)
def test_output_in_a_pool_that_lies_on_an_input_is_refused(
    adder: PreparedModel, road: str, offset: int
) -> None:
    pool = nnburst.Memory(256)
    a, b = (pool.array(np.float32, SHAPE, at) for at in (0, 128))
    y = pool.array(np.float32, SHAPE, offset)
    with pytest.raises(InvalidArgument, match=r"overlaps"):
        ROADS[road](adder, [a, b], [y])
    ROADS[road](adder, [a, a], [pool.array(np.float32, SHAPE, 36)])


@pytest.mark.parametrize("road", ROADS)
def test_output_that_lies_on_an_input_by_another_pool_of_its_memory_is_refused(
    adder: PreparedModel, road: str
) -> None:
    pool = nnburst.Memory(256)
    fd = pool.duplicate()
    again = nnburst.Memory.from_fd(fd)
    os.close(fd)
    a, b = (pool.array(np.float32, SHAPE, at) for at in (0, 128))
    with pytest.raises(InvalidArgument, match=r"inputs\[1\] overlaps outputs\[0\] in a pool"):
        ROADS[road](adder, [a, b], [again.array(np.float32, SHAPE, 124)])
    ROADS[road](adder, [a, b], [again.array(np.float32, SHAPE, 64)])


def test_private_output_may_be_an_input(adder: PreparedModel) -> None:
    x = X.copy()
    with adder.open_burst() as opened:
        opened.execute([x, X], outputs=[x])
    assert np.array_equal(x, X + X)
    adder.execute([x, X], outputs=[x])
    assert np.array_equal(x, X + X + X)


def _once_more(array: Any) -> Any:
    return array


def _view(array: Any) -> Any:
    return array[:]


def _shifted(array: Any) -> Any:
    return array.base[4:13].reshape(SHAPE)


@pytest.mark.parametrize("other", [_once_more, _view, _shifted])
@pytest.mark.parametrize("road", [road for road in ROADS if road != "bind"])
def test_private_outputs_that_overlap_are_refused(
    two_outputs: PreparedModel, road: str, other: Callable[[Any], Any]
) -> None:
    y = np.zeros(13, np.float32)[:9].reshape(SHAPE)
    with pytest.raises(InvalidArgument, match=r"outputs\[1\] overlaps outputs\[0\]"):
        ROADS[road](two_outputs, [X], [y, other(y)])
    ROADS[road](two_outputs, [X], [y, np.zeros(SHAPE, np.float32)])


@pytest.mark.parametrize("other", [_once_more, _view, _shifted])
@pytest.mark.parametrize("road", ["prepared", "socket", "burst", "plan", "burst of a plan"])
def test_outputs_that_overlap_are_refused_after_executions_on_others(
    device: Device, two_outputs: PreparedModel, road: str, other: Callable[[Any], Any]
) -> None:
    y = np.zeros(13, np.float32)[:9].reshape(SHAPE)
    z = np.zeros(13, np.float32)[:9].reshape(SHAPE)
    with (
        device.prepare(two_outputs.model, bursts=False) as socket,
        two_outputs.open_burst() as opened,
        nnburst.compile(two_outputs.model, ["nnapi-reference"]) as compiled,
        compiled.open_burst() as compiled_burst,
    ):
        execute: Callable[..., nnburst.ExecutionResult] = {
            "prepared": two_outputs.execute,
            "socket": socket.execute,
            "burst": opened.execute,
            "plan": compiled.execute,
            "burst of a plan": compiled_burst.execute,
        }[road]
        for _ in range(4):
            execute([X], [y, z])
            with pytest.raises(InvalidArgument, match=r"outputs\[1\] overlaps outputs\[0\]"):
                execute([X], [y, other(y)])
            execute([X], [y, None])
            execute([X], [None, None])
        assert np.array_equal(y, X + X)
        assert np.array_equal(z, X * X)
