"""Holds what executions need of a prepared model, and reuses requests that were bound before.

Requests over the same shapes: bound once by the driver, which their private pools stay with (ADR 25).
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    complete_shapes,
    parameters,
    settle_truth,
)
from nnburst.client.memory import find_memory
from nnburst.client.request_cache import RequestCache
from nnburst.client.session.handshake import Session
from nnburst.client.session.own_bursts import PriorityNote
from nnburst.client.staging import PrivatePool, StagingPools
from nnburst.control.connection import Connection
from nnburst.control.messages import Executed, Release
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.errors import Closed, GeneralFailure
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.model import Model
from nnburst.hal.types import OutputShape, Timing

# -- staged requests -------------------------------------------------------------------------------


class StagedRequest:
    """Copies arrays to and from the private pool of one request. One thread at a time."""

    __slots__ = ("_complete", "_outputs", "_parameters", "_shapes", "_staged")

    def __init__(
        self,
        parameters: Sequence[Parameter],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
    ) -> None:
        """Copy to `inputs` and from `outputs`; None for what lies in a pool of the caller's, or is omitted.

        Args:
            parameters: of the outputs, whose shapes the model declares.
            inputs: views of the private pool, as their arrays are.
            outputs: likewise.
        """
        self._parameters = parameters
        self._staged = inputs
        self._outputs = outputs
        self._shapes: tuple[OutputShape, ...] | None = None
        self._complete: tuple[OutputShape, ...] = ()

    def stage(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs, which fit."""
        for staged, array in zip(self._staged, arrays, strict=True):
            if staged is not None:
                staged[...] = array

    def shapes(self, executed: Executed) -> tuple[OutputShape, ...]:
        """The shapes of all outputs.

        Raises:
            GeneralFailure: the driver reports what cannot be.
        """
        reported = executed.output_shapes
        if reported != self._shapes:
            if reported and len(reported) != len(self._parameters):
                raise GeneralFailure(
                    f"the driver reports {len(reported)} shapes for {len(self._parameters)} outputs"
                )
            for parameter, shape in zip(self._parameters, reported, strict=False):
                parameter.shape_of(shape)  # what the model declares, or it raises
            self._complete = complete_shapes(self._parameters, reported)
            self._shapes = reported
        return self._complete

    def outputs(self, given: Sequence[Any]) -> list[Any]:
        """The outputs where they belong: in the given arrays, or in new ones."""
        found: list[Any] = []
        for staged, array in zip(self._outputs, given, strict=True):
            if array is None:
                array = None if staged is None else settle_truth(staged.copy())
            else:
                if staged is not None:
                    array[...] = staged
                settle_truth(array)
            found.append(array)
        return found


# -- requests that are bound already ---------------------------------------------------------------


#: Requests of one model that the driver keeps bound.
_MOST: Final = 8
#: The execution on arrays of the same shapes that has them bound.
_BINDS_AT: Final = 2
#: Bytes of a private pool; if more is copied, being bound saves little.
LARGEST: Final = 256 * 1024
_NOT_MEASURED: Final = Timing()


class RememberedRequest:
    """One request that the driver has bound. One thread at a time."""

    __slots__ = ("handle", "measure", "private", "staged")

    def __init__(
        self, handle: int, staged: StagedRequest, measure: bool, private: PrivatePool
    ) -> None:
        """Own `handle` and `private`."""
        self.handle = handle
        self.staged = staged
        self.measure = measure
        self.private = private

    def result(self, executed: Executed, outputs: Sequence[Any]) -> ExecutionResult:
        """The result of a run, with the outputs in the given arrays or in new ones."""
        shapes = self.staged.shapes(executed)
        timing = _in_microseconds(executed.timing) if self.measure else _NOT_MEASURED
        return ExecutionResult(self.staged.outputs(outputs), shapes, timing)


#: Requests of one prepared model, each for one thread at a time.
RememberedRequests: TypeAlias = RequestCache[Hashable, RememberedRequest]


