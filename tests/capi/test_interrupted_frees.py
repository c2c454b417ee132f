"""Signal handlers of Python that raise within calls of C's: handles are freed, and what C has is known."""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from capi.interface import Addition, CInterface
from interrupting import Interruption, interrupted_at
from nnburst._native import ffi
from nnburst.capi import native_executions
from nnburst.capi.cached_requests import CachedRequest
from nnburst.capi.functions import HandleKind
from nnburst.capi.marshalling import HANDLES
from nnburst.capi.native_executions import NATIVE_EXECUTIONS, NativeExecutions
from nnburst.runtime import Execution

# An exception that a handler raises within a callback of C's is lost: cffi reports it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> weakref.WeakSet[CachedRequest]:
    """The cached requests that exist. No interruption comes while one is made."""
    made = weakref.WeakSet[CachedRequest]()
    make = native_executions.new_cached_request

    def note(*args: Any) -> CachedRequest | None:
        look = sys.getprofile()
        sys.setprofile(None)
        request = make(*args)
        if request is not None:
            made.add(request)
        sys.setprofile(look)
        return request

    monkeypatch.setattr(native_executions, "new_cached_request", note)
    return made


def known() -> int:
    """Sizes of compilations and cached requests that the library may know."""
    return len(NATIVE_EXECUTIONS._by_address)


class Caching:
    """A new burst of a sum, and the call that caches a request for it from the second time on."""

    def __init__(self, c: CInterface, addition: Addition) -> None:
        addition.burst = c.make("Burst_create", addition.compilation)
        execution = HANDLES[addition.execution]
        self.call = partial(
            NATIVE_EXECUTIONS.cache, addition.burst, HANDLES[addition.burst], execution
        )
        self.call()


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


def test_a_request_is_not_cached_for_a_burst_that_another_thread_has_just_freed(
    c: CInterface,
) -> None:
    addition = Addition(c, explicit=True)
    before = known()
    caching = Caching(c, addition)
    c.free("Burst", addition.burst)
    for _ in range(2):
        caching.call()
        assert addition.burst not in NATIVE_EXECUTIONS._caches
    assert known() == before
    addition.close()


def with_a_handler_at(number: int, call: Callable[[], object], handler: Callable[[], None]) -> bool:
    """Whether `handler` ran at the `number`-th place where a thread that calls `call` looks for signals.

    Fails if that thread never comes back.
    """
    seen = 0

    def look(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal seen
        if event in ("call", "c_return") and frame.f_code.co_filename == native_executions.__file__:
            seen += 1
            if seen == number:
                sys.setprofile(None)
                handler()

    def run() -> None:
        sys.setprofile(look)
        try:
            call()
        finally:
            sys.setprofile(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), f"stuck at place {number}"
    return seen >= number


@pytest.mark.parametrize("kind", ["cache", "free"])
def test_a_signal_handler_that_calls_the_c_interface_within_a_call_of_it_does_not_block(
    c: CInterface, kind: str
) -> None:
    addition, other = Addition(c, explicit=True), Addition(c, explicit=True)

    def handle() -> None:
        Caching(c, other).call()
        c.free("Burst", other.burst)

    before = known()
    number, came = 0, True
    while came:
        number += 1
        caching = Caching(c, addition)
        free = partial(c.free, "Burst", addition.burst)
        if kind == "free":
            caching.call()
        came = with_a_handler_at(number, caching.call if kind == "cache" else free, handle)
        for value in range(3):
            assert addition.compute_once(value) == 0 or kind == "free"
        free()
        assert known() == before, number
    assert number > 10
    addition.close()
    other.close()


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


def test_caching_that_is_interrupted_anywhere_leaves_no_request_and_goes_on_later(
    c: CInterface, requests: weakref.WeakSet[CachedRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    addition = Addition(c, explicit=True)
    before = known()
    made: list[Execution] = []
    init = Execution.__init__

    def note(self: Execution, *args: Any) -> None:
        made.append(self)
        init(self, *args)

    monkeypatch.setattr(Execution, "__init__", note)
    number, came = 0, True
    while came:
        number += 1
        caching = Caching(c, addition)
        came = interrupted_at(number, caching.call)
        c.free("Burst", addition.burst)
        assert known() == before, number
        assert all(request._pool.closed for request in requests), number

        caching = Caching(c, addition)
        interrupted_at(number, caching.call)
        caching.call()
        assert addition.compute_once(1) == addition.compute_once(2) == 0
        made.clear()
        assert addition.compute_once(3) == 0
        assert not made, number  # the library computes without Python
        c.free("Burst", addition.burst)
    assert number > 30
    addition.close()


def test_the_library_never_has_an_array_of_requests_that_an_interruption_has_freed(
    c: CInterface, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = NATIVE_EXECUTIONS.exchange
    arrays: list[Any] = []

    class Interrupting:
        """The library's functions; a signal handler raises when it has got its first array."""

        def __getattr__(self, name: str) -> Any:
            return getattr(exchange, name)

        def cache(self, burst: int, array: Any, count: int) -> None:
            exchange.cache(burst, array, count)
            arrays.append(weakref.ref(array))
            if len(arrays) == 1:
                raise Interruption

    addition = Addition(c, explicit=True)
    caching = Caching(c, addition)
    monkeypatch.setattr(NATIVE_EXECUTIONS, "exchange", Interrupting())
    with pytest.raises(Interruption):
        caching.call()
    assert arrays[0]() is not None
    assert addition.compute_once(1) == 0
    caching.call()
    assert [array() is None for array in arrays] == [True, False]
    addition.close()


def test_a_stale_request_whose_withdrawal_was_interrupted_anywhere_is_closed_all_the_same(
    c: CInterface,
) -> None:
    addition = Addition(c, explicit=True)
    before = known()
    number, came = 0, True
    while came:
        number += 1
        for is_repeated in (False, True):
            Caching(c, addition).call()
            (request,) = NATIVE_EXECUTIONS._caches[addition.burst].requests.values()
            withdraw = partial(NATIVE_EXECUTIONS._release_request, request)
            came = interrupted_at(number, withdraw)
            if is_repeated:  # the library may have run it once more
                withdraw()
                assert request._pool.closed, number
            c.free("Burst", addition.burst)
            assert request._pool.closed, number
            assert known() == before, number
    assert number > 10
    addition.close()
