"""An execution object that is not used gives memory back, and takes it again with its next run."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator, Sequence

import pytest

from driver.burst_harness import ScriptedExecution, ScriptedExecutor, relu_model
from nnburst.control.channel import Fds
from nnburst.control.messages import (
    CreateReusableExecution,
    Executed,
    ExecuteReusable,
    ExecuteReusableFenced,
    Fenced,
    Opened,
)
from nnburst.driver.calls import fenced_execution
from nnburst.driver.calls.fenced_execution import (
    create_reusable_execution,
    execute_reusable,
    execute_reusable_fenced,
)
from nnburst.driver.client_session import ClientSession
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import Argument, Outcome
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus, ExecutionPreference, Priority
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.types import Request, RequestArgument
from waiting import wait_for

REQUEST = Request(
    (RequestArgument(location=DataLocation(0, 0, 8)),),
    (RequestArgument(location=DataLocation(0, 8, 8)),),
    (MemoryPool(64, 0),),
)


@contextlib.contextmanager
def bound(session: ClientSession, executor: ScriptedExecutor) -> Iterator[int]:
    """The handle of an execution object of RELU on 64 bytes of memory."""
    preference = ExecutionPreference.FAST_SINGLE_ANSWER
    model = PreparedModel(relu_model(), executor, preference, Priority.MEDIUM)
    prepared = session.objects.add(model)
    with SharedMemory.create(64) as memory, Fds([os.dup(memory.fd)]) as fds:
        answer, _ = create_reusable_execution(
            session, CreateReusableExecution(prepared, REQUEST), fds
        )
    assert isinstance(answer, Opened)
    yield answer.handle
    session.objects.release(answer.handle)
    session.objects.release(prepared)


def run(session: ClientSession, handle: int) -> ErrorStatus:
    answer, _ = execute_reusable(session, ExecuteReusable(handle), Fds())
    assert isinstance(answer, Executed)
    return ErrorStatus.NONE


def watches() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "nnburst idle"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced_execution, "IDLE_NS", 1_500_000_000)


def test_an_execution_object_that_idles_is_unbound_until_its_next_run(
    session: ClientSession,
) -> None:
    executor = ScriptedExecutor()
    with bound(session, executor) as handle:
        for times in (1, 2):
            assert run(session, handle) == ErrorStatus.NONE
            assert len(executor.bound) == times
            wait_for(lambda: executor.bound[-1].closed)
    assert executor.runs == 2
    assert all(each.closed for each in executor.bound)


def test_one_that_never_ran_is_unbound_too(session: ClientSession) -> None:
    executor = ScriptedExecutor()
    with bound(session, executor):
        wait_for(lambda: executor.bound[0].closed)
    assert len(executor.bound) == 1


def test_a_fenced_run_binds_it_again(session: ClientSession) -> None:
    executor = ScriptedExecutor()
    with bound(session, executor) as handle:
        wait_for(lambda: executor.bound[0].closed)
        answer, fds = execute_reusable_fenced(session, ExecuteReusableFenced(handle), Fds())
        assert isinstance(answer, Fenced)
        with fds:
            fence = fds.take(0)
            assert select.select([fence], [], [], 20.0)[0]
            os.close(fence)
        session.objects.release(answer.handle)
    assert (len(executor.bound), executor.runs) == (2, 1)


def test_nothing_is_unbound_while_it_runs(session: ClientSession) -> None:
    others: list[ScriptedExecution] = []

    def outlast(execution: ScriptedExecution) -> Outcome:
        wait_for(lambda: others[0].closed)  # the other one idles as long as this one runs
        assert not execution.closed
        return Outcome()

    slow, idle = ScriptedExecutor(outlast), ScriptedExecutor()
    with bound(session, slow) as handle, bound(session, idle):
        others += idle.bound
        assert run(session, handle) == ErrorStatus.NONE


def test_a_run_that_cannot_bind_again_fails_and_the_next_one_tries_again(
    session: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ScriptedExecutor()

    def refuse(_inputs: Sequence[Argument], _outputs: Sequence[Argument]) -> ScriptedExecution:
        raise GeneralFailure("no memory is left")

    with bound(session, executor) as handle:
        wait_for(lambda: executor.bound[0].closed)
        with monkeypatch.context() as patched:
            patched.setattr(executor, "bind", refuse)
            with pytest.raises(GeneralFailure, match="no memory is left"):
                run(session, handle)
        assert run(session, handle) == ErrorStatus.NONE


def test_no_thread_looks_after_execution_objects_that_are_all_unbound(
    session: ClientSession,
) -> None:
    before = watches()
    executor = ScriptedExecutor()
    with bound(session, executor):
        (watch,) = (
            each for each in watches() if each not in before
        )  # those of other sessions end later
        wait_for(lambda: executor.bound[0].closed)
        wait_for(lambda: not watch.is_alive())
