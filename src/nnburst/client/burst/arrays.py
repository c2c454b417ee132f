"""Executes numpy arrays by a burst, and reuses a request that was bound for similar arrays.

Arrays in a pool of the device are part of the request itself. For the others the request has a private pool:
inputs are copied into it before the run, and outputs out of it afterwards. Requests with open shapes share
one private pool, since only one of them runs at a time; so a new shape needs no new pool, which the driver
would have to map. A request that is given arrays of this pool, results of an earlier one, uses a second pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    check_count,
    check_timeout,
    copy_elements,
    head,
    time_left,
)
from nnburst.client.burst.bound_request import RingRequest
from nnburst.client.burst.core import BurstCore
from nnburst.client.burst.interface import DEFAULT_TIMEOUT
from nnburst.client.execution.buffer import Buffer, refuse_buffers
from nnburst.client.execution.socket_request import execute_synchronously
from nnburst.client.memory import Memory, find_memory, may_overlap, refuse_overlap
from nnburst.client.request_cache import RequestCache
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.client.staging import Layout
from nnburst.hal.enums import MeasureTiming
from nnburst.hal.errors import (
    BurstBusy,
    InvalidArgument,
    MissedDeadline,
    OutputInsufficientSize,
)
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.types import OutputShape
from nnburst.hal.utils import check_integer


class OpenShapes:
    """The two pools and the sizes that a burst's requests with open shapes share. One thread at a time.

    Attributes:
        rooms: bytes to offer for each output: the declared size, or twice the size that it once needed.
        is_open: whether any shape is open.
    """

    def __init__(
        self,
        inputs: Sequence[Parameter],
        outputs: Sequence[Parameter],
        allocate: Callable[[int], Memory],
    ) -> None:
        """Begin with the declared or guessed sizes of the outputs; `allocate` makes pools."""
        self.rooms = [parameter.first_room for parameter in outputs]
        self.is_open = not all(parameter.known for parameter in (*inputs, *outputs))
        self._allocate = allocate
        self._pools: list[Memory | None] = [None, None]

    def memory(self, size: int, arrays: Sequence[Array | None]) -> Memory:
        """A pool of at least `size` bytes, in which none of `arrays` lies; requests may share it."""
        if not self.is_open:
            return self._allocate(size)
        # A view of a private pool is used in place, so no private copy may lie in that pool.
        found = [find_memory(array) for array in arrays if array is not None]
        given = [place[0] for place in found if place is not None]
        turn = 1 if self._pools[0] in given else 0
        pool = self._pools[turn]
        if pool is None or pool.closed or pool in given:
            pool = self._allocate(size)
        elif pool.size < size:
            pool = self._allocate(max(size, 2 * pool.size))
        self._pools[turn] = pool
        return pool

    def grow(self, sizes: Sequence[int]) -> None:
        """Offer at least `sizes` bytes for the outputs from now on."""
        self.rooms = [max(pair) for pair in zip(self.rooms, sizes, strict=True)]

    def replace(self) -> None:
        """Take new pools from now on: the driver may still be writing to these for an abandoned request."""
        self._pools = [None, None]


# -- requests like the last one --------------------------------------------------------------------


class Repeatable(Protocol):
    """A bound request, of a burst or of a plan."""

    @property
    def inputs(self) -> Sequence[Any]:
        """The arrays that hold its inputs."""

    @property
    def outputs(self) -> Sequence[Array]:
        """The arrays that hold its outputs."""

    @property
    def closed(self) -> bool:
        """Whether it cannot be run any more."""

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once."""


def in_pool(array: Array) -> bool:
    """Whether an array is itself part of a request, so that nothing is copied."""
    return array.base is not None and find_memory(array) is not None


class _ArrayPlace(NamedTuple):
    """A view that was bound; its shape is None if it is the caller's own array and takes no copies."""

    view: Array
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, view: Array, given: object) -> _ArrayPlace:
        return cls(view, view.dtype, None if given is view else view.shape)


