"""Sync fences: signalled once, in the error state if its signaller has gone."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import socket
import threading
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descriptors import descriptors
from nnburst import Closed, InvalidArgument, MissedDeadline, ResourceExhausted
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.control.fences import FenceStatus

ACTIVE, SIGNALLED, ERROR = FenceStatus.ACTIVE, FenceStatus.SIGNALLED, FenceStatus.ERROR


@given(
    copies=st.integers(0, 3),
    steps=st.lists(st.sampled_from(["signal", "fail", "close"]), max_size=4),
)
def test_first_word_counts_and_every_copy_sees_it(copies: int, steps: list[str]) -> None:
    fence, signaller = SyncFence.create()
    fences = [fence, *(SyncFence(fence.duplicate()) for _ in range(copies))]
    assert {f.status for f in fences} == {ACTIVE}
    for step in steps:
        getattr(signaller, step)()
    expected = {"signal": SIGNALLED, "fail": ERROR, "close": ERROR}[steps[0]] if steps else ACTIVE
    for _ in range(2):  # looking takes nothing
        assert {f.status for f in fences} == {expected}
    signaller.close()
    for each in fences:
        each.close()


def test_signaller_that_is_forgotten_leaves_an_error() -> None:
    fence, signaller = SyncFence.create()
    del signaller
    gc.collect()
    assert fence.wait(20) == ERROR


def test_fence_that_is_forgotten_costs_no_descriptor() -> None:
    before = descriptors()
    for _ in range(50):
        SyncFence.create()[1].signal()
    gc.collect()
    assert descriptors() <= before


def test_wait_ends_with_the_signal() -> None:
    fence, signaller = SyncFence.create()
    found: list[FenceStatus] = []
    thread = threading.Thread(target=lambda: found.append(fence.wait(20)))
    thread.start()
    signaller.signal()
    thread.join(20)
    assert found == [SIGNALLED]
    assert select.select([fence], [], [], 0)[0] == [fence]


def test_wait_ends_with_its_time() -> None:
    fence, signaller = SyncFence.create()
    with pytest.raises(MissedDeadline, match=r"did not signal in 0\.01 s"):
        fence.wait(0.01)
    for timeout in (0, -1, float("inf"), "1"):
        with pytest.raises(InvalidArgument, match="timeout"):
            fence.wait(timeout)  # type: ignore[arg-type]
    signaller.signal()
    assert fence.wait(0.01) == SIGNALLED


def test_orphan_is_in_the_error_state_unless_it_was_signalled_before() -> None:
    for signal, expected in ((False, ERROR), (True, SIGNALLED)):
        fence, signaller = SyncFence.create()
        if signal:
            signaller.signal()
        fence._fail()
        assert fence.status == expected
        fence.close()
        fence._fail()


def test_closed_fence_refuses_calls() -> None:
    fence, _ = SyncFence.create()
    with fence:
        assert "ACTIVE" in repr(fence)
    fence.close()
    assert "closed" in repr(fence)
    for use in (lambda: fence.status, fence.wait, fence.fileno, fence.duplicate):
        with pytest.raises(Closed):
            use()


@pytest.mark.parametrize(
    "make",
    [
        lambda: os.open("/dev/null", os.O_RDONLY),
        lambda: os.eventfd(0),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach(),
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).detach(),
    ],
)
def test_descriptor_that_is_not_a_fence_is_refused_and_closed(make: object) -> None:
    fd = make()  # type: ignore[operator]
    with pytest.raises(InvalidArgument, match="a sync fence must be"):
        SyncFence(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_byte_out_of_band_is_an_error_and_keeps_no_waiter_busy() -> None:
    fence, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with end, SyncFence(fence.detach()) as found:
        try:
            end.send(b"\x01", socket.MSG_OOB)
        except OSError:
            pytest.skip("this kernel has no bytes out of band")
        assert found.wait(20) == found.status == ERROR


def test_socket_that_was_never_connected_is_in_the_error_state() -> None:
    assert SyncFence(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).detach()).status == ERROR


def test_fence_that_cannot_be_duplicated_is_resource_exhausted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    fence, signaller = SyncFence.create()
    with fence, contextlib.closing(signaller):
        monkeypatch.setattr(os, "dup", refuse)
        with pytest.raises(ResourceExhausted, match="Too many open files"):
            fence.duplicate()


def test_signaller_that_the_collector_finds_in_a_cycle_fails_its_fence_in_silence() -> None:
    for _ in range(20):
        fence, signaller = SyncFence.create()
        cycle: list[object] = [signaller]
        cycle.append(cycle)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            del signaller, cycle
            gc.collect()
        with fence:
            assert fence.wait(20) == FenceStatus.ERROR
        assert [str(warning.message) for warning in warned] == []


def test_negative_descriptor_is_refused_by_its_rule() -> None:
    with pytest.raises(InvalidArgument, match=r"S10: .*fd is -1"):
        SyncFence(-1)
