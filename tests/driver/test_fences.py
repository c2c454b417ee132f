"""Fences and fenced executions as a hostile client makes them."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnburst.control.fences import FenceStatus, create_fence
from nnburst.control.messages import ExecuteFenced, Fenced, GetExecutionInfo, Ping, Release
from nnburst.driver.client_session import FenceWaiter
from nnburst.driver.confinement import HELD_FDS
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import ResourceExhausted
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.types import Request, RequestArgument
from waiting import wait_for

INVALID, NONE = ErrorStatus.INVALID_ARGUMENT, ErrorStatus.NONE
HANG = 20.0


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Outcome:
    """The reports of a waiter, and their times."""

    def __init__(self) -> None:
        self.said: list[FenceStatus] = []
        self._told = threading.Event()

    def __call__(self, status: FenceStatus) -> None:
        self.said.append(status)
        self._told.set()

    def wait(self) -> FenceStatus:
        assert self._told.wait(HANG)
        return self.said[0]


def test_wait_for_which_no_thread_can_be_started_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiter, outcome, later = FenceWaiter(limit=1), Outcome(), Outcome()
    fence, signaller = create_fence()
    before = HELD_FDS.taken

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(3):
            with pytest.raises(
                ResourceExhausted, match="cannot start the thread that waits for fences"
            ):
                waiter.wait([socket.socket(fileno=os.dup(fence.fileno()))], None, outcome)
    assert HELD_FDS.taken == before
    waiter.wait([fence], None, later)
    signaller.signal()
    assert later.wait() == FenceStatus.SIGNALLED
    assert not outcome.said


@given(
    plan=st.lists(
        st.tuples(st.sampled_from(["signal", "fail", "close"]), st.integers(0, 3)), max_size=12
    )
)
@settings(max_examples=50)
def test_waiter_reports_the_outcome_of_each_set_once(plan: list[tuple[str, int]]) -> None:
    waiter = FenceWaiter()
    sets: list[list[str]] = [[] for _ in range(4)]
    fences: list[list[socket.socket]] = [[] for _ in range(4)]
    todo = []
    for what, which in plan:
        fence, signaller = create_fence()
        fences[which].append(fence)
        sets[which].append(what)
        todo.append(getattr(signaller, what))
    outcomes = [Outcome() for _ in range(4)]
    for mine, outcome in zip(fences, outcomes, strict=True):
        waiter.wait(mine, None, outcome)
    for step in todo:
        step()
    for mine, outcome in zip(sets, outcomes, strict=True):
        good = all(what == "signal" for what in mine)
        assert outcome.wait() == (FenceStatus.SIGNALLED if good else FenceStatus.ERROR)
    assert [len(outcome.said) for outcome in outcomes] == [1] * 4
    assert all(fence.fileno() == -1 for mine in fences for fence in mine)


def test_deadline_ends_a_wait_and_no_other() -> None:
    waiter, late, patient = FenceWaiter(), Outcome(), Outcome()
    (one, _kept), (two, signaller) = create_fence(), create_fence()
    waiter.wait([two], now() + int(HANG * 1e9), patient)
    waiter.wait([one], now() + 10_000_000, late)
    assert late.wait() == FenceStatus.ACTIVE
    assert patient.said == []
    signaller.signal()
    assert patient.wait() == FenceStatus.SIGNALLED


def test_callback_that_raises_keeps_no_other_from_being_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiter, outcome = FenceWaiter(), Outcome()
    waiter.wait([], None, lambda _: 1 // 0)  # type: ignore[arg-type, return-value]
    waiter.wait([], None, outcome)
    assert outcome.wait() == FenceStatus.SIGNALLED
    assert "ZeroDivisionError" in caplog.text


def test_more_sets_than_allowed_are_refused_and_their_fences_closed() -> None:
    waiter, outcome = FenceWaiter(limit=1), Outcome()
    (one, signaller), (two, _) = create_fence(), create_fence()
    waiter.wait([one], None, outcome)
    with pytest.raises(ResourceExhausted, match="waiting for their fences"):
        waiter.wait([two], None, outcome)
    assert two.fileno() == -1
    signaller.signal()
    assert outcome.wait() == FenceStatus.SIGNALLED
    three, signaller = create_fence()
    again = Outcome()
    wait_for(lambda: not waiter._waits)
    waiter.wait([three], None, again)
    signaller.signal()
    assert again.wait() == FenceStatus.SIGNALLED


def request() -> Request:
    at = [RequestArgument(location=DataLocation(0, offset, 24)) for offset in (0, 64, 128)]
    return Request((at[0], at[1]), (at[2],), (MemoryPool(4096),))


@pytest.fixture
def handle(known: Any, model: Model) -> Iterator[int]:
    prepared = int(known.prepare(model))
    yield prepared
    known.call(Release(prepared))


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    with SharedMemory.create(4096) as shared:
        yield shared


def listening() -> int:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.bind("")
    one.listen()
    return one.detach()


def out_of_band() -> int:
    """Readable, as poll has it, with nothing to be read."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.send(b"x", socket.MSG_OOB)
        return ours.detach()


