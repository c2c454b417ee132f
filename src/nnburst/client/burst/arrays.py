"""`Burst.execute`: numpy arrays to a remembered bound request and back.

Arrays in a pool of the device are part of the request itself; for the others the request has a private
pool, copied into before the run and out of after it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nnburst.client.burst.binding import bind_with_private
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.core import BurstCore
from nnburst.client.burst.last_request import LastRequest, in_pool
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.placed_request import execute_synchronously
from nnburst.client.memory.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    check_count,
    check_timeout,
    head,
)
from nnburst.client.memory.memory import find_memory
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.hal.errors import MissedDeadline, OutputInsufficientSize
from nnburst.hal.timing import OutputShape

#: Requests that stay bound, the ones used last.
_REMEMBERED: Final = 64


class _NotForBursts(Exception):
    """A request names buffers."""


class ArrayExecutor:
    """Executes arrays by requests that it remembers. One thread at a time.

    Attributes:
        executing: the thread that is inside.
    """

    def __init__(self, core: BurstCore) -> None:
        """Execute over the burst of `core`."""
        self._core = core
        self._remembered: OrderedDict[object, BoundRequest] = OrderedDict()
        self._last: BoundRequest | None = None
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
        # Private inputs of a remembered request are written before its run can find out that another
        # thread's run of it is under way.
        executing, me = self.executing, next(entries)
        try:
            executing.enter(me)
            if self._last_request is not None and not measure:
                result = self._last_request.execute(inputs, outputs, timeout, copy)
                if result is not None:
                    return result
            return self._execute(inputs, outputs, measure, check_timeout(timeout), copy)
        finally:
            leave(executing.struct, me)

    def close(self) -> None:
        """Forget all requests."""
        self._remembered.clear()
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
        began, left = time.monotonic(), timeout
        given = outputs if outputs is not None else (None,) * len(core.outputs)
        sizes: list[int] | None = None
        while True:
            try:
                bound = self._bound_for(inputs, given, sizes, measure)
            except _NotForBursts:
                return execute_synchronously(
                    core.prepared, inputs, outputs, measure=measure, deadline=began + timeout
                )
            for mine, theirs in zip(bound.inputs, inputs, strict=True):
                if mine is not theirs and theirs is not None and not in_pool(theirs):
                    mine[...] = theirs
            try:
                result = bound.run(left)
            except OutputInsufficientSize as error:
                sizes = _grown(core.outputs, given, bound, error.output_shapes)
                left = timeout - (time.monotonic() - began)
                if sizes is None:
                    raise
                if left <= 0:
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
    ) -> BoundRequest:
        """The request remembered for such arrays in these places, or a new one.

        Everything that decides whether an array fits is in the key, so arrays whose key is remembered
        need no check.

        Raises:
            _NotForBursts: one of them is a buffer, which is never remembered.
        """
        last = self._last
        if last is not None and last._is_of(inputs, outputs, measure):
            return last
        key = (measure, tuple(map(_place, inputs)), tuple(map(_place, outputs)))
        bound = self._recall(key) if sizes is None else None
        if bound is None:
            if any(isinstance(array, Buffer) for array in (*inputs, *outputs)):
                raise _NotForBursts
            for parameter, array in zip(self._core.inputs, inputs, strict=True):
                if array is not None:
                    parameter.check_input(array)
            if sizes is None:
                pairs = zip(self._core.outputs, outputs, strict=True)
                sizes = [_room(parameter, array) for parameter, array in pairs]
            bound = bind_with_private(self._core, inputs, outputs, sizes, measure=measure)
            self._remember(key, bound)
        self._last = bound
        return bound

    def _recall(self, key: object) -> BoundRequest | None:
        bound = self._remembered.get(key)
        if bound is not None:
            if bound.closed:
                del self._remembered[key]
                return None
            self._remembered.move_to_end(key)
        return bound

    def _remember(self, key: object, bound: BoundRequest) -> None:
        """Keep a request under `key`; the one used longest ago goes if there are many."""
        self._remembered[key] = bound
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)


def _room(parameter: Parameter, array: Array | None) -> int:
    """Bytes of private memory to offer for an output."""
    if array is not None:
        parameter.check_output(array)
        return array.nbytes
    return parameter.first_room


def _place(array: Array | None) -> object:
    """What a request depends on: where an array lies, and everything that its check looks at."""
    if array is None:
        return None
    if type(array) is not np.ndarray or not array.flags.c_contiguous:
        return object()  # equal to nothing: to be checked
    found = None if array.base is None else find_memory(array)
    where = None if found is None else (found[0]._number, found[1])
    return (where, array.shape, array.dtype, array.flags.writeable)


def _grown(
    parameters: Sequence[Parameter],
    given: Sequence[Array | None],
    bound: BoundRequest,
    shapes: Sequence[OutputShape],
) -> list[int] | None:
    """Larger rooms, if the driver asked for more; None if that cannot help."""
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
    bound: BoundRequest, given: Sequence[Array | None], result: ExecutionResult, copy: bool
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
                target[...] = output
            arrays.append(target)
    return ExecutionResult(arrays, result.output_shapes, result.timing)
