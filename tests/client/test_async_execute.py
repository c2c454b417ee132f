"""Executions without a waiting caller."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
import gc
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from client.conftest import add_model
from client.scripted_driver import HANG, Execution, Gate, ScriptedDriver
from interrupting import threads_that_start
from nnburst import (
    Closed,
    DeadObject,
    Device,
    GeneralFailure,
    InvalidArgument,
    Memory,
    MissedDeadline,
    Model,
    OutputInsufficientSize,
    PreparedModel,
    Priority,
    ResourceExhausted,
)
from nnburst.client.arguments import ExecutionResult
from nnburst.client.burst.beside_loop import call_on_a_thread
from nnburst.client.prepared_model import PendingExecution, executes_synchronously
from nnburst.control.messages import Execute, ExecuteSynchronously, Message
from nnburst.driver.calls import HANDLERS
from nnburst.executor.base import Outcome
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.types import OutputShape
from nnburst.runtime.argument import NOT_TIMED
from waiting import wait_for

Pair = list[np.ndarray]
MODEL = add_model()
PAIR = [np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)]


@pytest.fixture
def driver() -> Iterator[ScriptedDriver]:
    with ScriptedDriver() as started:
        yield started


@pytest.fixture
def scripted(driver: ScriptedDriver) -> PreparedModel:
    return driver.device.prepare(MODEL)


@pytest.fixture
def gate(driver: ScriptedDriver) -> Iterator[Gate]:
    """Holds every execution up."""
    held = Gate()

    def run(_execution: Execution) -> Outcome:
        held()
        return Outcome()

    driver.script.on_run = run
    yield held
    held.opened.set()


class Heard:
    """A callback that counts."""

    def __init__(self) -> None:
        self.executions: list[PendingExecution] = []
        self._called = threading.Semaphore(0)

    def __call__(self, execution: PendingExecution) -> None:
        self.executions.append(execution)
        self._called.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._called.acquire(timeout=HANG)

    def no_more(self) -> bool:
        return not self._called.acquire(blocking=False)


def test_execution_gives_the_sum(prepared: PreparedModel, pair: Pair) -> None:
    pending = prepared.execute_async(pair, measure=True)
    result = pending.result(HANG)
    np.testing.assert_array_equal(result.outputs[0], pair[0] + pair[1])
    assert 0 <= result.timing.time_on_device <= result.timing.time_in_driver
    assert pending.result() is result
    assert not prepared.execute_async(pair).result(HANG).timing.measured


def test_caller_does_not_wait_for_the_execution(scripted: PreparedModel, gate: Gate) -> None:
    heard = Heard()
    pending = scripted.execute_async(PAIR, callback=heard)
    gate.wait()
    assert not pending.done()
    assert heard.no_more()
    gate.opened.set()
    heard.wait()
    assert heard.executions == [pending]
    assert pending.result().outputs[0].shape == (2, 3)
    assert heard.no_more()


def test_given_outputs_are_filled(prepared: PreparedModel, pair: Pair) -> None:
    memory = prepared._prepared.session.allocate(4096)
    pooled, private = memory.array(np.float32, (2, 3), 64), np.zeros((2, 3), np.float32)
    for output in (pooled, private):
        result = prepared.execute_async(pair, [output]).result(HANG)
        assert result.outputs[0] is output
        np.testing.assert_array_equal(output, pair[0] + pair[1])


def test_inputs_outside_of_pools_may_change_at_once(
    device: Device, make_model: Callable[..., Model]
) -> None:
    with device.prepare(make_model((1000,))) as prepared:
        first, second = np.ones(1000, np.float32), np.ones(1000, np.float32)
        pending = prepared.execute_async([first, second])
        first[:] = 99
        np.testing.assert_array_equal(pending.result(HANG).outputs[0], np.full(1000, 2))


def test_output_of_unknown_size_grows(device: Device, make_model: Callable[..., Model]) -> None:
    size = 100_000  # more than is offered at first
    with device.prepare(make_model((size,), output=(0,))) as prepared:
        heard = Heard()
        a, b = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
        pending = prepared.execute_async([a, b], callback=heard)
        np.testing.assert_array_equal(pending.result(HANG).outputs[0], a + b)
        heard.wait()
        small = prepared.execute_async([a, b], [np.zeros(5, np.float32)])
        with pytest.raises(OutputInsufficientSize) as caught:
            small.result(HANG)
        assert caught.value.output_shapes == (OutputShape((size,), False),)
        assert heard.no_more()


def test_argument_that_does_not_fit_is_refused_before_anything_is_sent(
    prepared: PreparedModel, pair: Pair
) -> None:
    heard = Heard()
    with pytest.raises(InvalidArgument, match=r"inputs: 1 arrays given"):
        prepared.execute_async(pair[:1], callback=heard)
    with pytest.raises(InvalidArgument, match="timeout"):
        prepared.execute_async(pair, timeout=-1, callback=heard)
    assert heard.no_more()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (ErrorStatus.GENERAL_FAILURE, GeneralFailure),
        (ErrorStatus.MISSED_DEADLINE_TRANSIENT, MissedDeadline),
    ],
)
def test_failure_reaches_the_callback_once(
    driver: ScriptedDriver, scripted: PreparedModel, status: ErrorStatus, error: type[Exception]
) -> None:
    driver.script.on_run = lambda _execution: Outcome(status, (), "no luck")
    heard = Heard()
    pending = scripted.execute_async(PAIR, callback=heard)
    heard.wait()
    with pytest.raises(error, match="no luck"):
        pending.result()
    assert heard.no_more()


def test_negative_deadline_is_refused_by_the_driver(scripted: PreparedModel) -> None:
    with pytest.raises(InvalidArgument, match="E3"):
        scripted.execute_async(PAIR, deadline_ns=-2).result(HANG)


def test_passed_deadline_is_missed_for_good(scripted: PreparedModel) -> None:
    with pytest.raises(MissedDeadline, match="E4") as caught:
        scripted.execute_async(PAIR, deadline_ns=1).result(HANG)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_timeout_is_a_deadline_of_the_driver(
    driver: ScriptedDriver, scripted: PreparedModel
) -> None:
    seen: list[Any] = []

    def note(execution: Execution) -> Outcome:
        seen.append((execution.deadline_ns, execution.loop_timeout_ns))
        return Outcome()

    driver.script.on_run = note
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    scripted.execute_async(PAIR, timeout=50, loop_timeout_ns=7).result(HANG)
    scripted.execute_async(PAIR, timeout=1e300).result(HANG)
    (deadline, loop), (late, _) = seen
    assert before + 50e9 <= deadline <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 50e9
    assert loop == 7
    assert late > before + 10**18


def test_death_ends_an_execution(
    driver: ScriptedDriver, scripted: PreparedModel, gate: Gate
) -> None:
    heard = Heard()
    pending = scripted.execute_async(PAIR, callback=heard)
    gate.wait()
    driver.die()
    with pytest.raises(DeadObject):
        pending.result(HANG)
    heard.wait()
    gate.opened.set()
    assert heard.no_more()


def test_closing_the_device_ends_an_execution(
    driver: ScriptedDriver, scripted: PreparedModel, gate: Gate
) -> None:
    pending = scripted.execute_async(PAIR)
    gate.wait()
    driver.device.close()
    with pytest.raises(Closed):
        pending.result(HANG)
    with pytest.raises(Closed):
        scripted.execute_async(PAIR)


def test_private_pool_is_used_again_once_the_driver_is_done(
    driver: ScriptedDriver, scripted: PreparedModel, gate: Gate
) -> None:
    pending = scripted.execute_async(PAIR)
    gate.wait()
    assert pending.cancel()
    with pytest.raises(Closed, match="cancelled"):
        pending.result()
    assert scripted._prepared.staging._free == []  # the driver may still write to it
    gate.opened.set()
    wait_for(lambda: len(scripted._prepared.staging._free) == 1)
    driver.script.on_run = lambda _execution: Outcome()
    scripted.execute_async(PAIR).result(HANG)
    assert len(scripted._prepared.staging._free) == 1


def test_pools_of_an_execution_stay_until_it_is_notified_of(
    driver: ScriptedDriver, scripted: PreparedModel, gate: Gate
) -> None:
    memory = driver.device.allocate(4096)
    output = memory.array(np.float32, (2, 3))
    reference = weakref.ref(memory)
    pending = scripted.execute_async(PAIR, [output])
    gate.wait()
    pending.cancel()
    del memory, output, pending
    gc.collect()
    assert reference() is not None
    gate.opened.set()
    wait_for(lambda: gc.collect() is not None and reference() is None)


def test_execution_can_be_awaited(prepared: PreparedModel, pair: Pair) -> None:
    async def run() -> list[Any]:
        return [await prepared.execute_async([pair[0] * n, pair[1]]) for n in range(3)]

    for n, result in enumerate(asyncio.run(run())):
        np.testing.assert_array_equal(result.outputs[0], pair[0] * n + pair[1])


def test_many_executions_are_under_way_at_once(prepared: PreparedModel, pair: Pair) -> None:
    pending = [prepared.execute_async([pair[0] * n, pair[1]]) for n in range(200)]
    for n, execution in enumerate(pending):
        np.testing.assert_array_equal(execution.result(HANG).outputs[0], pair[0] * n + pair[1])


def test_models_and_their_executions_end_in_any_order(device: Device, pair: Pair) -> None:
    """Two prepared models, interleaved, and released while executions of theirs are under way."""
    for order in itertools.permutations(range(4)):
        first, second = device.prepare(MODEL), device.prepare(MODEL)
        pending = [
            model.execute_async([pair[0] * n, pair[1]])
            for n, model in enumerate((first, second, second, first))
        ]
        second.close()
        for n in order:
            np.testing.assert_array_equal(pending[n].result(HANG).outputs[0], pair[0] * n + pair[1])
        first.close()


def test_pending_execution_is_its_process_s_own(scripted: PreparedModel, gate: Gate) -> None:
    pending = scripted.execute_async(PAIR)
    gate.wait()
    child = os.fork()
    if child == 0:
        try:
            pending.result()
        except Closed:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.opened.set()
    assert pending.result(HANG)


def test_quick_calls_do_not_wait_for_executions(
    driver: ScriptedDriver, scripted: PreparedModel, gate: Gate
) -> None:
    pending = [scripted.execute_async(PAIR) for _ in range(40)]
    gate.wait()
    other = driver.device.prepare(MODEL)
    other.close()
    assert driver.script.closed.acquire(timeout=HANG)
    assert not any(execution.done() for execution in pending)
    gate.opened.set()
    for execution in pending:
        execution.result(HANG)


def test_executions_of_one_client_run_by_priority(driver: ScriptedDriver) -> None:
    """Both ways to execute over the socket; all lanes are held up until all of them wait."""
    lanes: Any = next(
        lane
        for work, lane in driver.worker._session.scheduler._lanes.items()  # type: ignore[union-attr]
        if work.name == "EXECUTION"
    )
    models = {priority: driver.device.prepare(MODEL, priority=priority) for priority in Priority}
    gates = [Gate() for _ in range(lanes._usual.limit)]
    left, order = iter(gates), []

    def hold(_execution: Execution) -> Outcome:
        next(left)()
        return Outcome()

    def note(execution: Execution) -> Outcome:
        order.append(execution.model.priority)
        return Outcome()

    driver.script.on_run = hold
    holding = []
    for held in gates:
        holding.append(models[Priority.HIGH].execute_async(PAIR))
        held.wait()
    driver.script.on_run = note
    wanted = [Priority.MEDIUM, Priority.HIGH] * 3
    pending = [models[priority].execute_async(PAIR) for priority in wanted]
    threads = [
        threading.Thread(target=models[priority].execute, args=(PAIR,)) for priority in wanted
    ]
    for thread in threads:
        thread.start()
    low = models[Priority.LOW].execute_async(PAIR)
    wait_for(lambda: sum(map(len, lanes._waiting.values())) == 13)
    assert order == []
    gates[0].opened.set()
    for execution in [*pending, low]:
        execution.result(HANG)
    for thread in threads:
        thread.join(HANG)
    urgent = [priority for priority in order if priority != Priority.LOW]
    assert urgent == sorted(urgent, reverse=True)
    assert order.index(Priority.LOW) >= 11  # not before the last MEDIUM one had begun
    for held in gates:
        held.opened.set()
    for execution in holding:
        execution.result(HANG)


def test_launches_of_one_client_go_by_priority_too(driver: ScriptedDriver) -> None:
    """A request is bound before it waits for its turn, which may take a while."""
    lanes: Any = next(
        lane
        for work, lane in driver.worker._session.scheduler._lanes.items()  # type: ignore[union-attr]
        if work.name == "START"
    )
    models = {priority: driver.device.prepare(MODEL, priority=priority) for priority in Priority}
    driver.script.on_bind = gate = Gate()
    order: list[Priority] = []

    def note(execution: Execution) -> Outcome:
        order.append(execution.model.priority)
        return Outcome()

    holding = [models[Priority.HIGH].execute_async(PAIR) for _ in range(lanes._usual.limit)]
    for _ in holding:
        gate.wait()
    wanted = [Priority.LOW, Priority.MEDIUM, Priority.HIGH]
    pending = [models[priority].execute_async(PAIR) for priority in wanted]
    wait_for(lambda: sum(map(len, lanes._waiting.values())) == 3)
    assert [len(queue) for queue in lanes._waiting.values()] == [1, 1, 1]
    driver.script.on_run = note
    gate.opened.set()
    for execution in [*holding, *pending]:
        execution.result(HANG)
    assert len(order) == len(holding) + 3


@pytest.fixture(autouse=True)
def read_again() -> Iterator[None]:
    """A variable that a test has set in the environment counts for no other."""
    yield
    executes_synchronously.cache_clear()


def test_variable_is_read_once_and_a_value_that_is_neither_is_refused_by_its_name(
    prepared: PreparedModel, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    executes_synchronously.cache_clear()
    monkeypatch.setenv("NNBURST_SYNCEXEC_HAL", "yes")
    with pytest.raises(InvalidArgument, match=r"^NNBURST_SYNCEXEC_HAL is 'yes', expected 0 or 1"):
        prepared.execute(pair)
    monkeypatch.delenv("NNBURST_SYNCEXEC_HAL")
    prepared.execute(pair)
    monkeypatch.setenv("NNBURST_SYNCEXEC_HAL", "yes")
    prepared.execute(pair)


@pytest.mark.parametrize(
    ("value", "call"), [(None, ExecuteSynchronously), ("1", ExecuteSynchronously), ("0", Execute)]
)
def test_variable_chooses_how_execute_is_done(
    scripted: PreparedModel,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
    call: type,
) -> None:
    if value is None:
        monkeypatch.delenv("NNBURST_SYNCEXEC_HAL", raising=False)
    else:
        monkeypatch.setenv("NNBURST_SYNCEXEC_HAL", value)
    executes_synchronously.cache_clear()
    handled: list[type] = []

    def note(kind: type[Message]) -> None:
        handler = HANDLERS[kind]

        def noted(*arguments: Any) -> Any:
            handled.append(kind)
            return handler(*arguments)

        monkeypatch.setitem(HANDLERS, kind, noted)

    note(Execute)
    note(ExecuteSynchronously)
    result = scripted.execute(PAIR, measure=True)
    assert result.timing.measured
    assert handled == [call]


def test_execute_the_asynchronous_way_behaves_the_same(
    driver: ScriptedDriver,
    prepared: PreparedModel,
    scripted: PreparedModel,
    pair: Pair,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NNBURST_SYNCEXEC_HAL", "0")
    executes_synchronously.cache_clear()
    np.testing.assert_array_equal(prepared.execute(pair).outputs[0], pair[0] + pair[1])
    with pytest.raises(InvalidArgument, match="inputs"):
        prepared.execute(pair[:1])
    with pytest.raises(MissedDeadline):
        scripted.execute(PAIR, timeout=0.01)
    driver.device.close()
    with pytest.raises(Closed):
        scripted.execute(PAIR)


def test_closed_model_is_released_with_its_last_execution(
    driver: ScriptedDriver, scripted: PreparedModel, gate: Gate
) -> None:
    pending = [scripted.execute_async(PAIR) for _ in range(2)]
    gate.wait()
    pending[0].cancel()
    scripted.close()
    with pytest.raises(Closed):
        scripted.execute_async(PAIR)
    assert not driver.script.closed.acquire(blocking=False)
    gate.opened.set()
    assert pending[1].result(HANG).outputs[0].shape == (2, 3)
    assert driver.script.closed.acquire(timeout=HANG)


def test_output_of_unknown_size_grows_though_the_model_is_closed(
    device: Device, make_model: Callable[..., Model]
) -> None:
    size = 100_000
    prepared = device.prepare(make_model((size,), output=(0,)))
    a, b = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
    pending = prepared.execute_async([a, b])
    prepared.close()
    np.testing.assert_array_equal(pending.result(HANG).outputs[0], a + b)


class Interruption(BaseException):
    """An exception that no code expects, like Ctrl-C."""


@pytest.mark.parametrize("error", [OSError("no descriptors"), Interruption()])
def test_execution_that_cannot_be_described_fails_and_holds_no_model(
    driver: ScriptedDriver,
    scripted: PreparedModel,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    def refuse(_memory: Memory) -> int:
        raise error

    heard = Heard()
    monkeypatch.setattr(Memory, "duplicate", refuse)
    with pytest.raises(type(error)):
        scripted.execute_async(PAIR, callback=heard)
    heard.wait()
    with pytest.raises(GeneralFailure):
        heard.executions[0].result(HANG)
    scripted.close()
    assert driver.script.closed.acquire(timeout=HANG), "the driver still has the model"


@pytest.mark.parametrize("error", [OSError("no descriptors"), Interruption()])
def test_execution_whose_second_attempt_fails_for_any_reason_ends(
    device: Device,
    make_model: Callable[..., Model],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    size, duplicate, attempts = 100_000, Memory.duplicate, itertools.count(1)

    def refuse_the_second(memory: Memory) -> int:
        if next(attempts) == 2:
            raise error
        return duplicate(memory)

    with device.prepare(make_model((size,), output=(0,))) as prepared:
        numbers = np.arange(size, dtype=np.float32)
        monkeypatch.setattr(Memory, "duplicate", refuse_the_second)
        pending = prepared.execute_async([numbers, numbers])
        with pytest.raises(GeneralFailure):
            pending.result(HANG)
    assert next(attempts) == 3


def test_interrupted_launch_fails_and_its_memory_is_not_used_again(
    scripted: PreparedModel, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, heard = scripted._prepared.session.connection, Heard()
    send = connection._send

    def send_and_be_interrupted(*arguments: Any) -> None:
        send(*arguments)
        raise Interruption

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_send", send_and_be_interrupted)
        with pytest.raises(Interruption):
            scripted.execute_async(PAIR, callback=heard)
    heard.wait()
    with pytest.raises(GeneralFailure, match="interrupt"):
        heard.executions[0].result(HANG)
    gate.wait()  # the driver has got it, and is using the memory
    assert not np.asarray(scripted._prepared.staging.take(1)).any()
    gate.opened.set()
    scripted.execute_async(PAIR).result(HANG)
    assert heard.no_more()


@pytest.mark.parametrize("error", [None, ValueError, SystemExit])
def test_work_gets_a_thread_of_its_own_if_the_event_loop_starts_none(
    error: type[BaseException] | None,
) -> None:
    here = contextvars.ContextVar[str]("here")
    here.set("the task's")

    def work() -> ExecutionResult:
        assert here.get() == "the task's"
        if error is not None:
            raise error("of the work")
        return ExecutionResult([], (), NOT_TIMED)

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            asyncio.get_running_loop().set_default_executor(executor)
            executor.shutdown(wait=False)
            await call_on_a_thread(work)

    with contextlib.nullcontext() if error is None else pytest.raises(error, match="of the work"):
        asyncio.run(main())


def test_work_that_was_refused_for_want_of_a_thread_does_not_run_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)  # the thread of its own
    may_end, works = threading.Event(), list[int]()

    def work() -> ExecutionResult:
        works.append(1)
        return ExecutionResult([], (), NOT_TIMED)

    async def main() -> None:
        with ThreadPoolExecutor(2) as executor:
            asyncio.get_running_loop().set_default_executor(executor)
            busy = executor.submit(may_end.wait, 60)
            try:
                with threads_that_start(0), pytest.raises(ResourceExhausted, match="thread"):
                    await call_on_a_thread(work)
            finally:
                may_end.set()
            assert busy.result(60)
        assert not works

    asyncio.run(main())