class LastRequest:
    """Repeats the latest request, since the next one is usually similar.

    Each array is either private, and copied, or the very array in a pool that was bound.
    """

    __slots__ = ("_bound", "_inputs", "_outputs", "_own_outputs")

    def __init__(self, bound: Repeatable, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Repeat `bound`, which was made for `inputs` and `outputs`; the model declares all output shapes."""
        self._bound = bound
        self._inputs = [_ArrayPlace.of(*pair) for pair in zip(bound.inputs, inputs, strict=True)]
        self._outputs = [_ArrayPlace.of(*pair) for pair in zip(bound.outputs, outputs, strict=True)]
        self._own_outputs = all(place.shape is not None for place in self._outputs)

    @staticmethod
    def of(
        parameters: Sequence[Parameter],
        bound: Repeatable,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> LastRequest | None:
        """Make a `LastRequest` after a run; None if running it again takes more than copies of arrays.

        Args:
            parameters: type and shape of each output.
            bound: the request that was executed.
            inputs: the caller's input arrays.
            outputs: the caller's output arrays; None for a result in the burst's own memory.
        """
        pairs = [*zip(bound.inputs, inputs, strict=True)]
        pairs += [p for p in zip(bound.outputs, outputs, strict=True) if p[1] is not None]
        plain = all(
            given is view or (type(given) is np.ndarray and not in_pool(given))
            for view, given in pairs
        )
        known = all(parameter.known for parameter in parameters)
        if not plain or not known or any(array is None for array in inputs):
            return None
        return LastRequest(bound, inputs, outputs)

    def is_of(self, bound: Repeatable) -> bool:
        """Whether it executes `bound`."""
        return bound is self._bound

    def execute(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any] | None,
        timeout: float,
        copy: bool,
    ) -> ExecutionResult | None:
        """Execute once; None, with nothing sent, if any array differs in kind from the last ones."""
        if self._bound.closed or not (
            self._own_outputs if outputs is None else _all_fit(self._outputs, outputs)
        ):
            return None
        if not _copied_in(self._inputs, inputs):
            return None
        result = self._bound.run(None if timeout == DEFAULT_TIMEOUT else timeout)
        if outputs is None:
            if not copy:
                return result
            arrays = [output.copy() for output in result.outputs]
        else:
            arrays = list(outputs)
            found = zip(self._outputs, result.outputs, strict=True)
            for at, ((view, _, _), output) in enumerate(found):
                if arrays[at] is view:
                    arrays[at] = output
                    continue
                if output is not view:  # perhaps of another shape than is declared
                    arrays[at] = head(arrays[at], output.shape)
                arrays[at][...] = output
        return ExecutionResult(arrays, result.output_shapes, result.timing)


def _copied_in(places: Sequence[_ArrayPlace], arrays: object) -> bool:
    """Copy arrays to their places, unless they lie there already; False if one does not match its place."""
    if type(arrays) not in (list, tuple) or len(arrays) != len(places):  # type: ignore[arg-type]
        return False
    for (view, dtype, shape), array in zip(places, arrays, strict=True):  # type: ignore[call-overload]
        if array is view:
            continue
        if (
            type(array) is not np.ndarray
            or array.dtype is not dtype
            or array.shape != shape
            or not array.flags.c_contiguous
            or (array.base is not None and find_memory(array) is not None)
        ):
            return False
        view[...] = array
    return True


def _all_fit(places: Sequence[_ArrayPlace], arrays: object) -> bool:
    """Whether each output array is its place itself, or another one that matches it, in no pool, writable."""
    if type(arrays) not in (list, tuple) or len(arrays) != len(places):  # type: ignore[arg-type]
        return False
    for (view, dtype, shape), array in zip(places, arrays, strict=True):  # type: ignore[call-overload]
        if array is view:
            continue
        if (
            type(array) is not np.ndarray
            or array.dtype is not dtype
            or array.shape != shape
            or not array.flags.carray
            or (array.base is not None and find_memory(array) is not None)
        ):
            return False
    return not may_overlap(arrays)  # type: ignore[arg-type]


# -- binding arrays --------------------------------------------------------------------------------


class NotForBursts(InvalidArgument):
    """Raised when no burst can carry an argument: a buffer, or an array too far into its pool."""


def bind(
    core: BurstCore,
    inputs: Sequence[Array | None] | None,
    outputs: Sequence[Array | None] | None,
    *,
    measure: bool,
    output_bytes: Sequence[int | None] | None,
) -> RingRequest:
    """Bind a request; see `Burst.bind`."""
    core.check_open()
    core.prepared.session.check_open()  # arrays in pools can be bound without it, and never run
    given = inputs if inputs is not None else [None] * len(core.inputs)
    check_count("inputs", given, core.inputs)
    taken = outputs if outputs is not None else [None] * len(core.outputs)
    check_count("outputs", taken, core.outputs)
    refuse_buffers("inputs", given)
    refuse_buffers("outputs", taken)
    rooms = output_bytes if output_bytes is not None else [None] * len(core.outputs)
    check_count("output_bytes", rooms, core.outputs)
    rooms = [
        None if room is None else check_integer(f"output_bytes[{index}]", room, 1, UINT32_MAX)
        for index, room in enumerate(rooms)
    ]
    plan = Layout()
    spots = [
        *(
            _spot(plan, p, a, p.size) if inputs is None else None
            for p, a in zip(core.inputs, given, strict=True)
        ),
        *(
            _spot(plan, p, a, p.size or room or 0)
            for p, a, room in zip(core.outputs, taken, rooms, strict=True)
        ),
    ]
    return _bind(core, [*given, *taken], spots, plan.size, measure)


def bind_with_private(
    core: BurstCore,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array | None],
    sizes: Sequence[int],
    *,
    measure: bool,
    deadline_ns: int | None = None,
    allocate: Callable[[int], Memory] | None = None,
) -> RingRequest:
    """Bind with private memory for every array that lies in no pool; an input None stays omitted.

    Args:
        core: the core of the burst.
        inputs: as in `execute`; private copies get the same shapes.
        outputs: as in `execute`.
        sizes: bytes of each output.
        measure: whether to time each run.
        deadline_ns: as for `RingRequest`.
        allocate: returns the pool to use; a new pool unless given.
    """
    plan = Layout()
    spots: list[_Spot | None] = []
    arrays: list[Array | None] = []
    for array in inputs:
        private = array is not None and find_memory(array) is None
        arrays.append(None if private else array)
        shape = array.shape if array is not None else ()
        spots.append(
            _Spot(plan.place(array.nbytes), shape) if private and array is not None else None
        )
    for parameter, array, size in zip(core.outputs, outputs, sizes, strict=True):
        private = array is None or find_memory(array) is None
        arrays.append(None if private else array)
        spots.append(_spot(plan, parameter, None, size) if private else None)
    return _bind(core, arrays, spots, plan.size, measure, deadline_ns, allocate)


def _bind(
    core: BurstCore,
    given: Sequence[Array | None],
    spots: Sequence[_Spot | None],
    size: int,
    measure: bool,
    deadline_ns: int | None = None,
    allocate: Callable[[int], Memory] | None = None,
) -> RingRequest:
    """Make an array for each spot, all in one pool of `allocate`, and bind them with the given arrays.

    Raises:
        NotForBursts: an array begins beyond the offsets that a packet can hold.
    """
    parameters = (*core.inputs, *core.outputs)
    for parameter, array, spot in zip(parameters, given, spots, strict=True):
        found = find_memory(array) if isinstance(array, np.ndarray) else None
        offset = spot.offset if spot is not None else found[1] if found is not None else 0
        if offset > UINT32_MAX:
            raise NotForBursts(
                f"{parameter.name} begins at byte {offset} of its pool, expected at most {UINT32_MAX}"
                " for a burst"
            )
    memory = (allocate or core.prepared.session.allocate)(size) if size else None
    arrays = [
        array
        if spot is None or memory is None
        else memory.array(parameter.dtype, spot.shape, spot.offset)
        for parameter, array, spot in zip(parameters, given, spots, strict=True)
    ]
    split = len(core.inputs)
    timed = MeasureTiming.YES if measure else MeasureTiming.NO
    bound = RingRequest(core, arrays[:split], arrays[split:], timed, deadline_ns)
    core.add(bound)
    return bound


class _Spot(NamedTuple):
    """The place of a new array in a pool."""

    offset: int
    shape: tuple[int, ...]


def _spot(plan: Layout, parameter: Parameter, array: Array | None, size: int) -> _Spot | None:
    """Reserve `size` bytes for a parameter without an array; None if it has one."""
    if array is not None:
        return None
    if not size:
        raise InvalidArgument(
            f"{parameter.name} has no fixed shape: give bind an array (or output_bytes)"
        )
    is_declared = parameter.known and size == parameter.size
    shape = parameter.dimensions if is_declared else (size // parameter.dtype.itemsize,)
    return _Spot(plan.place(size), shape)


# -- arrays ----------------------------------------------------------------------------------------


#: Requests that stay bound, and the bytes of their private pools; fewer if their shapes are open.
_MOST: Final = 64
_MOST_OPEN: Final = 8
_MOST_BYTES: Final = 256 << 20


class ArrayExecutor:
    """Executes arrays by bound requests that it caches. One thread at a time.

    Attributes:
        executing: the gate that lets one thread in.
    """

    def __init__(self, core: BurstCore) -> None:
        """Execute over the burst of `core`."""
        self._core = core
        self._shapes = OpenShapes(core.inputs, core.outputs, core.prepared.session.allocate)
        self._remembered: Final[RequestCache[Hashable, RingRequest]] = RequestCache(
            _MOST_OPEN if self._shapes.is_open else _MOST, most_bytes=_MOST_BYTES
        )
        self._last: RingRequest | None = None
        self._last_request: LastRequest | None = None
        self.executing = Gate()

    def execute(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any] | None,
        measure: bool,
        timeout: float,
        copy: bool,
    ) -> ExecutionResult:
        """Execute once; see `Burst.execute`."""
        # A gate, since private inputs of a cached request are written before its run could find that another
        # thread is running it.
        executing, me = self.executing, next(entries)
        try:
            executing.enter(me)
            if self._last_request is not None and not measure:
                try:
                    result = self._last_request.execute(inputs, outputs, timeout, copy)
                    if result is not None:
                        return result
                except OutputInsufficientSize:
                    pass  # more is computed than is declared: `_execute` offers more room
            return self._execute(inputs, outputs, measure, check_timeout(timeout), copy)
        except BaseException as error:
            if self._shapes.is_open and not isinstance(error, InvalidArgument | BurstBusy):
                self._remembered.release(lambda _: True)
                self._last = self._last_request = None
                self._shapes.replace()
            raise
        finally:
            leave(executing.struct, me)

    def close(self) -> None:
        """Forget all requests."""
        self._remembered.close()
        self._last = None
        self._last_request = None

    def _execute(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any] | None,
        measure: bool,
        timeout: float,
        copy: bool,
    ) -> ExecutionResult:
        core = self._core
        core.check_open()
        check_count("inputs", inputs, core.inputs)
        if outputs is not None:
            check_count("outputs", outputs, core.outputs)
        deadline = time.monotonic() + timeout
        given = outputs if outputs is not None else (None,) * len(core.outputs)
        sizes: list[int] | None = None
        while True:
            try:
                bound = self._bound_for(inputs, given, sizes, measure, deadline)
            except NotForBursts:
                return execute_synchronously(
                    core.prepared, inputs, outputs, measure=measure, deadline=deadline
                )
            for mine, theirs in zip(bound.inputs, inputs, strict=True):
                if mine is not theirs and theirs is not None and not in_pool(theirs):
                    copy_elements(mine, theirs)
            try:
                result = bound.run(time_left(deadline))
            except OutputInsufficientSize as error:
                sizes = _grown(core.outputs, given, bound, error.output_shapes)
                if sizes is None:
                    raise
                self._shapes.grow(sizes)
                if time.monotonic() >= deadline:
                    raise MissedDeadline(
                        "timeout: no result of sufficient size came in time"
                    ) from error
                continue
            if not measure and not (self._last_request and self._last_request.is_of(bound)):
                self._last_request = LastRequest.of(core.outputs, bound, inputs, given)
            return _results(bound, given, result, copy)

    def _bound_for(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
        sizes: Sequence[int] | None,
        measure: bool,
        deadline: float,
    ) -> RingRequest:
        """The cached request for arrays of these types, shapes and places, or a new one.

        The key has everything that decides whether an array fits, so arrays whose key is cached need no
        check, but that none is given for two outputs.

        Raises:
            NotForBursts: the request must go over the socket; such requests are never cached.
        """
        last = self._last
        if last is not None and last._is_of(inputs, outputs, measure):
            return last
        key = (measure, tuple(map(_place, inputs)), tuple(map(_place, outputs)))
        is_new = sizes is not None or may_overlap(outputs)
        bound = None if is_new else self._remembered.find(key)
        if bound is None or bound.closed:
            if any(isinstance(array, Buffer) for array in (*inputs, *outputs)):
                raise NotForBursts("an argument is a buffer")
            for parameter, array in zip(self._core.inputs, inputs, strict=True):
                if array is not None:
                    parameter.check_input(array)
            if sizes is None:
                triples = zip(self._core.outputs, outputs, self._shapes.rooms, strict=True)
                sizes = [_room(*each) for each in triples]
                refuse_overlap(inputs, outputs)
            bound = bind_with_private(
                self._core,
                inputs,
                outputs,
                sizes,
                measure=measure,
                deadline_ns=int(deadline * 1e9),
                allocate=partial(self._shapes.memory, arrays=(*inputs, *outputs)),
            )
            arrays = (*bound.inputs, *bound.outputs)
            private = [
                mine.nbytes
                for mine, given in zip(arrays, (*inputs, *outputs), strict=True)
                if mine is not given
            ]
            self._remembered.add(key, bound, sum(private))
        self._last = bound
        return bound


def _room(parameter: Parameter, array: Array | None, room: int) -> int:
    """Bytes of private memory to offer for an output."""
    if array is not None:
        parameter.check_output(array)
        return array.nbytes
    return room


def _place(array: Array | None) -> Hashable:
    """An array's part of a request's key: its place, and all properties that a check looks at."""
    if array is None:
        return None
    if type(array) is not np.ndarray or not array.flags.c_contiguous:
        return object()  # equals no other key, so the array is checked
    found = None if array.base is None else find_memory(array)
    where = None if found is None else (found[0]._number, found[1])
    return (where, array.shape, array.dtype, array.flags.writeable)


def _grown(
    parameters: Sequence[Parameter],
    given: Sequence[Array | None],
    bound: RingRequest,
    shapes: Sequence[OutputShape],
) -> list[int] | None:
    """Larger sizes for outputs that the driver found too small; None if a repetition cannot help."""
    sizes = [array.nbytes for array in bound.outputs]
    before = list(sizes)
    for index, (parameter, array, shape) in enumerate(zip(parameters, given, shapes, strict=False)):
        if shape.is_sufficient:
            continue
        more = parameter.more_room(sizes[index], shape)
        if array is not None or more is None:
            return None
        sizes[index] = more
    return sizes if sizes != before else None


def _results(
    bound: RingRequest, given: Sequence[Array | None], result: ExecutionResult, copy: bool
) -> ExecutionResult:
    """The outputs, in the caller's arrays or in new ones."""
    arrays: list[Array] = []
    for mine, theirs, output in zip(bound.outputs, given, result.outputs, strict=True):
        if theirs is None:
            arrays.append(output.copy() if copy else output)
        elif theirs is mine:
            arrays.append(output)
        else:
            target = theirs if theirs.shape == output.shape else head(theirs, output.shape)
            if not in_pool(theirs):
                copy_elements(target, output)
            arrays.append(target)
    return ExecutionResult(arrays, result.output_shapes, result.timing)
