"""An interruption anywhere in a run leaves the next one possible."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, TypeVar

import numpy as np

from nnburst import BurstBusy, ExecutionResult, PreparedModel
from nnburst.client.hal import create_reusable_execution, open_aidl_burst
from nnburst.hal import AidlBurst, ReusableExecution, SyncFence

T = TypeVar("T")
#: Seconds for what takes a moment, on however busy a machine.
PATIENCE: Final = 60.0
X = np.array([-1, 2], np.float32)


class Interruption(BaseException):
    """An exception that no code expects, like Ctrl-C."""


def interrupt_after(number: int, owner: type) -> Callable[[], bool]:
    """Raise after the `number`-th C call in methods of `owner`, where Python looks for signals.

    Returns a function that stops this and returns whether it has raised.
    """
    codes = {value.__code__ for value in vars(owner).values() if isinstance(value, FunctionType)}
    codes |= {inner for code in codes for inner in code.co_consts if isinstance(inner, CodeType)}
    seen = 0

    def look(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal seen
        if event == "c_return" and frame.f_code in codes:
            seen += 1
            if seen == number:
                raise Interruption

    def stop() -> bool:
        sys.setprofile(None)
        return seen >= number

    sys.setprofile(look)
    return stop


def once_free(run: Callable[[], T]) -> T:
    """The result of `run`; an interrupted run may be under way, and is not waited for by the next one."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return run()
        except BurstBusy:
            assert time.monotonic() < deadline, "the interrupted run never ends"


def runs_survive(owner: type, run: Callable[[], Any]) -> int:
    """Interrupt a run at every place, and run once more; how many places there were."""
    number, interrupted = 0, True
    while interrupted:
        number += 1
        stop = interrupt_after(number, owner)
        try:
            run()
        except Interruption:
            pass
        finally:
            interrupted = stop()
        run()
    return number


def test_interruption_anywhere_leaves_an_aidl_burst_free(relu: PreparedModel) -> None:
    with open_aidl_burst(relu) as burst:
        assert runs_survive(AidlBurst, lambda: burst.execute([X])) > 5


def test_interruption_anywhere_leaves_a_reusable_execution_free(relu: PreparedModel) -> None:
    with create_reusable_execution(relu, [X]) as execution:
        assert runs_survive(ReusableExecution, execution.run) > 1


def test_interruption_anywhere_leaves_a_fenced_reusable_execution_free(
    relu: PreparedModel,
) -> None:
    def run() -> ExecutionResult:
        with once_free(execution.run_fenced) as fenced:
            return fenced.result()

    with create_reusable_execution(relu, [X]) as execution:
        assert runs_survive(ReusableExecution, run) > 2


def test_interrupted_fenced_run_keeps_the_next_one_out_only_until_its_fence_signals(
    relu: PreparedModel,
) -> None:
    number, interrupted, refused = 0, True, 0
    with create_reusable_execution(relu, [X]) as execution:
        while interrupted:
            number += 1
            fence, signaller = SyncFence.create()
            with fence, contextlib.closing(signaller):
                stop = interrupt_after(number, ReusableExecution)
                launched = None
                try:
                    launched = execution.run_fenced(wait_for=[fence])
                except Interruption:
                    pass
                finally:
                    interrupted = stop()
                try:
                    execution.run()
                except BurstBusy:
                    refused += 1
                signaller.signal()
                assert once_free(execution.run).outputs[0].tolist() == [0, 2]
                if launched is not None:
                    launched.close()
    assert refused > 1