def _release(connection: Connection, request: RememberedRequest) -> None:
    """Let the driver forget a request; its pool is free. Takes no call."""
    connection.release_later(request.handle)
    request.private.release()


def request_key(inputs: object, outputs: object, measure: bool) -> Hashable | None:
    """The key of a request over private arrays: all that it depends on. None for any other request.

    Everything that decides whether an array fits is in the key, so arrays whose key is remembered need no
    check.
    """
    if type(inputs) not in (list, tuple) or type(outputs) not in (list, tuple, type(None)):
        return None
    key: list[object] = [bool(measure)]
    for array in (*inputs, len(inputs), *(outputs or ())):  # type: ignore[misc, arg-type]
        if type(array) is np.ndarray:
            flags = array.flags
            if not flags.c_contiguous or (array.base is not None and find_memory(array)):
                return None
            key.append((array.shape, array.dtype, flags.writeable))
        elif array is None or type(array) is int:
            key.append(array)
        else:
            return None
    return tuple(key)


def _in_microseconds(timing: Timing) -> Timing:
    """Nanoseconds as HIDL's ways to execute have them: microseconds, rounded up."""
    both = (timing.time_on_device, timing.time_in_driver)
    return Timing(*(value if value == NO_TIMING else -(-value // 1000) for value in both))


# -- prepared --------------------------------------------------------------------------------------


class Prepared:
    """The driver's handle of a prepared model, and what a client remembers of it. Thread-safe.

    Attributes:
        session: of the driver.
        model: as it was given.
        preference: as it was given.
        inputs: what each input must look like.
        outputs: what each output must look like.
        staging: private pools for arrays that lie in no pool.
        remembered: requests that the driver keeps bound.
    """

    def __init__(
        self,
        session: Session,
        handle: int,
        model: Model,
        preference: ExecutionPreference,
        note: PriorityNote | None = None,
    ) -> None:
        """Own `handle` from here on.

        Args:
            session: of the driver that prepared it.
            handle: the driver's number for it.
            model: what was prepared.
            preference: as given to `Device.prepare`.
            note: of its priority, kept until it is closed; noted here as an unknown one unless given.
        """
        self.session = session
        self.model = model
        self.preference = preference
        self.inputs, self.outputs = parameters(model, session.supported_extensions)
        self.staging = StagingPools(session.allocate)
        self._handle = handle
        self._closed = False
        self._lock = threading.Lock()
        self._pending = 0
        self._note: PriorityNote | None = note or session.own_bursts.note_priority(None)
        self._connection = session.connection
        self.remembered: RememberedRequests = RequestCache(
            _MOST, bind_at=_BINDS_AT, end=partial(_release, self._connection)
        )
        self._finalizer = weakref.finalize(
            self, _abandon, self._connection, handle, self.staging, self.remembered
        )

    @property
    def handle(self) -> int:
        """The driver's number for it.

        Raises:
            Closed: it was released.
        """
        if self._closed:
            raise Closed("the prepared model is released")
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def hold(self) -> int:
        """The driver's number for it, which stays valid until `release`.

        Raises:
            Closed: it was released.
        """
        with self._lock:
            handle = self.handle
            self._pending += 1
        return handle

    def release(self) -> None:
        """An execution under way has ended; after `close` the last one releases the model."""
        with self._lock:
            self._pending -= 1
            last = self._closed and not self._pending
        if last:
            self._connection.post(Release(self._handle))

    def close(self) -> None:
        """Release it; executions under way go on. Twice is fine, and so is a dead driver."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._note = None
            busy = self._pending > 0
        self._finalizer.detach()
        self.remembered.close()
        self.staging.close()
        if busy:
            return  # the last one releases it
        with contextlib.suppress(Closed):  # the device is closed, and with it all that it had
            self.session.connection.release(self._handle)


def _abandon(
    connection: Connection, handle: int, staging: StagingPools, remembered: RememberedRequests
) -> None:
    """Release what was never closed: the driver gets the word with the next call."""
    remembered.close()
    staging.close()
    connection.release_later(handle)
