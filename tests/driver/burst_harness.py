"""Runs a driver's burst in this process, with a client that sends any packet for a test."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from nnburst.control.channel import Fds
from nnburst.control.messages import OpenBurst
from nnburst.driver.burst import BurstClient, BurstContext, start_burst
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import Argument, NativeCall, Outcome
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import MQDescriptor, SharedMemory
from nnburst.hal.enums import (
    ExecutionPreference,
    MeasureTiming,
    OperandType,
    OperationType,
    Priority,
)
from nnburst.hal.model import DataLocation, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import OutputShape, Request, RequestArgument
from nnburst.serialize import (
    REQUEST_DATUM,
    RESULT_DATUM,
    deserialize_result,
    serialize_request,
)
from waiting import wait_for

if TYPE_CHECKING:
    from nnburst.serialize.packets import Result

F32 = OperandType.TENSOR_FLOAT32


def relu_model(output: Sequence[int] = (2,)) -> Model:
    """One float32 tensor of shape (2,) in, one out."""
    builder = ModelBuilder()
    source, target = builder.input(F32, (2,)), builder.output(F32, output)
    builder.operation(OperationType.RELU, [source], [target])
    return builder.build()


class ScriptedExecution:
    """Runs the test's function."""

    keeps_memory = True

    def __init__(self, executor: ScriptedExecutor, arguments: Sequence[Argument]) -> None:
        self._executor = executor
        self.native = executor.native
        self.arguments = arguments
        self.closed = False

    def run(self, _deadline_ns: int | None = None, _loop_timeout_ns: int = 0) -> Outcome:
        self._executor.runs += 1
        return self._executor.on_run(self)

    def close(self) -> None:
        self.closed = True


class ScriptedExecutor:
    """A prepared model whose executions the test controls."""

    def __init__(self, on_run: Callable[[ScriptedExecution], Outcome] | None = None) -> None:
        self.on_run = on_run or (lambda _execution: Outcome())
        self.runs = 0
        self.native: NativeCall | None = None
        self.bound: list[ScriptedExecution] = []

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> ScriptedExecution:
        self.bound.append(ScriptedExecution(self, [*inputs, *outputs]))
        return self.bound[-1]

    def close(self) -> None:
        """Do nothing, since the model holds no resources."""


class Harness:
    """Queues, pools by slot, and the driver's burst on them."""

    def __init__(
        self,
        executor: Any = None,
        *,
        lengths: tuple[int, int] = (64, 64),
        max_in_flight: int = 1,
        model: Model | None = None,
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
    ) -> None:
        self.executor = executor or ScriptedExecutor()
        self.requests = MessageQueue.create(REQUEST_DATUM, lengths[0])
        self.results = MessageQueue.create(RESULT_DATUM, lengths[1])
        self.pools: dict[int, SharedMemory] = {}
        self.asked: list[list[int]] = []
        self.ended: list[str] = []
        self.has_ended = threading.Event()
        prepared = PreparedModel(model or relu_model(), self.executor, preference, priority)
        self.released: list[bool] = []
        client = BurstClient(self.get_memories, self._closed, lambda: self.released.append(True))
        call = configure(self.requests, self.results, max_in_flight, preference)
        self.context: BurstContext = start_burst(prepared, call, self.fds(), client)

    def fds(self) -> Fds:
        return Fds(os.dup(queue.memories[0].fd) for queue in (self.requests, self.results))

    def get_memories(self, slots: Sequence[int], _timeout: float) -> list[SharedMemory]:
        self.asked.append(list(slots))
        return [self.pools[slot].duplicate() for slot in slots]

    def _closed(self, reason: str) -> None:
        self.ended.append(reason)
        self.has_ended.set()

    def packet(self, *slots: int, measure: bool = False) -> np.ndarray:
        """A request on the first pool (input at 0) and the last one (output at 8)."""
        request = Request(
            (RequestArgument(location=DataLocation(0, 0, 8)),),
            (RequestArgument(location=DataLocation(len(slots) - 1, 8, 8)),),
        )
        for slot in slots:
            self.pools.setdefault(slot, SharedMemory.create(64))
        timed = MeasureTiming.YES if measure else MeasureTiming.NO
        return serialize_request(request, slots, timed)

    def send(self, packet: np.ndarray) -> None:
        assert self.requests.write(packet, timeout=20)

    def receive(self, count: int = 2) -> Result:
        """A result of `count` elements."""
        packet = self.results.read(count, timeout=20)
        assert packet is not None, "no result came"
        return deserialize_result(packet)

    def exchange(self, packet: np.ndarray, count: int = 2) -> Result:
        self.send(packet)
        return self.receive(count)

    def leave_a_result_without_room(self) -> None:
        """Execute two requests, of which only the first result fits into a result ring of 3 elements."""
        for runs in (1, 2):
            self.send(self.packet(0))
            wait_for(lambda runs=runs: self.executor.runs == runs)  # type: ignore[misc]
            wait_for(lambda: self.results.available_to_read() == 2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def configure(
    requests: MessageQueue,
    results: MessageQueue,
    max_in_flight: int = 1,
    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
) -> OpenBurst:
    """The call that opens a burst on two queues."""
    return OpenBurst(
        handle=1,
        callback=1,
        request_channel=encoded(requests.descriptor),
        result_channel=encoded(results.descriptor),
        max_in_flight=max_in_flight,
        cpus=(0,),
        preference=preference,
    )


def encoded(descriptor: MQDescriptor) -> msgspec.Raw:
    """A descriptor in the form that is sent."""
    return msgspec.Raw(msgspec.msgpack.encode(descriptor))


def shapes(*dimensions: Sequence[int]) -> tuple[OutputShape, ...]:
    """Sufficient outputs of these dimensions."""
    return tuple(OutputShape(tuple(d), True) for d in dimensions)
