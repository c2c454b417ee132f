"""A masked array is refused on every road that takes arrays: no driver sees its mask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnburst
from client.burst_helpers import F32, copy_model
from nnburst import Device, InvalidArgument, ModelBuilder, PreparedModel
from nnburst.client.hal import create_reusable_execution, execute_fenced
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor
from nnburst.runtime.objects.operands import byte_view

X = np.array([1, -2], np.float32)
MASKS = {"one element": [False, True], "none": [False, False], "no mask": np.ma.nomask}
Road = Callable[[PreparedModel, Any], object]


@pytest.fixture(scope="module")
def prepared(device: Device) -> Any:
    with device.prepare(copy_model()) as model:
        yield model


def masked(mask: Any) -> Any:
    return np.ma.array(X, mask=mask)


def burst(prepared: PreparedModel, use: Callable[[Any], object]) -> object:
    with prepared.open_burst() as opened:
        return use(opened)


def repeated(opened: Any, array: Any) -> object:
    """The third request of these shapes goes another way."""
    for _ in range(3):
        opened.execute([X])
    return opened.execute([array])


def plan(use: Callable[[Any], object]) -> object:
    with nnburst.compile(copy_model()) as compiled:
        return use(compiled)


def plan_burst(array: Any) -> object:
    def use(compiled: Any) -> object:
        with compiled.open_burst() as opened:
            return repeated(opened, array)

    return plan(use)


INPUTS: dict[str, Road] = {
    "execute": lambda p, a: p.execute([a]),
    "execute_async": lambda p, a: p.execute_async([a]),
    "execute_fenced": lambda p, a: execute_fenced(p, [a]),
    "reusable execution": lambda p, a: create_reusable_execution(p, [a]),
    "burst": lambda p, a: burst(p, lambda b: b.execute([a])),
    "burst, repeated": lambda p, a: burst(p, lambda b: repeated(b, a)),
    "bind": lambda p, a: burst(p, lambda b: b.bind([a])),
    "function": lambda p, a: burst(p, lambda b: b.function([X])(a)),
    "function, like": lambda p, a: burst(p, lambda b: b.function([a])),
    "plan": lambda _, a: plan(lambda c: c.execute([a])),
    "plan, asynchronous": lambda _, a: plan(lambda c: asyncio.run(c.execute_async([a]))),
    "plan's burst": lambda _, a: plan_burst(a),
}
OUTPUTS: dict[str, Road] = {
    "execute": lambda p, a: p.execute([X], [a]),
    "burst": lambda p, a: burst(p, lambda b: b.execute([X], [a])),
    "plan": lambda _, a: plan(lambda c: c.execute([X], [a])),
}


def message(road: Road, prepared: PreparedModel, array: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        road(prepared, array)
    return str(caught.value)


@pytest.mark.parametrize("mask", MASKS.values(), ids=list(MASKS))
@pytest.mark.parametrize("road", INPUTS.values(), ids=list(INPUTS))
def test_inputs_are_refused_whatever_the_mask(
    road: Road, mask: Any, prepared: PreparedModel
) -> None:
    assert "a masked array" in message(road, prepared, masked(mask))


@pytest.mark.parametrize("road", OUTPUTS.values(), ids=list(OUTPUTS))
def test_outputs_are_refused_too(road: Road, prepared: PreparedModel) -> None:
    assert "outputs[0] is a masked array" in message(road, prepared, masked([True, False]))


def test_constants_are_refused_by_their_argument() -> None:
    for add in (ModelBuilder().constant, ModelBuilder().extension_constant):
        with pytest.raises(InvalidArgument, match="values is a masked array"):
            add(F32, masked([True, False]))


def test_bytes_of_arrays_are_refused_by_their_argument() -> None:
    array = masked([True, False])
    with pytest.raises(InvalidArgument, match="data is a masked array"):
        byte_view("data", array)
    with pytest.raises(InvalidArgument, match="array is a masked array"):
        nnburst.Memory.from_dlpack(array)
    queue = MessageQueue.create(np.dtype(np.float32), 4, Flavor.SYNCHRONIZED_READ_WRITE)
    with queue, pytest.raises(InvalidArgument, match="elements is a masked array"):
        queue.write(array)


def test_buffers_refuse_them(device: Device, prepared: PreparedModel) -> None:
    with device.allocate_buffer(inputs=[(prepared, 0)]) as buffer:
        with pytest.raises(InvalidArgument, match="is a masked array"):
            buffer.copy_from(masked([True, False]))
        buffer.copy_from(X)
        with pytest.raises(InvalidArgument, match="is a masked array"):
            buffer.copy_to(masked([True, False]))


def test_what_the_message_asks_for_is_taken(prepared: PreparedModel) -> None:
    array = masked([True, False])
    refused = message(INPUTS["execute"], prepared, array)
    assert refused.startswith("inputs[0] is a masked array")
    assert "filled()" in refused
    [y] = prepared.execute([array.filled(7)]).outputs
    assert y.tolist() == [7, 0]


def test_an_assignment_takes_what_lies_under_the_mask(prepared: PreparedModel) -> None:
    """It is numpy's own, which nnburst cannot refuse."""
    with prepared.open_burst() as opened:
        bound = opened.bind()
        bound.inputs[0][...] = masked([True, False])
        assert bound.run().outputs[0].tolist() == [1, 0]
