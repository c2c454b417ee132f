"""Gives the library bound requests, so that it executes without the interpreter.

Two kinds of program profit. The first kind reuses an execution: after it has computed over a driver's burst,
`FastPath` registers its bound request with the library, under the execution's handle (csrc/capi/fast.h). The
second kind makes a new execution for each computation: `NativeExecutions` gives the library the sizes of a
compilation's arguments, from which the library makes native executions, and cached requests to run for them.
One request serves all arguments at addresses, which are copied; arguments in memories need one request for
each set of places.

The library repeats a request as long as each run ends like the one before. If a run ends differently, Python
finishes it as the framework would, with shapes, fallback and a code. If a call on a native execution needs
Python, the execution becomes a Python object ("is adopted").
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any, Final

from nnburst._native import ffi
from nnburst.capi.cached_requests import (
    RUN,
    ArgumentSizes,
    BurstRequests,
    CachedRequest,
    OwnBurst,
    OwnBursts,
    Placing,
    new_cached_request,
    placing_of,
)
from nnburst.capi.functions import HandleKind
from nnburst.capi.marshalling import HANDLES, content
from nnburst.hal.errors import NnburstError
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.objects.arguments import ArgumentList
from nnburst.runtime.objects.burst import Burst, executable_of
from nnburst.runtime.objects.execution import Execution, NativeView
from nnburst.runtime.records import ExecutionMode

# -- reusable executions ---------------------------------------------------------------------------


class _Offer:
    """A bound request that C may run for an execution. It is kept as long as C may read it."""

    def __init__(self, execution: Execution, bound: BoundPlan, burst: Burst, handle: int) -> None:
        self.execution: Final = execution
        self.bound: Final = bound
        self.burst: Final = burst
        self._copies = [_copies(bound, into=True), _copies(bound, into=False)]
        self.run: Any = ffi.new(
            "struct nnb_fast_run *",
            {
                "run": RUN,
                "bound": bound.steps.struct,
                "burst": handle,
                "copies_in": self._copies[0],
                "copies_out": self._copies[1],
                "copies_in_count": len(self._copies[0]),
                "copies_out_count": len(self._copies[1]),
            },
        )


def _copies(bound: BoundPlan, *, into: bool) -> Any:  # noqa: ANN401 - of cffi's
    copies = bound.inputs if into else bound.outputs
    rows = []
    for copy in copies:
        given, pooled = copy.given.ctypes.data, copy.pooled.ctypes.data
        to, source = (pooled, given) if into else (given, pooled)
        rows.append((ffi.cast("void *", to), ffi.cast("void *", source), copy.given.nbytes))
    return ffi.new("struct nnb_copy[]", rows)


class FastPath:
    """Registers bound requests of reusable executions. Thread-safe: an execution has one call at a time."""

    def __init__(self) -> None:
        """Create the empty tables; `exchange` is set before the first request."""
        self.exchange: Any = None
        #: Held while the library gets or loses requests. Reentrant: a signal handler may compute meanwhile.
        self._lock: Final = threading.RLock()
        self._offers: dict[int, list[_Offer]] = {}
        self._latest: dict[int, _Offer] = {}

    def offer(self, handle: int, execution: Execution, burst: Burst, burst_handle: int) -> None:
        """Let the library repeat an execution that has computed over `burst`, if C can.

        Args:
            handle: the execution's handle.
            execution: an execution that has completed.
            burst: the burst that it ran on.
            burst_handle: the burst's handle; 0 for the execution's own burst.
        """
        bound = NativeView(execution).bound_to(burst)
        if bound is None or bound.needs_python:
            return
        with self._lock:
            offer = self._known(handle, bound)
            if offer is None:
                offer = _Offer(execution, bound, burst, burst_handle)
                self._offers.setdefault(handle, []).append(offer)
            self._latest[handle] = offer
            self.exchange.offer(handle, offer.run)

    def _known(self, handle: int, bound: BoundPlan) -> _Offer | None:
        return next((offer for offer in self._offers.get(handle, ()) if offer.bound is bound), None)

    def finish(self, handle: int, code: int) -> bool:
        """Finish a run from C that ended with `code`, as if the execution had computed.

        Returns:
            Whether the library may run the request again.

        Raises:
            NnburstError: the computation failed.
        """
        offer, keeps = self._latest[handle], False
        try:
            NativeView(offer.execution).finish_bound(offer.bound, offer.burst, code)
            keeps = offer.bound.is_current
        finally:
            if not keeps:  # C drops the one that it has, too, before it unlocks the execution
                self.release(handle)
        return keeps

    def disable(self, handle: int) -> None:
        """Make the library leave the next computation to Python."""
        if handle in self._latest:
            self.exchange.offer(handle, ffi.NULL)

    def release(self, handle: int) -> None:
        """Drop the requests of a handle that was freed, or for which C has none any more."""
        with self._lock:
            self._offers.pop(handle, None)
            self._latest.pop(handle, None)

    def close(self) -> None:
        """Drop all requests, which the library does not read any more."""
        self._offers.clear()
        self._latest.clear()


FAST_PATH: Final = FastPath()


# -- an execution for each computation -------------------------------------------------------------

logger = logging.getLogger("nnburst.capi")


class NativeExecutions:
    """The argument sizes of compilations and the cached requests of bursts, by handle. Thread-safe."""

    def __init__(self) -> None:
        """Create the empty tables; `exchange` is set before the first call."""
        self.exchange: Any = None
        #: Reentrant: a signal handler or a finalizer of the program may call the C interface meanwhile. So no
        #: loop below goes over a table itself.
        self._lock: Final = threading.RLock()
        self._sizes: Final[dict[int, ArgumentSizes]] = {}
        self._by_address: Final[dict[int, ArgumentSizes | CachedRequest]] = {}
        self._caches: Final[dict[int, BurstRequests]] = {}
        #: For each memory's handle, the handles of bursts with requests that are bound to it.
        self._bound_to: Final[dict[int, set[int]]] = {}
        #: Sizes and requests that the library begins no further runs with.
        self._ended: set[ArgumentSizes | CachedRequest] = set()
        #: Held while the library gets a burst's requests, so that the newest array is the last that it gets.
        self._publishing: Final = threading.RLock()
        #: Bursts whose requests the library is to get, each with an object of the latest call for it.
        self._unpublished: Final[dict[int, object]] = {}
        #: Whether a call publishes or closes now. A signal handler's call within it leaves the work to it.
        self._is_publishing = self._is_closing = self._closes_again = False

    def offer(self, compilation: int, execution: Execution) -> None:
        """Let the library make further executions of a compilation by itself.

        Args:
            compilation: the compilation's handle.
            execution: an execution of the compilation.
        """
        with self._lock:
            sizes = self._sizes.get(compilation)
            if sizes is None:
                executable = NativeView(execution).executable
                new_burst = partial(HANDLES.reserve, HandleKind.Burst)  # a handle no program gets
                sizes = ArgumentSizes(OwnBursts(executable, new_burst, self._end_burst))
                address = _address(sizes.struct)
                # Without a call: both or, if a signal handler raises before, none.
                self._sizes[compilation] = self._by_address[address] = sizes
        self.exchange.offer_sizes(compilation, sizes.struct)

    def computed(self, execution: Execution) -> None:
        """Open a burst for the calling thread, or cache a request on it, for executions without a burst.

        Args:
            execution: an execution that has computed, or was started, without a burst of the program.
        """
        view = NativeView(execution)
        if not view.is_plain or view.executable.recorder.is_on:  # C keeps no records
            return
        with self._lock:
            sizes = self._sizes_of(view.executable)
        infos = (*view.inputs.given, *view.outputs.given)
        if sizes is None or not sizes.are_all_exact or placing_of(infos) is None:
            return
        mine = sizes.own.of_thread()
        burst, handle = mine.burst, mine.handle
        if burst is None:
            sizes.own.computed(mine)
        else:
            self.cache(handle, burst, execution, mine)

    def _end_burst(self, handle: int) -> None:
        self.exchange.end_burst(handle)
        self.release(handle)

    def cache(
        self, handle: int, burst: Burst, execution: Execution, mine: OwnBurst | None = None
    ) -> None:
        """Cache a request for executions like this one, from the second of them on.

        Args:
            handle: the burst's handle.
            burst: the burst.
            execution: an execution that has computed on the burst, or could have.
            mine: the entry of the thread for which nnburst opened the burst; None for a burst of the program.
        """
        view = NativeView(execution)
        infos = (*view.inputs.given, *view.outputs.given)
        placing = placing_of(infos)
        with self._lock:
            sizes = self._sizes_of(executable_of(burst))
            if sizes is None or placing is None or len(placing) != sizes.count:
                return
            if not sizes.are_all_exact:
                return
            # A free closes the burst, or the entry lets it go, before `release` removes what is here.
            if burst.closed if mine is None else mine.handle != handle:
                return
            cache = self._caches.setdefault(handle, BurstRequests())
            known = cache.requests.find(placing)
            is_current = known is not None and known.bound.is_current
            if is_current and known in cache.published:
                return
            if known is None and not (cache.can_cache and cache.requests.is_wanted(placing)):
                return
            memories = {place[0] for place in placing if place is not None}
            for memory in memories:
                self._bound_to.setdefault(memory, set()).add(handle)
            if not is_current:  # otherwise a call was interrupted before the library had it
                try:
                    cached = new_cached_request(sizes, burst, infos, placing, mine)
                except NnburstError as error:
                    logger.info("cannot cache a request, executions go through Python: %s", error)
                    return
                if cached is None:
                    cache.can_cache = False
                    return
                cache.requests.add(placing, cached)
                if self._caches.get(handle) is not cache:  # a signal handler has freed the burst
                    self._ended |= cache.gone
        for memory in memories:
            self._offer_memory(memory)
        self._publish(handle)
        self._close_unused()

    def _offer_memory(self, handle: int) -> None:
        memory = HANDLES.get(handle)
        if memory is None:  # another thread has freed it
            self.release(handle)
        else:
            self.exchange.offer_memory(handle, memory.size)

    def _publish(self, handle: int) -> None:
        """Give the library the current requests of a burst, in place of the ones before.

        A signal handler's call within another call leaves the work to that one; an interrupted call leaves it
        to the next.
        """
        with self._publishing:
            self._unpublished[handle] = object()
            if self._is_publishing:
                return
            self._is_publishing = True
            try:
                while self._unpublished:
                    [burst, call], *_ = self._unpublished.copy().items()
                    self._publish_now(burst)
                    if self._unpublished[burst] is call:
                        del self._unpublished[burst]
            finally:
                self._is_publishing = False

    def _publish_now(self, handle: int) -> None:
        with self._lock:
            cache = self._caches.get(handle)
            if cache is None:
                return
            gone = {*cache.gone}
            requests = [each for each in cache.requests.values() if each not in gone]
            for request in requests:  # before the library can have it
                self._by_address[_address(request.struct)] = request
        array = ffi.new("struct nnb_cached_request *[]", [request.struct for request in requests])
        cache.arrays.append(array)
        self.exchange.cache(handle, array, len(requests))
        del cache.arrays[:-1]  # the library no longer looks at those before
        with self._lock:
            cache.published = requests
            self._ended |= gone
            cache.gone.difference_update(gone)

    def _sizes_of(self, executable: Executable) -> ArgumentSizes | None:
        return next((t for t in [*self._sizes.values()] if t.executable is executable), None)

    def adopt(self, handle: int, native: Any) -> Execution:  # noqa: ANN401 - a pointer of cffi's
        """Turn a native execution into a Python object under the same handle.

        Args:
            handle: the execution's handle.
            native: the library's `struct nnb_native_execution`.

        Raises:
            NnburstError: the object cannot be made.
        """
        sizes = self._by_address[_address(native.sizes)]
        assert isinstance(sizes, ArgumentSizes)
        execution = Execution(sizes.executable)
        view = NativeView(execution)
        places = [(native.arguments[at], sizes.struct.bytes[at]) for at in range(sizes.count)]
        inputs = len(sizes.executable.interface.inputs)
        for arguments, given in (
            (view.inputs, places[:inputs]),
            (view.outputs, places[inputs:]),
        ):
            for index, (place, length) in enumerate(given):
                _set(arguments, index, place, length, is_done=bool(native.completed))
        if native.completed:
            view.complete()
        HANDLES[handle] = execution
        native.adopted = True
        return execution

    def finish(self, handle: int, native: Any, struct: Any, status: int) -> bool:  # noqa: ANN401
        """Adopt a native execution, and finish its run of a cached request, which ended with `status`.

        Returns:
            Whether outputs at addresses are still in the request's pool; if not, they are at their addresses.

        Raises:
            NnburstError: the computation failed.
        """
        cached = self._by_address[_address(struct)]
        assert isinstance(cached, CachedRequest)
        try:
            execution = self.adopt(handle, native)
        except BaseException:
            cached.bound.steps.abandon()
            raise
        mine, view, mode = cached.mine, NativeView(execution), ExecutionMode(native.mode)
        ended_well = False
        try:
            is_in_pool = view.finish_bound(cached.bound, cached.burst, status, mode)
            ended_well = cached.bound.is_current
        finally:
            if not cached.bound.is_current:
                self._release_request(cached)
            if mine is not None and not ended_well:
                mine.burst = None  # the next computations open a new burst
        return is_in_pool

    def _release_request(self, cached: CachedRequest) -> None:
        with self._lock:
            caches = {
                handle: cache
                for handle, cache in self._caches.copy().items()
                if cached in cache.gone or cached in cache.requests.values()
            }
            for cache in caches.values():
                cache.gone.add(cached)  # first: a signal handler may raise behind it
                cache.requests.remove(cached.placing, cached)
        for handle in caches:
            self._publish(handle)
        self._close_unused()

    def release(self, handle: int) -> None:
        """Remove the sizes and requests of a freed handle. An interrupted call can be repeated."""
        with self._lock:
            cache = self._caches.get(handle)
            if cache is not None:
                cache.requests.close()
                self._ended |= cache.gone
            sizes = self._sizes.get(handle)
            if sizes is not None:
                self._ended |= {sizes}
            bound = self._bound_to.get(handle, set())
            bursts = {burst: each for burst, each in self._caches.copy().items() if burst in bound}
            for each in bursts.values():
                each.requests.release(partial(_has_memory, handle))
        if sizes is not None:
            sizes.own.close()
        for burst in bursts:
            self._publish(burst)
        self._close_unused()
        with self._lock:  # last, since a repeated call reads these to find what is left to do
            self._caches.pop(handle, None)
            self._sizes.pop(handle, None)
            self._bound_to.pop(handle, None)

    def _close_unused(self) -> None:
        """Close ended sizes and requests that the library no longer reads; later calls close the others."""
        with self._lock:
            self._closes_again = True
            if self._is_closing:
                return
            self._is_closing = True
            try:
                while self._closes_again:
                    self._closes_again = False
                    for each in [each for each in [*self._ended] if not each.is_in_use]:
                        each.close()
                        self._by_address.pop(_address(each.struct), None)
                        self._ended.discard(each)
            finally:
                self._is_closing = False

    @property
    def is_in_use(self) -> bool:
        """Whether the library is reading any sizes or running any request."""
        with self._lock:
            return any(each.is_in_use for each in [*self._by_address.values()])

    def close(self) -> None:
        """Close all sizes and requests, none of which is in use any more."""
        with self._lock:
            handles = [*self._caches, *self._sizes, *self._bound_to]
        for handle in handles:
            self.release(handle)


def _set(
    arguments: ArgumentList,
    index: int,
    place: Any,  # noqa: ANN401 - a struct nnb_place of cffi's
    length: int,
    *,
    is_done: bool,
) -> None:
    """Copy an argument of a native execution to a Python one, if it is set.

    Raises:
        InvalidArgument: the argument's memory was freed before the execution had computed.
    """
    if place.memory and is_done and HANDLES.get(place.memory) is None:
        arguments.set_pointer(index, None, None, None, padding=False)  # it is not computed again
    elif place.memory:
        memory = HANDLES[place.memory]
        arguments.set_memory(index, memory, place.offset, length, None, padding=False)
    elif place.address:
        view = content(_address(place.address), length)
        arguments.set_pointer(index, view, None, None, padding=False)


def _has_memory(memory: int, placing: Placing) -> bool:
    return any(place is not None and place[0] == memory for place in placing)


def _address(pointer: Any) -> int:  # noqa: ANN401 - of cffi's
    return int(ffi.cast("uintptr_t", pointer))


NATIVE_EXECUTIONS: Final = NativeExecutions()
