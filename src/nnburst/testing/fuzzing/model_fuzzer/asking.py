"""Every way to have a request executed, and what was learnt of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.prepared_model import PreparedModel
from nnburst.control.channel import Fds
from nnburst.control.messages.aidl_burst import BurstExecute
from nnburst.control.messages.fenced_execution import (
    ExecuteFenced,
    ExecutionInfo,
    Fenced,
    GetExecutionInfo,
)
from nnburst.control.messages.message import Message
from nnburst.control.messages.prepared_model import (
    Execute,
    Executed,
    ExecuteSynchronously,
    NotifyExecuted,
)
from nnburst.control.messages.reusable_execution import (
    CreateReusableExecution,
    ExecuteReusable,
    ExecuteReusableFenced,
)
from nnburst.control.messages.session import Nothing, Opened, Release
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import NnburstError
from nnburst.hal.limits import UINT64_MAX
from nnburst.hal.request import Request
from nnburst.serialize import deserialize_result, serialize_request
from nnburst.testing.fuzzing.model_fuzzer.async_calls import call_async
from nnburst.testing.fuzzing.model_fuzzer.target import Target
from nnburst.testing.fuzzing.packet_fuzzer import judge
from nnburst.testing.peers.raw_burst import RawBurst

_TIMEOUT: Final = 60.0
_NONE: Final = ErrorStatus.NONE


class Answer(NamedTuple):
    """How a request was answered: its status, whether it was timed, what else is wrong with it."""

    status: ErrorStatus
    measured: bool
    problems: Sequence[str]


Ask = Callable[[Request, bool], Answer]


@contextmanager
def _memory_of(target: Target) -> Iterator[list[int]]:
    with Fds([target.memory.duplicate()]) as fds:
        yield list(fds)


def _refusal(target: Target, error: NnburstError) -> Answer:
    """The answer behind an error; raised if it is the driver's death."""
    if not target.device.is_alive:
        raise error
    problems = [f"{error.status.name} with shapes"] if error.output_shapes else []
    return Answer(error.status, measured=False, problems=problems)


def execute_synchronously(target: Target, prepared: PreparedModel) -> Ask:
    """By a call that waits."""
    return _wait_for(
        target,
        lambda request, measure: ExecuteSynchronously(prepared._prepared.handle, request, measure),
    )


def execute_in_aidl_burst(target: Target, burst: int, identifiers: Sequence[int] = (-1,)) -> Ask:
    """By a call of AIDL's burst `burst`, with a memory identifier for each pool."""
    numbers = tuple(identifiers)
    return _wait_for(
        target,
        lambda request, measure: BurstExecute(burst, request, measure, memory_identifiers=numbers),
    )


def _wait_for(target: Target, message_of: Callable[[Request, bool], Message]) -> Ask:
    """By a message that is answered with the result."""

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
    """By an asynchronous call, and its callback."""

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
    """By a call that answers with a fence; there is nothing to wait for before."""

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
    """Wait for a fenced execution, and ask how it went."""
    connection = target.device._session.connection
    if not fenced.is_done:
        with SyncFence(fence.take(0)) as done:
            done.wait(_TIMEOUT)
    about = GetExecutionInfo(fenced.handle)
    info, _ = connection.call(about, ExecutionInfo, timeout=_TIMEOUT)
    connection.call(Release(fenced.handle), Nothing, timeout=_TIMEOUT)
    return Answer(info.status, info.launched[0] != UINT64_MAX, ())


def execute_reusable(target: Target, prepared: PreparedModel, *, fenced: bool) -> Ask:
    """By an execution object that is made for it, and run once."""

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
    """By a fenced execution that declares one fence, which is what `fds` are."""

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
    """By a packet."""

    def ask(request: Request, measure: bool) -> Answer:
        timing = MeasureTiming.YES if measure else MeasureTiming.NO
        packet = serialize_request(request, [burst.slot_of(target.memory)], timing)
        answer = burst.exchange(packet, _TIMEOUT)
        status, problems = judge(answer, frozenset(ErrorStatus))
        return Answer(status, deserialize_result(answer)[2].measured, problems)

    return ask
