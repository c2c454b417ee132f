"""Signal handlers of Python that raise within calls of C's: handles are freed, and what C has is known."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import pytest

from capi.interface import Addition, CInterface
from interrupting import interrupted_at
from nnburst._native import ffi
from nnburst.capi.functions import HandleKind
from nnburst.capi.marshalling import HANDLES
from nnburst.capi.native_executions import NATIVE_EXECUTIONS, NativeExecutions
from nnburst.runtime import Execution

# An exception that a handler raises within a callback of C's is lost: cffi reports it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


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
        came = interrupted_at(number, partial(c.free, kind, handle))
        assert HANDLES.get(handle) is None, number
        assert c.code("Execution_burstCompute", execution, burst) != 0
        for name, each in (("Execution", execution), ("Burst", burst)):
            c.free(name, each)  # one that has ended is refused
    assert number > 10
    addition.close()


class Exchange:
    """Notes the sizes that the library would get."""

    def __init__(self) -> None:
        self.sizes: list[Any] = []

    def offer_sizes(self, _compilation: int, sizes: Any) -> None:
        self.sizes.append(sizes)


def test_executions_of_sizes_whose_offer_was_interrupted_anywhere_can_be_adopted(
    c: CInterface,
) -> None:
    addition = Addition(c, explicit=True)
    execution = HANDLES[addition.execution]
    assert isinstance(execution, Execution)
    number, came = 0, True
    while came:
        number += 1
        executions = NativeExecutions()
        executions.exchange = Exchange()
        came = interrupted_at(number, partial(executions.offer, 1, execution))
        executions.offer(1, execution)
        for sizes in executions.exchange.sizes:
            handle = HANDLES.reserve(HandleKind.Execution)
            fields = {"sizes": sizes, "arguments": sizes.input_count + sizes.output_count}
            executions.adopt(handle, ffi.new("struct nnb_native_execution *", fields))
            HANDLES[handle].close()
            HANDLES.remove(handle)
        executions.close()
    assert number > 5
    addition.close()


def test_requests_of_a_burst_whose_release_was_interrupted_anywhere_are_closed(
    c: CInterface,
) -> None:
    addition = Addition(c, explicit=True)
    number, came = 0, True
    while came:
        number += 1
        addition.burst = c.make("Burst_create", addition.compilation)
        for value in range(3):
            assert addition.compute_once(value) == 0
        requests = NATIVE_EXECUTIONS._caches[addition.burst].requests.values()
        assert requests
        came = interrupted_at(number, partial(NATIVE_EXECUTIONS.release, addition.burst))
        NATIVE_EXECUTIONS.release(addition.burst)
        assert all(request._pool.closed for request in requests), number
        c.free("Burst", addition.burst)
    assert number > 10
    addition.close()
