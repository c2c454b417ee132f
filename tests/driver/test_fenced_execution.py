"""A fenced execution in the driver reports its outcome, whatever goes wrong around it."""

from __future__ import annotations

import contextlib
import select
from typing import Any

import pytest

from nnburst.control.channel import Fds
from nnburst.control.fences import FenceStatus, adopt_fence, fence_status
from nnburst.driver.calls import fenced_execution
from nnburst.driver.calls.fenced_execution import FencedExecution, FencedRun, start_fenced
from nnburst.driver.client_session import ClientSession
from nnburst.driver.counters import ModelCounters
from nnburst.executor.base import Outcome
from nnburst.hal.enums import ErrorStatus, Priority


class Ready:
    """A bound execution that succeeds at once."""

    native = None

    def run(self, *_: object) -> Outcome:
        return Outcome()

    def close(self) -> None:
        pass


def run_of(cleanup: contextlib.ExitStack) -> FencedRun:
    return FencedRun(Ready(), ModelCounters(), Priority.MEDIUM, False, None, None, cleanup)


def test_memory_that_cannot_be_let_go_of_is_logged_and_the_fence_signals(
    session: ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("an executor's close")

    cleanup = contextlib.ExitStack()
    cleanup.callback(fail)
    fenced = FencedExecution(session, run_of(cleanup), 0)
    with adopt_fence(fenced.start([])) as fence:
        assert select.select([fence], [], [], 20.0)[0]
        assert fence_status(fence) == FenceStatus.SIGNALLED
    assert fenced.info().status == ErrorStatus.NONE
    assert "an executor's close" in caplog.text


def test_execution_that_gets_no_fence_lets_go_of_what_it_holds(
    session: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> Any:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(fenced_execution, "create_fence", none_left)
    released: list[bool] = []
    cleanup = contextlib.ExitStack()
    cleanup.callback(released.append, True)
    with Fds() as fds, pytest.raises(OSError, match="Too many"):
        start_fenced(session, run_of(cleanup), fds, 0, 0)
    assert released == [True]
