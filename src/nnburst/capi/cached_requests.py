"""Keeps the bursts and bound requests that the library runs without the interpreter."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from nnburst._native import ffi, lib
from nnburst.capi.marshalling import HANDLES
from nnburst.client.memory import Memory as Pool
from nnburst.client.request_cache import RequestCache
from nnburst.client.session.own_bursts import MOST_THREADS, ThreadBurst, ThreadBursts
from nnburst.client.staging import Layout
from nnburst.hal.errors import ResourceExhausted
from nnburst.hal.limits import OPERAND_TYPE_BASE_MAX
from nnburst.hal.utils import Closing
from nnburst.runtime.argument import Argument
from nnburst.runtime.devices.driver_device import open_own_burst
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.objects.arguments import ArgumentInfo, exact_length
from nnburst.runtime.objects.burst import Burst

# -- bursts of threads -----------------------------------------------------------------------------

#: Most threads whose computations are counted; beyond it, threads without a burst are forgotten.
_REMEMBERED: Final = 256


class _Row:
    """A thread's burst, its handle, and its row in the library's table."""

    __slots__ = ("burst", "handle", "is_open", "number", "struct")

    def __init__(self, burst: Burst, handle: int, number: int, struct: Any) -> None:  # noqa: ANN401
        self.burst: Final = burst
        self.handle: Final = handle
        self.number: Final = number
        self.struct: Final = struct
        self.is_open = True


class OwnBurst(ThreadBurst[Burst]):
    """The burst that nnburst opens for one thread of a program in C. Thread-safe.

    Attributes:
        row: the burst in the library's table; None without a burst. Only `OwnBursts` sets it.
    """

    __slots__ = ("_is_used", "_of", "row", "thread")

    def __init__(self, of: OwnBursts, thread: int) -> None:
        """Begin without a burst."""
        self._of: Final = of
        self.thread: Final = thread
        self.row: _Row | None = None
        self._is_used = False
        super().__init__()

    @property
    def burst(self) -> Burst | None:
        """The burst, or None. Setting it to None closes the burst as soon as no run uses it."""
        row = self.row
        return row.burst if row is not None and row.is_open else None

    @burst.setter
    def burst(self, burst: Burst | None) -> None:
        if burst is not None:
            self._of.give(self, burst)
        else:
            self._of.take(self)

    @property
    def handle(self) -> int:
        """The handle of the burst, which the program never gets; 0 if there is no burst."""
        row = self.row
        return row.handle if row is not None and row.is_open else 0

    @property
    def is_used(self) -> bool:
        """Whether the library has used the burst since this property was set to False."""
        row = self.row
        if row is not None and lib.nnb_thread_burst_was_used(row.struct):
            self._is_used = True
        return self._is_used

    @is_used.setter
    def is_used(self, value: bool) -> None:
        self._is_used = value


class OwnBursts:
    """The bursts of a compilation's threads, for computations that name no burst. Thread-safe.

    C and Python identify a thread by the same number. A thread may get the number of one that has ended; it
    then uses that thread's burst.

    Attributes:
        executable: the executable of the compilation.
        struct: the library's table, with a row for each burst.
        count: number of rows.
    """

    def __init__(
        self, executable: Executable, begin: Callable[[], int], end: Callable[[int], None]
    ) -> None:
        """Create the table without opening a burst.

        Args:
            executable: the executable of the compilation.
            begin: returns a new handle for a burst; 0 if there are no more.
            end: releases a handle, with the requests that are cached for its burst.
        """
        self.executable: Final = executable
        self.struct: Any = ffi.new("struct nnb_thread_burst[]", MOST_THREADS)
        self.count: Final = MOST_THREADS
        self._begin: Final = begin
        self._end: Final = end
        #: Reentrant: a signal handler of the program may compute while its thread ends a burst.
        self._lock: Final = threading.RLock()
        self._are_taken: Final = [False] * MOST_THREADS
        self._threads: Final[dict[int, OwnBurst]] = {}
        self._bursts: Final = ThreadBursts[Burst](partial(_open_own_burst, weakref.ref(self)))

    def of_thread(self) -> OwnBurst:
        """The entry of the calling thread, which may have no burst yet."""
        thread = threading.get_ident()
        mine = self._threads.get(thread)
        if mine is None:
            mine = OwnBurst(self, thread)
            self._bursts.add(mine)
            self._threads[thread] = mine
            if len(self._threads) > _REMEMBERED:
                for known, each in self._threads.copy().items():
                    if each is not mine and each.burst is None and not each.is_wanted:
                        self._threads.pop(known, None)
        return mine

    def computed(self, mine: OwnBurst) -> None:
        """Count a computation that used no burst; from the second one on, open a burst for the thread."""
        self._bursts.is_opening(mine)
        mine.calls += 1

    @property
    def users(self) -> ThreadBursts[Burst]:
        """The bursts, so that a session can close them all."""
        return self._bursts

    def give(self, mine: OwnBurst, burst: Burst) -> None:
        """Enter a thread's burst into the library's table, if a row and a handle are left."""
        with self._lock:
            self.take(mine)  # an interrupted call may have left one
            if all(self._are_taken):
                return
            handle = self._begin()
            if not handle:
                return
            number = self._are_taken.index(False)
            row = _Row(burst, handle, number, ffi.addressof(self.struct, number))
            lib.nnb_thread_burst_set(row.struct, mine.thread, handle)
            mine.row, self._are_taken[number] = row, True

    def take(self, mine: OwnBurst) -> None:
        """Remove a burst from the library's table, and the requests that are cached for it.

        If a signal handler raises meanwhile, the next call completes it.
        """
        with self._lock:
            row = mine.row
            if row is None:
                return
            row.is_open = False
            lib.nnb_thread_burst_set(row.struct, 0, 0)
            self._end(row.handle)
            # Without a call: both or, if a signal handler raises before, none.
            mine.row, self._are_taken[row.number] = None, False

    def close(self) -> None:
        """Close all bursts, and open no more."""
        self._bursts.close()


def _open_own_burst(reference: weakref.ref[OwnBursts], keep: Callable[[Burst], None]) -> None:
    """Open a burst for a thread, unless the compilation is gone.

    Raises:
        NnburstError: it cannot be opened, a driver's session allows none, or C cannot run the plan.
    """
    own = reference()
    if own is None:
        return
    executable = own.executable

    def open_burst() -> Burst:
        burst = Burst(executable)
        if not executable.can_bind(burst.bursts):
            burst.close()
            raise ResourceExhausted("the plan cannot be bound to a burst")
        keep(burst)
        return burst

    open_own_burst(executable.parts, open_burst, own.users)


# -- sizes of arguments ----------------------------------------------------------------------------


class ArgumentSizes(Closing):
    """The lengths and types of the inputs and outputs of a compilation's executions, for the library.

    Attributes:
        executable: the executable of the compilation.
        count: number of inputs and outputs together.
        are_all_exact: whether each input and output has exactly one possible length.
        own: bursts of threads, for executions for which the program names no burst.
        struct: the lengths, which the library reads.
    """

    def __init__(self, own: OwnBursts) -> None:
        """Take the lengths from the compilation whose threads have the bursts `own`."""
        self.executable: Final = own.executable
        self.own: Final = own
        interface = self.executable.interface
        operands = (*interface.inputs, *interface.outputs)
        lengths = [exact_length(operand) for operand in operands]
        self.are_all_exact: Final = all(lengths)
        self.count: Final = len(lengths)
        self._bytes = ffi.new("uint64_t[]", lengths)
        self._dimensions = [ffi.new("uint32_t[]", operand.dimensions) for operand in operands]
        self._types = ffi.new("struct nnb_argument_type[]", self.count)
        for row, operand, dimensions in zip(self._types, operands, self._dimensions, strict=True):
            # Programs use other numbers for the types of extensions.
            row.type = operand.type if operand.type <= OPERAND_TYPE_BASE_MAX else -1
            row.rank, row.dimensions = len(operand.dimensions), dimensions
            row.scale, row.zero_point = operand.scale, operand.zero_point
        self.struct: Any = ffi.new(
            "struct nnb_argument_sizes *",
            {
                "input_count": len(interface.inputs),
                "output_count": len(interface.outputs),
                "bytes": self._bytes,
                "types": self._types,
                "threads": self.own.struct,
                "thread_count": self.own.count,
            },
        )

    @property
    def is_in_use(self) -> bool:
        """Whether native executions of the compilation exist."""
        return bool(lib.nnb_argument_sizes_in_use(self.struct))

    def close(self) -> None:
        """Do nothing: the object owns only memory, and `own` was closed before."""


# -- cached requests -------------------------------------------------------------------------------


#: The C function with which the library runs a bound request.
RUN: Final = ffi.addressof(lib, "nnb_capi_run")
#: An execution that ends within QUICK_NS nanoseconds, about the cost of starting a thread, is waited for in
#: the call that starts it. This is tried if the quickest computation before took at most PROMISING_NS.
QUICK_NS: Final = 100_000
PROMISING_NS: Final = 1_000_000

#: Where the arguments of an execution lie: for each input, then each output, a memory's handle and an offset;
#: None for an argument at an address.
Placing: TypeAlias = tuple[tuple[int, int] | None, ...]


def placing_of(infos: Sequence[ArgumentInfo]) -> Placing | None:
    """The places of an execution's arguments; None if the framework must check them before each computation.

    Args:
        infos: the argument of each input, then of each output.
    """
    places: list[tuple[int, int] | None] = []
    for info in infos:
        is_omitted = info.view is None and info.memory is None
        if is_omitted or not info.is_in_place:
            return None
        if info.memory is None:
            places.append(None)
            continue
        handle = HANDLES.find(info.memory)
        if handle is None or info.length != exact_length(info.operand):
            return None
        places.append((handle, info.offset))
    return tuple(places)


class CachedRequest(Closing):
    """A bound request that C runs for all native executions whose arguments lie in the same places."""

    def __init__(
        self,
        sizes: ArgumentSizes,
        burst: Burst,
        bound: BoundPlan,
        pool: Pool,
        placing: Placing,
        mine: OwnBurst | None,
    ) -> None:
        self.burst: Final = burst
        self.mine: Final = mine
        self.bound: Final = bound
        self.placing: Final = placing
        self._pool: Final = pool
        self._sizes: Final = sizes
        self._places = ffi.new("struct nnb_place[]", len(placing))
        arguments = (argument for group in bound.arguments for argument in group)
        for row, argument, place in zip(self._places, arguments, placing, strict=True):
            if place is not None:
                row.memory, row.offset = place
            elif argument.bytes is not None:
                row.address = ffi.cast("void *", argument.bytes.ctypes.data)
        self.struct: Any = ffi.new(
            "struct nnb_cached_request *",
            {
                "sizes": sizes.struct,
                "run": RUN,
                "bound": bound.steps.struct,
                "places": self._places,
                "quick_ns": QUICK_NS if sizes.executable.least_ns <= PROMISING_NS else 0,
            },
        )

    @property
    def is_in_use(self) -> bool:
        """Whether a native execution runs it now."""
        return bool(lib.nnb_cached_request_in_use(self.struct))

    def close(self) -> None:
        """Close the request and its pool."""
        self.bound.close()
        self._pool.close()


def new_cached_request(
    sizes: ArgumentSizes,
    burst: Burst,
    infos: Sequence[ArgumentInfo],
    placing: Placing,
    mine: OwnBurst | None = None,
) -> CachedRequest | None:
    """Bind a new cached request of a burst; None if C cannot run the plan with these arguments.

    Args:
        sizes: the argument sizes of the compilation, all of them exact.
        burst: a burst of the same compilation.
        infos: the argument of each input, then of each output.
        placing: the places of these arguments.
        mine: the entry of the thread for which nnburst opened the burst; None for a burst of the program.

    Raises:
        NnburstError: the request cannot be bound.
    """
    layout = Layout()
    offsets = [0 if info.memory else layout.place(exact_length(info.operand)) for info in infos]
    pool = Pool(max(layout.size, 1))
    try:
        bound = _bound(sizes, burst, infos, pool, offsets)
    except BaseException:
        pool.close()
        raise
    if bound is None:
        pool.close()
        return None
    return CachedRequest(sizes, burst, bound, pool, placing, mine)


def _bound(
    sizes: ArgumentSizes,
    burst: Burst,
    infos: Sequence[ArgumentInfo],
    pool: Pool,
    offsets: Sequence[int],
) -> BoundPlan | None:
    """Bind arguments to a burst; an argument at an address gets a place in the pool."""
    arguments = [
        info.as_argument()
        if info.memory
        else Argument(
            pool.array(np.uint8, (exact_length(info.operand),), offset), info.operand.dimensions
        )
        for info, offset in zip(infos, offsets, strict=True)
    ]
    inputs = len(sizes.executable.interface.inputs)
    bound = sizes.executable.bind(arguments[:inputs], arguments[inputs:], burst.bursts)
    if bound is not None and (bound.needs_python or not bound.is_known):
        bound.close()
        return None
    return bound


# -- requests of one burst -------------------------------------------------------------------------

#: Most requests that a burst keeps, and the number of executions with one placing before a request is bound.
MOST: Final = 8
_BINDS_AT: Final = 2


class BurstRequests:
    """The cached requests of one burst, by the places of their arguments.

    Attributes:
        requests: the requests that the library may run; the framework computes executions with other places.
        can_cache: whether C can run the burst's plan.
        arrays: pointers to requests; the library reads the latest one or, until it has that, the one before.
        published: the requests of the array that the library has.
        gone: requests that the cache has evicted; the library may run them until it has a new array.
    """

    def __init__(self) -> None:
        """Begin with no requests."""
        self.gone: Final[set[CachedRequest]] = set()
        self.requests: Final[RequestCache[Placing, CachedRequest]] = RequestCache(
            MOST, bind_at=_BINDS_AT, end=self.gone.add
        )
        self.can_cache = True
        self.arrays: Final[list[Any]] = []
        self.published: list[CachedRequest] = []
