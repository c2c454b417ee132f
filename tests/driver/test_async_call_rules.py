"""device:P1 to P9 and E1 to E9: what is launched, what is refused, and that callbacks get the same."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from client.conftest import add_model
from client.scripted_driver import HANG, Gate, ScriptedDriver
from nnburst import GeneralFailure, InvalidArgument, MissedDeadline, NnburstError, ResourceExhausted
from nnburst.control.messages import (
    Execute,
    Executed,
    ExecuteSynchronously,
    Message,
    Nothing,
    NotifyExecuted,
    NotifyPrepared,
    PrepareModel,
)
from nnburst.driver.model import pools as pools_module
from nnburst.driver.scheduler import Lanes
from nnburst.executor.base import Outcome
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.limits import MAX_LOOP_TIMEOUT_NS
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.types import OutputShape, Request, RequestArgument
from nnburst.testing.fuzzing.model_asking import AsyncOutcome, call_async
from waiting import wait_for

PERSISTENT = ErrorStatus.MISSED_DEADLINE_PERSISTENT
TRANSIENT = ErrorStatus.MISSED_DEADLINE_TRANSIENT
INVALID = ErrorStatus.INVALID_ARGUMENT
MODEL = add_model()
BROKEN = replace(MODEL, main=replace(MODEL.main, output_indexes=(99,)))


@pytest.fixture
def driver() -> Iterator[ScriptedDriver]:
    with ScriptedDriver() as started:
        yield started


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def prepare(driver: ScriptedDriver, fds: Sequence[int] = (), **fields: Any) -> AsyncOutcome:
    """The outcome of a preparation with these fields."""
    message = replace(PrepareModel(MODEL, 0), **fields)
    return call_async(driver.device, lambda n: replace(message, callback=n), fds, HANG)


def check_refused(launched: AsyncOutcome, status: ErrorStatus, text: str) -> None:
    """Both the answer and the callback have the error."""
    assert launched.answer is not None
    assert launched.agree
    for error in (launched.answer, launched.outcome):
        assert isinstance(error, NnburstError)
        assert error.status == status
        assert text in str(error)


def test_p1_without_a_callback_nothing_is_notified(driver: ScriptedDriver) -> None:
    with pytest.raises(InvalidArgument, match="P1: callback"):
        driver.device._session.connection.call(PrepareModel(MODEL, 0), Nothing, timeout=HANG)


def test_launched_preparation_is_answered_with_nothing_and_notified_of(
    driver: ScriptedDriver,
) -> None:
    launched = prepare(driver)
    assert launched.answer is None
    assert isinstance(launched.outcome, NotifyPrepared)
    assert launched.outcome.handle is not None


def test_launched_preparation_is_answered_before_it_is_done(driver: ScriptedDriver) -> None:
    driver.script.on_prepare = gate = Gate()
    heard, answered = threading.Semaphore(0), threading.Event()
    callback = driver.session.callbacks.open(lambda _outcome: heard.release())
    driver.device._session.connection.call(
        PrepareModel(MODEL, callback.number), Nothing, timeout=HANG
    )
    answered.set()
    gate.wait()
    assert not heard.acquire(blocking=False)
    gate.opened.set()
    assert heard.acquire(timeout=HANG)


#: Each breaks one rule; in the order in which they are looked at.
PREPARE_RULES: list[tuple[str, dict[str, Any], ErrorStatus, str]] = [
    ("P2", {"model": BROKEN}, INVALID, "(device:P2)"),
    ("P3", {"preference": 3}, INVALID, "(device:P3)"),
    ("P4", {"priority": -1}, INVALID, "(device:P4)"),
    ("P5", {"deadline_ns": -2}, INVALID, "(device:P5)"),
    ("P6", {"deadline_ns": 1}, PERSISTENT, "P6: the deadline has passed"),
]


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [case[1:] for case in PREPARE_RULES],
    ids=[case[0] for case in PREPARE_RULES],
)
def test_preparation_that_breaks_a_rule_is_refused(
    driver: ScriptedDriver, fields: dict[str, Any], status: ErrorStatus, text: str
) -> None:
    check_refused(prepare(driver, **fields), status, text)
    assert prepare(driver).answer is None


def test_preparation_that_breaks_all_rules_is_refused_by_the_first(
    driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.script.supports = False
    refuse_mappings(monkeypatch)
    fields: dict[str, Any] = {}
    for _, broken, _, _ in reversed(PREPARE_RULES):
        fields |= broken
    memory = SharedMemory.create(64)
    for rule, broken, status, text in PREPARE_RULES:
        pooled = replace(fields.pop("model", MODEL), pools=(MemoryPool(64),))
        check_refused(prepare(driver, [memory.fd], model=pooled, **fields), status, text)
        for name in broken:
            fields.pop(name, None)
        if rule == "P5":
            fields["deadline_ns"] = 1
    pooled = replace(MODEL, pools=(MemoryPool(64),))
    check_refused(
        prepare(driver, [memory.fd], model=pooled), ErrorStatus.GENERAL_FAILURE, "(device:P7)"
    )
    check_refused(prepare(driver), INVALID, "P8: operation 0")
    memory.close()


def test_token_of_another_length_counts_only_with_cache_files(driver: ScriptedDriver) -> None:
    assert prepare(driver, token=bytes(31)).answer is None
    fd = os.memfd_create("cache")
    try:
        with_file = prepare(driver, [fd], token=bytes(31), model_cache=1)
    finally:
        os.close(fd)
    check_refused(with_file, INVALID, "(device:P5)")


def refuse_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no address space")

    monkeypatch.setattr(pools_module.SharedMemory, "map_memory", fail)


def test_p9_preparation_that_cannot_be_launched_is_refused(
    driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_lanes(monkeypatch, "nnburst preparation")
    check_refused(prepare(driver), ErrorStatus.GENERAL_FAILURE, "P9: cannot start a thread")


def refuse_lanes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    submit = Lanes.submit

    def refuse(lanes: Lanes, *arguments: Any) -> None:
        if lanes._name == name:
            raise GeneralFailure("P9: cannot start a thread")
        submit(lanes, *arguments)

    monkeypatch.setattr(Lanes, "submit", refuse)


def test_deadline_that_passes_before_the_preparation_starts_is_missed(
    driver: ScriptedDriver,
) -> None:
    runs = []
    driver.script.on_prepare = lambda: runs.append(boottime_ns())
    waiting: list[Callable[[], None]] = []
    scheduler = driver.worker._session.scheduler  # type: ignore[union-attr]
    deadline = boottime_ns() + 500_000_000  # the call comes before it, also on a busy machine
    scheduler.submit = lambda job, *_: waiting.append(job)  # type: ignore[method-assign]
    heard: list[Any] = []
    done = threading.Event()
    callback = driver.session.callbacks.open(lambda o: (heard.append(o), done.set()))  # type: ignore[arg-type, return-value]
    message = PrepareModel(MODEL, callback.number, deadline_ns=deadline)
    # The call itself goes past the scheduler, as it is patched: its jobs are run here.
    driver.device._session.connection.call_async(message, Nothing, (), lambda _: None, timeout=HANG)
    run_next(waiting)
    outlast(deadline)
    run_next(waiting)
    assert done.wait(HANG)
    assert isinstance(heard[0], MissedDeadline)
    assert heard[0].status == TRANSIENT
    assert runs == []


def outlast(deadline_ns: int) -> None:
    """Wait until a deadline has passed."""
    while boottime_ns() <= deadline_ns:
        threading.Event().wait(0.001)


def run_next(waiting: list[Callable[[], None]]) -> None:
    wait_for(lambda: waiting)
    waiting.pop(0)()


def test_deadline_that_passes_during_the_preparation_is_missed(driver: ScriptedDriver) -> None:
    deadline = boottime_ns() + 100_000_000
    driver.script.on_prepare = lambda: outlast(deadline)
    launched = prepare(driver, deadline_ns=deadline)
    assert launched.answer is None
    assert launched.status == TRANSIENT
    assert driver.script.closed.acquire(timeout=HANG)  # what it made is not left behind


@pytest.mark.parametrize(
    "error",
    [GeneralFailure("no"), RuntimeError("no"), MemoryError(), SystemExit(1), KeyboardInterrupt()],
)
def test_executor_that_fails_is_notified_of(driver: ScriptedDriver, error: BaseException) -> None:
    def fail() -> None:
        raise error

    driver.script.on_prepare = fail
    launched = prepare(driver)
    assert launched.answer is None
    expected = (
        ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        if isinstance(error, MemoryError)
        else ErrorStatus.GENERAL_FAILURE
    )
    assert launched.status == expected


# Executions


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    with SharedMemory.create(4096) as created:
        yield created


def request(size: int = 4096, length: int = 24) -> Request:
    at = [RequestArgument(location=DataLocation(0, offset, length)) for offset in (0, 64, 128)]
    return Request((at[0], at[1]), (at[2],), (MemoryPool(size),))


class Model:
    """A prepared model, and executions launched on it."""

    def __init__(self, driver: ScriptedDriver, memory: SharedMemory) -> None:
        self.driver, self.memory = driver, memory
        self.prepared = driver.device.prepare(MODEL)

    def execute(self, **fields: Any) -> AsyncOutcome:
        message = replace(Execute(self.prepared._prepared.handle, request(), callback=0), **fields)

        def call(number: int) -> Message:
            return replace(message, callback=number)

        return call_async(self.driver.device, call, [self.memory.fd], HANG)


@pytest.fixture
def model(driver: ScriptedDriver, memory: SharedMemory) -> Model:
    return Model(driver, memory)


def test_e1_without_a_callback_nothing_is_notified(model: Model) -> None:
    message = Execute(model.prepared._prepared.handle, request(), callback=0)
    with pytest.raises(InvalidArgument, match="E1: callback"):
        model.driver.device._session.connection.call(
            message, Nothing, [model.memory.fd], timeout=HANG
        )


def test_launched_execution_is_answered_with_nothing_and_notified_of(model: Model) -> None:
    shapes = (OutputShape((2, 3), True),)
    model.driver.script.on_run = lambda _execution: Outcome(output_shapes=shapes)
    for measure in (False, True):
        launched = model.execute(measure=measure)
        assert launched.answer is None
        assert isinstance(launched.outcome, NotifyExecuted)
        assert launched.outcome.output_shapes == shapes
        timing = launched.outcome.timing
        assert timing.measured == measure
        assert timing.time_on_device <= timing.time_in_driver
    assert model.driver.script.closed_executions == 2


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"request": request(length=20)}, "E2"),
        ({"request": request(size=8192)}, "E2"),
        ({"deadline_ns": -2}, "E3"),
        ({"loop_timeout_ns": -2}, "E3"),
    ],
)
def test_execution_that_breaks_a_rule_is_refused(
    model: Model, fields: dict[str, Any], rule: str
) -> None:
    check_refused(model.execute(**fields), INVALID, f"(device:{rule})")


def test_e2_unknown_model_is_refused(model: Model) -> None:
    check_refused(model.execute(handle=12345), INVALID, "handle 12345 is not open")


def test_e4_passed_deadline_is_notified_of_and_not_executed(model: Model) -> None:
    runs: list[object] = []
    model.driver.script.on_run = lambda execution: runs.append(execution) or Outcome()  # type: ignore[func-returns-value]
    launched = model.execute(deadline_ns=1)
    assert (launched.answer, launched.status) == (None, PERSISTENT)
    assert "E4" in str(launched.outcome)
    assert runs == []


@pytest.mark.parametrize("synchronous", [False, True])
def test_e4_deadline_that_passes_before_the_execution_begins_is_missed_for_good(
    model: Model, *, synchronous: bool
) -> None:
    runs: list[object] = []
    model.driver.script.on_run = lambda execution: runs.append(execution) or Outcome()  # type: ignore[func-returns-value]
    waiting: list[Callable[[], None]] = []
    scheduler = model.driver.worker._session.scheduler  # type: ignore[union-attr]
    deadline = boottime_ns() + 500_000_000  # the call comes before it, also on a busy machine
    scheduler.submit = lambda job, *_: waiting.append(job)  # type: ignore[method-assign]
    heard: list[Any] = []
    done = threading.Event()

    def hear(outcome: object) -> None:
        heard.append(outcome)
        done.set()

    callback = model.driver.session.callbacks.open(hear)
    handle = model.prepared._prepared.handle
    call = model.driver.device._session.connection.call_async
    if synchronous:
        message = ExecuteSynchronously(handle, request(), deadline_ns=deadline)
        call(message, Executed, [model.memory.fd], hear, timeout=HANG)
    else:
        started = Execute(handle, request(), callback=callback.number, deadline_ns=deadline)
        call(started, Nothing, [model.memory.fd], lambda _: None, timeout=HANG)
        run_next(waiting)  # the call itself, which launches the execution
    wait_for(lambda: waiting)
    outlast(deadline)
    run_next(waiting)
    assert done.wait(HANG)
    assert isinstance(heard[0], MissedDeadline)
    assert heard[0].status == PERSISTENT
    assert runs == []


def test_e5_pool_that_cannot_be_mapped_is_a_failure(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_mappings(monkeypatch)
    check_refused(model.execute(), ErrorStatus.GENERAL_FAILURE, "E5: a pool cannot be mapped")


def test_e7_small_output_is_notified_of_with_shapes(model: Model) -> None:
    shapes = (OutputShape((2, 3), False),)
    insufficient = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    model.driver.script.on_run = lambda _execution: Outcome(insufficient, shapes)
    launched = model.execute(measure=True)
    assert (launched.answer, launched.status) == (None, insufficient)
    assert isinstance(launched.outcome, NnburstError)
    assert launched.outcome.output_shapes == shapes


@pytest.mark.parametrize(
    "status", [ErrorStatus.GENERAL_FAILURE, TRANSIENT, ErrorStatus.INVALID_ARGUMENT]
)
def test_e8_failure_is_notified_of_without_shapes(model: Model, status: ErrorStatus) -> None:
    outcome = Outcome(status, (OutputShape((2, 3), True),), "no luck")
    model.driver.script.on_run = lambda _execution: outcome
    launched = model.execute()
    assert (launched.answer, launched.status) == (None, status)
    assert isinstance(launched.outcome, NnburstError)
    assert (launched.outcome.output_shapes, str(launched.outcome)) == ((), "no luck")


def test_executor_that_raises_is_a_failure(model: Model) -> None:
    model.driver.script.on_run = lambda _execution: 1 // 0  # type: ignore[assignment, return-value]
    assert model.execute().status == ErrorStatus.GENERAL_FAILURE
    assert model.driver.script.closed_executions == 1


def test_execution_that_cannot_be_launched_is_refused(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_lanes(monkeypatch, "nnburst execution")
    check_refused(model.execute(), ErrorStatus.GENERAL_FAILURE, "P9: cannot start a thread")
    assert model.driver.script.closed_executions == 1


def test_loop_timeout_and_deadline_reach_the_executor(model: Model) -> None:
    seen = []

    def note(execution: Any) -> Outcome:
        seen.append((execution.deadline_ns, execution.loop_timeout_ns))
        return Outcome()

    model.driver.script.on_run = note
    later = boottime_ns() + 10**12
    model.execute(deadline_ns=later, loop_timeout_ns=5)
    model.execute(loop_timeout_ns=10**18)
    assert seen == [(later, 5), (None, MAX_LOOP_TIMEOUT_NS)]


def test_model_released_during_an_execution_is_closed_after_it(model: Model) -> None:
    gate = Gate()
    model.driver.script.on_run = lambda _execution: gate() or Outcome()  # type: ignore[func-returns-value]
    heard = threading.Event()
    callback = model.driver.session.callbacks.open(lambda _outcome: heard.set())
    message = Execute(model.prepared._prepared.handle, request(), callback=callback.number)
    model.driver.device._session.connection.call(message, Nothing, [model.memory.fd], timeout=HANG)
    gate.wait()
    model.prepared.close()
    assert not model.driver.script.closed.acquire(blocking=False)
    gate.opened.set()
    assert heard.wait(HANG)
    assert model.driver.script.closed.acquire(timeout=HANG)


def test_more_notifications_than_may_be_to_come_are_refused_by_the_answer(
    driver: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.script.on_prepare = gate = Gate()
    outbox = driver.worker._session.outbox  # type: ignore[union-attr]
    monkeypatch.setattr(outbox, "_limit", 1)
    first = driver.device.prepare_async(MODEL)
    gate.wait()
    with pytest.raises(ResourceExhausted, match="1 notifications"):
        driver.device.prepare(MODEL)
    gate.opened.set()
    first.result(HANG).close()
    driver.device.prepare(MODEL)
