"""Keeps the client's state of a prepared model, and reuses requests that the driver has bound.

The driver binds a request over arrays of the same shapes once, and keeps its private pool mapped (ADR 25).
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    complete_shapes,
    in_shape,
    parameters,
    settle_truth,
)
from nnburst.client.memory import find_memory, may_overlap
from nnburst.client.request_cache import RequestCache
from nnburst.client.session.handshake import Session
from nnburst.client.session.own_bursts import PriorityNote
from nnburst.client.staging import PrivatePool, StagingPools
from nnburst.control.connection import Connection, RemoteObject
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
        """Use the views `inputs` and `outputs`; None for an argument in a pool of the caller, or omitted.

        Args:
            parameters: type and shape of each output; the model declares all shapes.
            inputs: views of the private pool, with dtype and shape of the callers' arrays.
            outputs: the same for outputs.
        """
        self._parameters = parameters
        self._staged = inputs
        self._outputs = outputs
        self._shapes: tuple[OutputShape, ...] | None = None
        self._complete: tuple[OutputShape, ...] = ()

    def stage(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs, which were checked before, to the private pool."""
        for staged, array in zip(self._staged, arrays, strict=True):
            if staged is not None:
                staged[...] = array

    def shapes(self, executed: Executed) -> tuple[OutputShape, ...]:
        """The shapes of all outputs.

        Raises:
            GeneralFailure: the driver reports an impossible shape.
        """
        reported = executed.output_shapes
        if reported != self._shapes:
            if reported and len(reported) != len(self._parameters):
                raise GeneralFailure(
                    f"the driver reports {len(reported)} shapes for {len(self._parameters)} outputs"
                )
            for parameter, shape in zip(self._parameters, reported, strict=False):
                parameter.shape_of(shape)  # raises if it differs from the model's
            self._complete = complete_shapes(self._parameters, reported)
            self._shapes = reported
        return self._complete

    def outputs(self, given: Sequence[Any], shapes: Sequence[OutputShape]) -> list[Any]:
        """Copy the outputs of these shapes to the given arrays or to new ones, and return them.

        Raises:
            GeneralFailure: the driver reports a shape that is too large for its output's memory.
        """
        found: list[Any] = []
        each = zip(self._parameters, self._outputs, given, shapes, strict=True)
        for parameter, view, array, shape in each:
            extents = parameter.shape_of(shape)
            staged = None if view is None else in_shape(parameter.name, view, extents)
            if array is None:
                found.append(None if staged is None else settle_truth(staged.copy()))
                continue
            target = in_shape(parameter.name, array, extents)
            if staged is not None:
                target[...] = staged
            found.append(settle_truth(target))
        return found


# -- requests that are bound already ---------------------------------------------------------------


#: Most requests of one model that the driver keeps bound.
_MOST: Final = 8
#: The number of executions on arrays of the same shapes after which the driver binds a request.
_BINDS_AT: Final = 2
#: Most bytes of a bound request's private pool; if more is copied, binding saves little.
LARGEST: Final = 256 * 1024
_NOT_MEASURED: Final = Timing()


class RememberedRequest:
    """One request that the driver has bound. One thread at a time."""

    __slots__ = ("measure", "private", "remote", "staged")

    def __init__(
        self, remote: RemoteObject, staged: StagedRequest, measure: bool, private: PrivatePool
    ) -> None:
        """Own `remote` and `private`."""
        self.remote = remote
        self.staged = staged
        self.measure = measure
        self.private = private

    def result(self, executed: Executed, outputs: Sequence[Any]) -> ExecutionResult:
        """The result of a run, with the outputs in the given arrays or in new ones."""
        shapes = self.staged.shapes(executed)
        timing = _in_microseconds(executed.timing) if self.measure else _NOT_MEASURED
        return ExecutionResult(self.staged.outputs(outputs, shapes), shapes, timing)


