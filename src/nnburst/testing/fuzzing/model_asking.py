"""Executes a request in every way that a driver offers, and records the answers."""

from __future__ import annotations

import queue
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from nnburst.client.device import Device
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.upcalls import Notification
from nnburst.client.staging import Layout
from nnburst.control.channel import Fds
from nnburst.control.messages import (
    BurstExecute,
    CreateReusableExecution,
    Execute,
    Executed,
    ExecuteFenced,
    ExecuteReusable,
    ExecuteReusableFenced,
    ExecuteSynchronously,
    ExecutionInfo,
    Fenced,
    GetExecutionInfo,
    Message,
    Nothing,
    NotifyExecuted,
    NotifyPrepared,
    Opened,
    Release,
)
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import NnburstError
from nnburst.hal.limits import UINT64_MAX
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.types import Request, RequestArgument
from nnburst.hal.utils import Closing
from nnburst.serialize import deserialize_result, serialize_request
from nnburst.testing.fuzzing.packet_fuzzer import judge
from nnburst.testing.models.small_models import Array, SmallModel
from nnburst.testing.raw_peer import RawBurst


class AsyncOutcome(NamedTuple):
    """Both answers to an asynchronous call.

    Attributes:
        answer: the error that refused the call; None if it was accepted.
        outcome: result of its callback: a notification of success, or an error.
    """

    answer: NnburstError | None
    outcome: Notification | NnburstError

    @property
    def status(self) -> ErrorStatus:
        """Status of the outcome."""
        return self.outcome.status

    @property
    def agree(self) -> bool:
        """Whether a refused call's callback had the same status."""
        return self.answer is None or self.answer.status == self.status


def call_async(
    device: Device, message: Callable[[int], Message], fds: Sequence[int], timeout: float
) -> AsyncOutcome:
    """Make an asynchronous call and wait for both answers; a prepared model in them is released.

    Args:
        device: the device to call.
        message: makes the call from the number of its callback.
        fds: borrowed descriptors to send with the call.
        timeout: seconds for each of the two answers.

    Raises:
        TimeoutError: an answer did not arrive in time.
        DeadObject: the driver has died.
    """
    callbacks = device._session.callbacks
    heard: queue.SimpleQueue[Notification | NnburstError] = queue.SimpleQueue()
    call = message(callbacks.open(heard.put).number)
    answer: NnburstError | None = None
    try:
        device._session.connection.call(call, Nothing, fds, timeout=timeout)
    except NnburstError as error:
        if not device.is_alive:
            raise
        answer = error
    try:
        outcome = heard.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"{type(call).__name__} was answered and not notified of") from None
    if isinstance(outcome, NotifyPrepared):
        callbacks.release_unwanted(outcome)
    return AsyncOutcome(answer, outcome)


# -- The driver under test, with its connections ---------------------------------------------------


class Target(Closing):
    """A model on a device. A context manager that frees its memory. One thread at a time.

    Attributes:
        device: the device.
        name: name of the model.
        model: the model, with pools in the form that the control channel carries.
        pools: memory of the model's pools.
        memory: memory of the request's arguments.
        request: a valid request, whose only pool is `memory`.
    """

    def __init__(self, device: Device, small: SmallModel) -> None:
        """Stage `small` on `device`."""
        self.device = device
        self.name = small.name
        self.pools = [_filled(device, data) for data in small.pools]
        described = tuple(MemoryPool(p.size, index) for index, p in enumerate(self.pools))
        self.model = replace(small.model, pools=described)
        self.memory, self.request = _staged(device, small.inputs, small.output_sizes)

    def prepare(self) -> PreparedModel:
        """Prepare the model."""
        return self.device.prepare(self.model, pools=self.pools)

    def close(self) -> None:
        """Free the memory."""
        for memory in (*self.pools, self.memory):
            memory.close()


def _filled(device: Device, data: bytes) -> Memory:
    memory = device.allocate(len(data))
    np.asarray(memory)[:] = np.frombuffer(data, np.uint8)
    return memory