def peeking_elsewhere() -> int:
    """Its bytes cannot be peeked at from their beginning."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setsockopt(socket.SOL_SOCKET, 42, 1000)  # SO_PEEK_OFF
        theirs.send(b"\x01")
        return ours.detach()


@pytest.mark.rule("VR8", "rejects")
@pytest.mark.parametrize(
    "make",
    [
        lambda: os.open("/dev/null", os.O_RDWR),
        lambda: os.open("/dev/zero", os.O_RDWR),
        lambda: os.open("/", os.O_RDONLY),
        lambda: os.pipe()[0],
        lambda: os.eventfd(1),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach(),
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach(),
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).detach(),
        listening,
    ],
)
def test_descriptor_that_is_not_a_fence_is_refused_without_a_trace(
    known: Any, handle: int, memory: SharedMemory, make: Callable[[], int]
) -> None:
    fd = make()
    message = ExecuteFenced(handle, request(), wait_for=1)
    assert known.call(message, [memory.fd, fd]).status == INVALID
    before = known.count_fds()
    for _ in range(100):
        reply = known.call(message, [memory.fd, fd])
        assert (reply.status, reply.message[:9]) in ((INVALID, "device:F2"), (INVALID, "device:F4"))
    known.wait_for_fds(before)
    os.close(fd)


@pytest.mark.rule("VR8", "rejects")
def test_fence_that_is_missing_is_refused(known: Any, handle: int, memory: SharedMemory) -> None:
    reply = known.call(ExecuteFenced(handle, request(), wait_for=1), [memory.fd])
    assert (reply.status, reply.result) == (INVALID, None)


@pytest.mark.rule("VR8", "accepts")
def test_fence_that_is_one_is_waited_for(known: Any, handle: int, memory: SharedMemory) -> None:
    fence, signaller = create_fence()
    with fence:
        reply = known.call(
            ExecuteFenced(handle, request(), wait_for=1), [memory.fd, fence.fileno()]
        )
    assert isinstance(reply.result, Fenced), reply.message
    info = GetExecutionInfo(reply.result.handle)
    assert known.call(info).status == ErrorStatus.GENERAL_FAILURE
    signaller.signal()
    wait_for(lambda: known.call(info).status == NONE)
    known.call(Release(reply.result.handle))


@pytest.mark.parametrize("make", [out_of_band, peeking_elsewhere])
def test_fence_that_is_readable_without_a_status_is_an_error_and_costs_no_time(
    known: Any, handle: int, memory: SharedMemory, make: Callable[[], int]
) -> None:
    fd = make()
    reply = known.call(ExecuteFenced(handle, request(), wait_for=1), [memory.fd, fd])
    os.close(fd)
    if reply.status == INVALID:
        return  # seen at once
    info = GetExecutionInfo(reply.result.handle)
    wait_for(lambda: known.call(info).status == NONE)
    assert known.call(info).result.status == ErrorStatus.GENERAL_FAILURE
    known.call(Release(reply.result.handle))


def test_peer_that_fills_its_fence_changes_nothing(
    known: Any, handle: int, memory: SharedMemory
) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    reply = known.call(ExecuteFenced(handle, request(), wait_for=1), [memory.fd, ours.fileno()])
    with ours, theirs, pytest.raises(BlockingIOError):
        while True:
            theirs.send(b"\x01" * 65536)
    info = GetExecutionInfo(reply.result.handle)
    wait_for(lambda: known.call(info).status == NONE)
    assert known.call(info).result.status == NONE
    known.call(Release(reply.result.handle))


def test_passed_deadline_is_missed_for_good(known: Any, handle: int, memory: SharedMemory) -> None:
    fence, _signaller = create_fence()
    before = known.count_fds()
    with fence:
        message = ExecuteFenced(handle, request(), deadline_ns=1, wait_for=1)
        reply = known.call(message, [memory.fd, fence.fileno()])
    assert reply.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert reply.message.startswith("device:F3")
    known.wait_for_fds(before)


def test_many_fences_of_many_executions_leave_nothing_behind(
    known: Any, handle: int, memory: SharedMemory
) -> None:
    def rounds(count: int) -> None:
        for number in range(count):
            pairs = [create_fence() for _ in range(8)]
            fds = [memory.fd, *(fence.fileno() for fence, _ in pairs)]
            reply = known.call(ExecuteFenced(handle, request(), wait_for=8), fds)
            for index, (fence, signaller) in enumerate(pairs):
                fence.close()
                (signaller.close if index == number else signaller.signal)()
            info = GetExecutionInfo(reply.result.handle)
            wait_for(lambda info=info: known.call(info).status == NONE)  # type: ignore[misc]
            known.call(Release(reply.result.handle))

    rounds(2)
    before = known.count_fds()
    rounds(16)
    known.wait_for_fds(before)
    assert known.call(Ping()).status == NONE
