"""Buffers of a client that follows no rules."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnburst import Closed, Device, NnburstError, PreparedModel
from nnburst.control.messages import Allocate, Allocated, CopyFrom, CopyTo, Ping, Release
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal import environment
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.extensions import extension_code
from nnburst.hal.model import ExtensionNameAndPrefix, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import BufferDesc, BufferRole
from shared_drivers import connect_to

NONE = ErrorStatus.NONE
EXPECTED = {
    NONE,
    ErrorStatus.INVALID_ARGUMENT,
    ErrorStatus.GENERAL_FAILURE,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
}
numbers = st.one_of(
    st.integers(-3, 9), st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62])
)
roles = st.lists(
    st.builds(
        BufferRole,
        numbers,
        numbers,
        st.sampled_from([1.0, 0.5, 0.0, -1.0, 2.0, float("nan"), float("inf")]),
    ),
    max_size=4,
).map(tuple)
extents = st.lists(numbers, max_size=20).map(tuple)


@settings(
    max_examples=2 * environment.EXAMPLES.read(),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    dimensions=extents,
    handles=st.lists(st.integers(1, 5), max_size=3).map(tuple),
    inputs=roles,
    outputs=roles,
    content=extents,
    size=st.one_of(st.integers(1, 64), st.sampled_from([2**31, 2**62])),
)
def test_any_description_and_any_copy_is_answered(
    known: Any,
    model: Model,
    dimensions: tuple[int, ...],
    handles: tuple[int, ...],
    inputs: tuple[BufferRole, ...],
    outputs: tuple[BufferRole, ...],
    content: tuple[int, ...],
    size: int,
) -> None:
    handle = known.prepare(model)
    message = Allocate(BufferDesc(dimensions), (*handles, handle), inputs, outputs)
    reply = known.call(message)
    assert reply.status in EXPECTED
    if isinstance(reply.result, Allocated):
        with SharedMemory.create(64) as memory:
            for copy in (
                CopyFrom(reply.result.handle, size, content),
                CopyTo(reply.result.handle, size),
            ):
                assert known.call(copy, [memory.fd]).status in EXPECTED
        assert known.call(Release(reply.result.handle)).status == NONE
    assert known.call(Release(handle)).status == NONE
    assert known.call(Ping()).status == NONE


def test_operands_whose_elements_have_no_size_are_not_kept(known: Any, model: Model) -> None:
    kind = extension_code(1, 3)

    def change(operand: Any) -> Any:
        return msgspec.structs.replace(operand, type=kind) if operand.dimensions else operand

    main = msgspec.structs.replace(
        model.main,
        operands=tuple(map(change, model.main.operands)),
        operations=(msgspec.structs.replace(model.main.operations[0], type=kind),),
    )
    extended = msgspec.structs.replace(
        model,
        main=main,
        extension_name_to_prefix=(ExtensionNameAndPrefix("com.example.opaque", 1),),
    )
    handle = known.prepare(extended)
    reply = known.call(Allocate(BufferDesc(), (handle,), (BufferRole(0, 0),)))
    assert reply.status == ErrorStatus.GENERAL_FAILURE
    assert "hold operands of core types only" in reply.message


def any_rank() -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, ())
    y = builder.output(OperandType.TENSOR_FLOAT32, ())
    builder.operation(OperationType.RELU, [x], [y])
    return builder.build()


@pytest.mark.parametrize(
    ("dimensions", "reason"),
    [
        ((2**32 - 1,) * 4000, "rank is 4000, expected at most 16"),
        ((2,) * 17, "rank is 17, expected at most 16"),
        ((2**32,), "is 4294967296"),
        ((2**64 - 1,) * 2, "is 18446744073709551615"),
    ],
)
def test_dimensions_whose_product_takes_long_are_refused_before_it_is_made(
    known: Any, dimensions: tuple[int, ...], reason: str
) -> None:
    handle = known.prepare(any_rank())
    reply = known.call(Allocate(BufferDesc(dimensions), (handle,), (BufferRole(0, 0),)))
    assert reply.status == ErrorStatus.INVALID_ARGUMENT
    assert reason in reply.message
    buffer = known.call(Allocate(BufferDesc(), (handle,), (BufferRole(0, 0),))).result
    with SharedMemory.create(64) as memory:
        reply = known.call(CopyFrom(buffer.handle, 64, dimensions), [memory.fd])
    assert reply.status == ErrorStatus.INVALID_ARGUMENT
    assert reason in reply.message
    assert known.call(Release(buffer.handle)).status == NONE
    assert known.call(Release(handle)).status == NONE


def any_length() -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (0,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (0,))
    builder.operation(OperationType.RELU, [x], [y])
    return builder.build()


class Racer:
    """Copies, executes and closes any buffers, in competition with other racers."""

    def __init__(self, device: Device, model: PreparedModel, number: int) -> None:
        self._device, self._model = device, model
        self._random = np.random.default_rng(number)
        self.surprises: list[str] = []

    def run(self, buffers: list[Any], turns: int) -> None:
        for _ in range(turns):
            a, b = self._random.integers(0, len(buffers), 2)
            actions: list[Callable[[], object]] = [
                lambda a=a: buffers[a].copy_from(np.ones(self._length(), np.float32)),
                lambda a=a: buffers[a].copy_to(),
                lambda a=a, b=b: self._model.execute([buffers[a]], [buffers[b]]),
                lambda a=a, b=b: self._model.execute_async([buffers[a]], [buffers[b]]).result(30),
                lambda b=b: self._model.execute(
                    [np.ones(self._length(), np.float32)], [buffers[b]]
                ),
                lambda a=a: self._replace(buffers, a),
            ]
            try:
                actions[self._random.integers(len(actions))]()
            except (Closed, NnburstError) as error:
                if error.status not in EXPECTED:
                    self.surprises.append(repr(error))

    def _length(self) -> int:
        return int(self._random.integers(1, 30_000))

    def _replace(self, buffers: list[Any], index: int) -> None:
        old, buffers[index] = (
            buffers[index],
            self._device.allocate_buffer([(self._model, 0)], [(self._model, 0)]),
        )
        old.close()


def test_threads_that_race_for_buffers_get_answers_and_the_driver_lives() -> None:
    with connect_to("reference") as device, device.prepare(any_length()) as model:
        uses = [(model, 0)]
        buffers: list[Any] = [device.allocate_buffer(uses, uses) for _ in range(3)]
        racers = [Racer(device, model, number) for number in range(4)]
        threads = [threading.Thread(target=r.run, args=(buffers, 150)) for r in racers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            assert not thread.is_alive()
        assert [racer.surprises for racer in racers] == [[]] * 4
        with device.allocate_buffer(uses, uses) as fresh:
            fresh.copy_from(np.ones(3, np.float32))
            assert np.all(fresh.copy_to() == 1)