def _staged(
    device: Device, inputs: Sequence[Array | None], output_sizes: Sequence[int]
) -> tuple[Memory, Request]:
    layout = Layout()
    places = [None if array is None else layout.place(array.nbytes) for array in inputs]
    rooms = [DataLocation(0, layout.place(size), size) for size in output_sizes]
    memory = device.allocate(max(layout.size, 1))
    view = np.asarray(memory)
    arguments = []
    for array, place in zip(inputs, places, strict=True):
        if array is None or place is None:
            arguments.append(RequestArgument(has_no_value=True))
            continue
        view[place : place + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        location = DataLocation(0, place, array.nbytes)
        arguments.append(RequestArgument(location=location, dimensions=array.shape))
    outputs = tuple(RequestArgument(location=room) for room in rooms)
    return memory, Request(tuple(arguments), outputs, (MemoryPool(memory.size),))


# -- The ways to execute a request -----------------------------------------------------------------


_TIMEOUT: Final = 60.0
_NONE: Final = ErrorStatus.NONE


class Answer(NamedTuple):
    """The answer to a request: its status, whether it has timing, and its other faults."""

    status: ErrorStatus
    measured: bool
    problems: Sequence[str]


Ask = Callable[[Request, bool], Answer]


@contextmanager
def _memory_of(target: Target) -> Iterator[list[int]]:
    with Fds([target.memory.duplicate()]) as fds:
        yield list(fds)


def _refusal(target: Target, error: NnburstError) -> Answer:
    """Turn an error into an answer; raise it if the driver has died."""
    if not target.device.is_alive:
        raise error
    problems = [f"{error.status.name} with shapes"] if error.output_shapes else []
    return Answer(error.status, measured=False, problems=problems)


def execute_synchronously(target: Target, prepared: PreparedModel) -> Ask:
    """Execute by a synchronous call."""
    return _wait_for(
        target,
        lambda request, measure: ExecuteSynchronously(prepared._prepared.handle, request, measure),
    )


def execute_in_aidl_burst(target: Target, burst: int, identifiers: Sequence[int] = (-1,)) -> Ask:
    """Execute by a call of AIDL burst `burst`, with a memory identifier for each pool."""
    numbers = tuple(identifiers)
    return _wait_for(
        target,
        lambda request, measure: BurstExecute(burst, request, measure, memory_identifiers=numbers),
    )


def _wait_for(target: Target, message_of: Callable[[Request, bool], Message]) -> Ask:
    """Execute by a message whose answer is the result."""

    def ask(request: Request, measure: bool) -> Answer:
        try:
            with _memory_of(target) as fds:
                message, connection = (
                    message_of(request, measure),
                    target.device._session.connection,
                )
                executed, _ = connection.call(message, Executed, fds, timeout=_TIMEOUT)
        except NnburstError as error:
            return _refusal(target, error)
        return Answer(_NONE, executed.timing.measured, ())

    return ask


def execute(target: Target, prepared: PreparedModel) -> Ask:
    """Execute by an asynchronous call, and its callback."""

    def ask(request: Request, measure: bool) -> Answer:
        with _memory_of(target) as fds:
            answers = call_async(
                target.device,
                lambda number: Execute(
                    prepared._prepared.handle, request, measure, callback=number
                ),
                fds,
                _TIMEOUT,
            )
        outcome = answers.outcome
        if isinstance(outcome, NotifyExecuted):
            return Answer(_NONE, outcome.timing.measured, _answer_problems(answers.answer))
        if not isinstance(outcome, NnburstError):
            return Answer(_NONE, measured=False, problems=["notified as of a preparation"])
        answer = _refusal(target, outcome)
        if answer.status == ErrorStatus.INVALID_ARGUMENT and answers.answer is None:
            return answer._replace(problems=[*answer.problems, "accepted, although invalid"])
        if not answers.agree:
            told = f"answered {answers.answer}, notified of {answer.status.name}"
            return answer._replace(problems=[*answer.problems, told])
        return answer

    return ask


def _answer_problems(answer: NnburstError | None) -> Sequence[str]:
    return [] if answer is None else [f"answered {answer.status.name}, notified of NONE"]


def execute_fenced(target: Target, prepared: PreparedModel) -> Ask:
    """Execute by a fenced call, which waits for no fence itself."""

    def ask(request: Request, measure: bool) -> Answer:
        connection = target.device._session.connection
        try:
            with _memory_of(target) as fds:
                message = ExecuteFenced(prepared._prepared.handle, request, measure)
                fenced, fence = connection.call(message, Fenced, fds, timeout=_TIMEOUT)
        except NnburstError as error:
            return _refusal(target, error)
        return _fenced_answer(target, fenced, fence)

    return ask


def _fenced_answer(target: Target, fenced: Fenced, fence: Fds) -> Answer:
    """Wait for a fenced execution, and get its result."""
    connection = target.device._session.connection
    if not fenced.is_done:
        with SyncFence(fence.take(0)) as done:
            done.wait(_TIMEOUT)
    about = GetExecutionInfo(fenced.handle)
    info, _ = connection.call(about, ExecutionInfo, timeout=_TIMEOUT)
    connection.call(Release(fenced.handle), Nothing, timeout=_TIMEOUT)
    return Answer(info.status, info.launched[1] != UINT64_MAX, ())


def execute_reusable(target: Target, prepared: PreparedModel, *, fenced: bool) -> Ask:
    """Execute by an execution object, which is run once."""

    def ask(request: Request, measure: bool) -> Answer:
        connection = target.device._session.connection
        try:
            with _memory_of(target) as fds:
                create = CreateReusableExecution(prepared._prepared.handle, request, measure)
                opened, _ = connection.call(create, Opened, fds, timeout=_TIMEOUT)
        except NnburstError as error:
            return _refusal(target, error)
        try:
            if fenced:
                call = ExecuteReusableFenced(opened.handle)
                return _fenced_answer(target, *connection.call(call, Fenced, timeout=_TIMEOUT))
            run = ExecuteReusable(opened.handle)
            executed, _ = connection.call(run, Executed, timeout=_TIMEOUT)
            return Answer(_NONE, executed.timing.measured, ())
        except NnburstError as error:
            return _refusal(target, error)
        finally:
            connection.post(Release(opened.handle))

    return ask


def execute_with_fence(target: Target, prepared: PreparedModel, fds: Sequence[int]) -> Ask:
    """Execute by a fenced call that declares one fence, while `fds` are sent as fences."""

    def ask(request: Request, measure: bool) -> Answer:
        connection = target.device._session.connection
        message = ExecuteFenced(prepared._prepared.handle, request, measure, wait_for=1)
        try:
            with _memory_of(target) as memory:
                connection.call(message, Fenced, [*memory, *fds], timeout=_TIMEOUT)
        except NnburstError as error:
            return _refusal(target, error)
        return Answer(_NONE, measured=False, problems=["waits for something that is not a fence"])

    return ask


def execute_in_burst(target: Target, burst: RawBurst) -> Ask:
    """Execute by a packet in a burst."""

    def ask(request: Request, measure: bool) -> Answer:
        timing = MeasureTiming.YES if measure else MeasureTiming.NO
        packet = serialize_request(request, [burst.slot_of(target.memory)], timing)
        answer = burst.exchange(packet, _TIMEOUT)
        status, problems = judge(answer, frozenset(ErrorStatus))
        return Answer(status, deserialize_result(answer)[2].measured, problems)

    return ask


# -- The report ------------------------------------------------------------------------------------


#: The meaning of a mutation's id (NNAPI: ValidateModel.cpp, ValidateRequest.cpp, ValidateBurst.cpp).
KINDS: Final = {
    "VM1": "reader moved before its writer",
    "VM2": "writer moved behind its readers",
    "VM3": "operand type that does not exist",
    "VM4": "scalar with a dimension",
    "VM5": "scale that the type forbids",
    "VM6": "zero point that the type forbids",
    "VM7": "lifetime that the graph contradicts",
    "VM8": "lifetime that the index lists contradict",
    "VM9": "wrong number of consumers",
    "VM10": "operand written twice",
    "VM11": "operand of another type",
    "VM12": "operation that does not exist",
    "VM13": "input operand that does not exist",
    "VM14": "output operand that does not exist",
    "VM15": "operand read and never written",
    "VM16": "operand struck out",
    "VM17": "operation struck out",
    "VM18": "operation with an input less",
    "VM19": "operation with an output less",
    "VM20": "operation with an input more",
    "VM21": "operation with an output more",
    "VM22": "execution preference that does not exist",
    "VM23": "priority that does not exist",
    "VR1": "asynchronous execution without an input",
    "VR2": "execute without an input",
    "VR3": "burst without an input",
    "VR4": "fenced execution without an input",
    "VR5": "any of them without an output",
    "VR6": "slot freed: known, unknown, twice",
    "VR7": "model that cannot be executed",
    "VR8": "fenced execution that waits for no fence",
    "VR9": "execution object, or AIDL's burst, without an input or with wrong identifiers",
    "VB1": "packet with an element less",
    "VB2": "packet with an element more",
    "VB3": "packet with an element replaced",
    "VB4": "packet with an unknown slot",
    "VB5": "result longer than its ring",
}


class FuzzFailure(NamedTuple):
    """A forbidden answer; model and mutation reproduce it."""

    model: str
    mutation: str
    reason: str


@dataclass(frozen=True, slots=True)
class FuzzSelection:
    """Selects the mutations to send.

    Attributes:
        mutation: regular expression that a mutation's description must begin with.
    """

    mutation: str = ""

    def takes(self, description: str) -> bool:
        """Whether a mutation is sent."""
        return re.match(self.mutation, description) is not None


EVERYTHING: Final = FuzzSelection()


@dataclass(slots=True)
class FuzzReport:
    """Counts and failures. Not thread-safe.

    Attributes:
        sent: mutations by the id of their kind ("VM11").
        refused_by: number of answers by the rule that they name ("P4").
        failures: descriptions of everything that must not happen.
    """

    sent: Counter[str] = field(default_factory=Counter)
    refused_by: Counter[str] = field(default_factory=Counter)
    failures: list[FuzzFailure] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Mutations sent."""
        return self.sent.total()

    def count(self, description: str) -> None:
        """Count a mutation that was sent; its description begins with the id of its kind."""
        self.sent[description.partition(" ")[0]] += 1

    def refused(self, message: str) -> None:
        """Count an answer that refused a mutation; its message begins with a rule."""
        rule = re.match(r"\w+:[A-Z]+\d+(?=: )", message)
        self.refused_by[rule[0] if rule else "(unnamed)"] += 1

    def fail(self, model: str, mutation: str, reason: str) -> None:
        """Note a failure."""
        self.failures.append(FuzzFailure(model, mutation, reason))
