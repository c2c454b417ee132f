"""An interruption anywhere in a run leaves the next one possible."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from nnburst import AidlBurst, ExecutionResult, PreparedModel, ReusableExecution

X = np.array([-1, 2], np.float32)


class Interruption(BaseException):
    """What no code expects, like Ctrl-C."""


def interrupt_after(number: int, owner: type) -> Callable[[], bool]:
    """Raise after the `number`-th C call in methods of `owner`, where Python looks for signals.

    What this returns stops it, and says whether that has happened.
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
    with relu.open_aidl_burst() as burst:
        assert runs_survive(AidlBurst, lambda: burst.execute([X])) > 5


def test_interruption_anywhere_leaves_a_reusable_execution_free(relu: PreparedModel) -> None:
    with relu.create_reusable_execution([X]) as execution:
        assert runs_survive(ReusableExecution, execution.run) > 1


def test_interruption_anywhere_leaves_a_fenced_reusable_execution_free(
    relu: PreparedModel,
) -> None:
    def run() -> ExecutionResult:
        with execution.run_fenced() as fenced:
            return fenced.result()

    with relu.create_reusable_execution([X]) as execution:
        assert runs_survive(ReusableExecution, run) > 2
