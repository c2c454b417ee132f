"""Any sequence of calls on buffers against the table of states (device:§6)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from nnburst.control.service import ObjectTable
from nnburst.driver.model.buffers import BufferTracker, DeviceBuffer
from nnburst.driver.model.device import Device
from nnburst.driver.model.execution import run_in_time
from nnburst.driver.model.pools import BufferPool, Pool, RequestPool, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import PrepareOptions
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import (
    ErrorStatus,
    OperandType,
    OperationType,
)
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.model import DataLocation, Operand
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Request, RequestArgument

NONE, INVALID, FAILURE = (
    ErrorStatus.NONE,
    ErrorStatus.INVALID_ARGUMENT,
    ErrorStatus.GENERAL_FAILURE,
)
FLOATS = OperandType.TENSOR_FLOAT32
#: Longest content; the shortest has one element.
LONGEST = 6
#: Buffers at once.
MOST = 8
lengths = st.integers(1, LONGEST)


def negation() -> PreparedModel:
    """y = -x over any number of floats, by the reference executor."""
    builder = ModelBuilder()
    x, y = builder.input(FLOATS, (0,)), builder.output(FLOATS, (0,))
    builder.operation(OperationType.NEG, [x], [y])
    return Device("reference", ReferenceExecutor()).prepare(builder.build(), [], PrepareOptions())


MODEL = negation()


class Expected:
    """The known state of one buffer."""

    def __init__(self, handle: int, token: int, length: int, kinds: frozenset[str]) -> None:
        self.handle = handle
        self.token = token
        self.length = length  # as allocated; 0 is open
        self.kinds = kinds
        self.content: list[float] | None = None  # None: uninitialised

    @property
    def roles(self) -> frozenset[Any]:
        return frozenset((weakref.ref(MODEL), kind, 0) for kind in self.kinds)


class Buffers(RuleBasedStateMachine):
    """Buffers of one client, some of unknown size."""

    alive: Bundle[Expected] = Bundle("alive")
    released: Bundle[Expected] = Bundle("released")

    def __init__(self) -> None:
        super().__init__()
        self.objects = ObjectTable(limit=MOST)
        self.tracker = BufferTracker(self.objects)
        self.known: dict[int, Expected] = {}
        self.freed: list[int] = []
        self.issued = 0
        self.next_value = 0.0

    def values(self, length: int) -> list[float]:
        self.next_value += 1
        return [self.next_value + i / 8 for i in range(length)]

    @rule(
        target=alive,
        length=st.sampled_from([0, 0, 1, 3, LONGEST]),
        kinds=st.sampled_from([{"input"}, {"output"}, {"input", "output"}, {"input", "output"}]),
    )
    def allocate(self, length: int, kinds: set[str]) -> Expected:
        expected = Expected(0, 0, length, frozenset(kinds))

        def make(token: int, forget: Callable[[], None]) -> DeviceBuffer:
            return DeviceBuffer(token, Operand(FLOATS, (length,)), expected.roles, forget)

        def add() -> None:
            expected.handle, expected.token = self.tracker.add(make)

        status = status_of(add)
        assert (status == NONE) == (len(self.known) < MOST)
        if status != NONE:
            assert status == ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
            return expected  # token 0: unknown to all
        wanted = self.freed.pop() if self.freed else self.issued + 1
        self.issued = max(self.issued, wanted)
        assert expected.token == wanted
        self.known[expected.token] = expected
        return expected

    @rule(target=released, buffer=consumes(alive))
    def release(self, buffer: Expected) -> Expected:
        if self.known.get(buffer.token) is buffer:
            self.objects.release(buffer.handle)
            del self.known[buffer.token]
            self.freed.append(buffer.token)
        return buffer

    @rule(buffer=released)
    def use_what_was_released(self, buffer: Expected) -> None:
        if buffer.token in self.known:
            return
        try:
            self.tracker.acquire(buffer.token)
        except InvalidArgument:
            return
        raise AssertionError("a token outlived its buffer")

    @rule(buffer=alive, length=lengths, tells=st.booleans())
    def copy_from(self, buffer: Expected, length: int, tells: bool) -> None:
        if buffer.token not in self.known:
            return
        data = np.array(self.values(length), np.float32)
        dimensions = (length,) if tells else ()
        fits = length == buffer.length if buffer.length else tells

        def copy() -> None:
            with self.tracker.acquire(buffer.token) as held:
                held.target.copy_from(lambda: data.view(np.uint8), data.nbytes, dimensions)

        assert status_of(copy) == (NONE if fits else INVALID)
        buffer.content = data.tolist() if fits else None

    @rule(buffer=alive, length=lengths)
    def copy_to(self, buffer: Expected, length: int) -> None:
        if buffer.token not in self.known:
            return
        target = np.full(length, np.nan, np.float32)

        def copy() -> None:
            with self.tracker.acquire(buffer.token) as held:
                held.target.copy_to(lambda: target.view(np.uint8), target.nbytes)

        wanted = len(buffer.content) if buffer.content is not None else buffer.length
        found = status_of(copy)
        if wanted and wanted != length:
            assert found == INVALID
        elif buffer.content is None:
            assert found == FAILURE
        else:
            assert (found, target.tolist()) == (NONE, buffer.content)

    @rule(source=alive, sink=alive, length=lengths)
    def execute(self, source: Expected, sink: Expected, length: int) -> None:
        if not {source.token, sink.token} <= set(self.known):
            return
        status = self.run([source.token, sink.token], length)
        if "input" not in source.kinds or "output" not in sink.kinds or source is sink:
            assert status == INVALID
        elif source.content is None:
            assert status == FAILURE
        elif len(source.content) != length:
            assert status == INVALID
        elif sink.length not in (0, length):
            assert status == FAILURE  # the result does not fit what was allocated
        else:
            assert status == NONE
            sink.content = [-value for value in source.content]
            return
        sink.content = None

    @rule(source=alive, length=lengths)
    def execute_into_memory(self, source: Expected, length: int) -> None:
        if source.token not in self.known:
            return
        status = self.run([source.token, None], length)
        if "input" not in source.kinds:
            assert status == INVALID
        elif source.content is None:
            assert status == FAILURE
        else:
            assert status == (NONE if len(source.content) == length else INVALID)

    @rule(sink=alive, length=lengths)
    def execute_from_memory(self, sink: Expected, length: int) -> None:
        if sink.token not in self.known:
            return
        status = self.run([None, sink.token], length)
        if "output" not in sink.kinds:
            assert status == INVALID
        else:
            fits = sink.length in (0, length)
            assert status == (NONE if fits else FAILURE)
        sink.content = [-0.0] * length if status == NONE else None

    def run(self, tokens: list[int | None], length: int) -> ErrorStatus:
        """Execute with an input and an output that are buffers, or (None) memory."""
        pools: list[RequestPool] = []
        arguments = []
        for index, token in enumerate(tokens):
            room = 0
            if token is None:
                room = 4 * (LONGEST if index else length)
                pools.append(Pool(SharedMemory.create(room)))
            else:
                pools.append(BufferPool(self.tracker.acquire(token)))
            dimensions = () if index else (length,)
            arguments.append(
                RequestArgument(location=DataLocation(index, 0, room), dimensions=dimensions)
            )
        try:
            execution = MODEL.bind(Request((arguments[0],), (arguments[1],)), pools)
            return run_in_time(execution).status
        except NnburstError as error:
            return error.status
        finally:
            close_pools(pools)

    @invariant()
    def states_are_those_of_the_table(self) -> None:
        for token, expected in self.known.items():
            with self.tracker.acquire(token) as held:
                assert held.target._initialised == (expected.content is not None)
        assert len(self.objects) == len(self.known)


def status_of(call: Callable[[], None]) -> ErrorStatus:
    try:
        call()
    except NnburstError as error:
        return error.status
    return NONE


def test_buffers_follow_the_table_of_states() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Buffers, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
