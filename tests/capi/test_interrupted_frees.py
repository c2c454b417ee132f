"""A handle is freed although a signal handler of Python raises meanwhile: C programs are not told of that."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import FrameType

import pytest

import nnburst
from capi.interface import Addition, CInterface
from nnburst.capi.marshalling import HANDLES

# An exception that a handler raises within a callback of C's is lost: cffi reports it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
OURS = str(Path(nnburst.__file__).parent)


class Interruption(BaseException):
    """Raised by a signal handler, as KeyboardInterrupt is."""


def freed_with_interruption(c: CInterface, kind: str, handle: int, number: int) -> bool:
    """Free a handle; whether that came to the `number`-th place where Python looks for signals."""
    seen = 0

    def look(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal seen
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(OURS):
            seen += 1
            if seen == number:
                sys.setprofile(None)
                raise Interruption

    sys.setprofile(look)
    try:
        c.free(kind, handle)
    finally:
        sys.setprofile(None)
    return seen >= number


@pytest.mark.parametrize("kind", ["Execution", pytest.param("Burst", marks=pytest.mark.campaign)])
def test_a_free_that_is_interrupted_anywhere_frees_all_the_same(c: CInterface, kind: str) -> None:
    addition = Addition(c, explicit=True)
    number = 0
    came = True
    while came:
        burst = c.make(
            "Burst_create", addition.compilation
        )  # one that is used again knows ever more
        execution = c.make("Execution_create", addition.compilation)
        c.call("Execution_setReusable", execution, ctypes.c_bool(True))
        addition.set_arguments(execution)
        c.call("Execution_burstCompute", execution, burst)
        handle = burst if kind == "Burst" else execution
        number += 1
        came = freed_with_interruption(c, kind, handle, number)
        assert HANDLES.get(handle) is None, number
        assert c.code("Execution_burstCompute", execution, burst) != 0
        for name, each in (("Execution", execution), ("Burst", burst)):
            c.free(name, each)  # one that has ended is refused
    assert number > 10
    addition.close()