#: Requests of one prepared model, each for one thread at a time.
RememberedRequests: TypeAlias = RequestCache[Hashable, RememberedRequest]


def _release(request: RememberedRequest) -> None:
    """Free a request's pool, and tell the driver, with the next call, to release the request."""
    request.remote.release_later()
    request.private.release()


def request_key(inputs: object, outputs: object, measure: bool) -> Hashable | None:
    """The key of a request over arrays that lie in no pool; None for any other request, or an invalid one.

    The key has everything that decides whether an array fits, so arrays whose key is cached need no check.
    """
    if type(inputs) not in (list, tuple) or type(outputs) not in (list, tuple, type(None)):
        return None
    if may_overlap(outputs or ()):  # type: ignore[arg-type]
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
    """Convert a timing in nanoseconds to HIDL's microseconds, rounded up."""
    both = (timing.time_on_device, timing.time_in_driver)
    return Timing(*(value if value == NO_TIMING else -(-value // 1000) for value in both))


# -- prepared --------------------------------------------------------------------------------------


class Prepared:
    """The driver's handle of a prepared model, and the client's state of it. Thread-safe.

    Attributes:
        session: the session with the driver.
        model: the model that was prepared.
        preference: as given to `Device.prepare`.
        inputs: type and shape of each input.
        outputs: type and shape of each output.
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
            session: the session with the driver that prepared it.
            handle: the driver's number for it.
            model: the model that was prepared.
            preference: as given to `Device.prepare`.
            note: the note of its priority, kept until it is closed; unless given, one of unknown priority.
        """
        self.session = session
        self.model = model
        self.preference = preference
        self.inputs, self.outputs = parameters(model, session.supported_extensions)
        self.staging = StagingPools(session.allocate)
        self._handle = handle
        self._closed = False
        #: The executions under way, and bursts. It is changed and read in single steps, without a lock.
        self._users: set[object] = set()
        self._is_released = False
        self._note: PriorityNote | None = note or session.own_bursts.note_priority(None)
        self._connection = session.connection
        self.remembered: RememberedRequests = RequestCache(_MOST, bind_at=_BINDS_AT, end=_release)
        self._finalizer = weakref.finalize(
            self, _abandon, self._connection, handle, self.staging, self.remembered
        )

    @property
    def handle(self) -> int:
        """The driver's number for the model.

        Raises:
            Closed: the model was released.
        """
        if self._closed:
            raise Closed("the prepared model is released")
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def hold(self, user: object, within: object = None) -> int:
        """Begin a use; returns the driver's number for the model, which stays valid until `release`.

        Args:
            user: any object of this execution or burst. The caller releases it even if this raises: a signal
                handler may do that at any time.
            within: a user; while it holds the model, `close` does not matter.

        Raises:
            Closed: the model was released.
        """
        self._users.add(user)
        return self._handle if within in self._users else self.handle

    def release(self, user: object) -> None:
        """End a use; after `close`, the last one releases the model in the driver. Twice is fine."""
        self._users.discard(user)
        if self._is_unused():
            self._connection.post(Release(self._handle))
            self._finalizer.detach()

    def _is_unused(self) -> bool:
        """Whether the model is closed and nothing uses it; only the first such query returns True."""
        # Without a call, so that neither a signal handler nor another thread comes between.
        if self._closed and not self._users and not self._is_released:
            self._is_released = True
            return True
        return False

    def close(self) -> None:
        """Release the model; whatever holds it goes on. Twice is fine, and so is a dead driver."""
        self._closed = True
        self._note = None
        self.remembered.close()
        self.staging.close()
        if self._is_unused():  # if not, the last user releases it
            self._connection.release(self._handle)
            self._finalizer.detach()  # last: if a signal handler raises before, it does the rest


def _abandon(
    connection: Connection, handle: int, staging: StagingPools, remembered: RememberedRequests
) -> None:
    """Release a model that was never closed; the driver is told with the next call."""
    remembered.close()
    staging.close()
    connection.release_later(handle)
