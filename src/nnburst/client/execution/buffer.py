"""Keeps tensors in the driver, as arguments of executions over the socket.

    state = device.allocate_buffer(inputs=[(prepared, 1)], outputs=[(prepared, 0)])
    state.copy_from(start)
    prepared.execute([x, state], [other])      # nothing of it crosses the process boundary
    state.close()

NNAPI: IBuffer, ANeuralNetworksMemory_createFromDesc. Bursts cannot carry buffers: `Burst.execute` sends such
a request over the socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np

from nnburst.client.arguments import Array, Parameter, check_timeout, settle_truth
from nnburst.client.memory import Memory, find_memory
from nnburst.client.session.handshake import Session
from nnburst.control.channel import Fds
from nnburst.control.connection import RemoteObject
from nnburst.control.messages import CopyFrom, CopyTo, Nothing
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import (
    Closed,
    GeneralFailure,
    InvalidArgument,
)
from nnburst.hal.model import SCALARS, Operand
from nnburst.hal.utils import Closing
from nnburst.hal.whole_graph import array_dtype


class Buffer(Closing):
    """Memory that the driver keeps. Made by `Device.allocate_buffer`. A context manager that closes itself.

    Thread-safe, but two executions that use it at once race in the driver, and its content is undefined
    afterwards, as for any memory.
    """

    def __init__(
        self, session: Session, token: int, remote: RemoteObject, operand: Operand
    ) -> None:
        """Use `Device.allocate_buffer`."""
        self._session = session
        kind = OperandType(operand.type)
        self._parameter: Final = Parameter(
            "array", kind, array_dtype(kind), operand.dimensions, kind in SCALARS
        )
        self._token: Final = token
        self._remote: Final = remote
        self._closed = False
        self._dimensions = operand.dimensions

    def _check_session(self, session: Session, name: str) -> None:
        """Refuse a buffer of another device: drivers share no buffers.

        Args:
            session: the session of the device that is to use the buffer.
            name: the argument's name, for the message.

        Raises:
            InvalidArgument: the buffer was allocated on another device.
        """
        if self._session is not session:
            raise InvalidArgument(
                f"{name} lies in a buffer of device {self._session.name} (pid {self._session.pid}),"
                f" expected one of {session.name} (pid {session.pid})"
            )

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Dimensions of its content, or, while it is empty, those of its allocation; 0 is unknown."""
        return self._dimensions

    @property
    def _open_handle(self) -> int:
        """The driver's number for the buffer.

        Raises:
            Closed: the buffer was closed.
        """
        if self._closed:
            raise Closed("the buffer is closed")
        return self._remote.number

    def _input_extents(self, parameter: Parameter) -> tuple[int, ...]:
        """The dimensions that a request states for an input that is this buffer.

        Raises:
            GeneralFailure: they depend on the content, and the buffer is empty.
            Closed: the buffer was closed.
        """
        self._open_handle  # noqa: B018 - checks that the buffer is open
        if parameter.known:
            return ()
        if not self._is_known:
            raise GeneralFailure(f"{parameter.name} is a Buffer that holds nothing")
        return self._dimensions

    def _holds(self, dimensions: tuple[int, ...] | None) -> None:
        """Note the dimensions that an execution has written; None if the execution has failed."""
        self._dimensions = self._parameter.dimensions if dimensions is None else dimensions

    def copy_from(self, array: Array, *, timeout: float = 30.0) -> None:
        """Fill the buffer (NNAPI: IBuffer::copyFrom). If that fails, the buffer is empty.

        Args:
            array: of the buffer's dtype; its shape becomes the content's. It is used in place if it lies at
                the beginning of a pool, else copied once more.
            timeout: seconds that the driver has to answer.

        Raises:
            InvalidArgument: the array does not fit; nothing was sent.
            MissedDeadline, DeadObject, Closed: see these classes.
        """
        seconds = check_timeout(timeout)
        handle = self._open_handle
        source = self._parameter.check_input(array)
        dimensions = self._parameter.extents(source)
        self._dimensions = self._parameter.dimensions
        with _Shared(self._session, source) as shared:
            shared.fill()
            message = CopyFrom(handle, source.nbytes, dimensions)
            shared.call(message, seconds)
        self._holds(source.shape)

    def copy_to(self, array: Array | None = None, *, timeout: float = 30.0) -> Array:
        """Copy the content to an array (NNAPI: IBuffer::copyTo).

        Args:
            array: the target, of the buffer's dtype and the content's shape; a new array unless given.
            timeout: seconds that the driver has to answer.

        Returns:
            The array.

        Raises:
            InvalidArgument: the array does not fit.
            GeneralFailure: the buffer is empty.
            MissedDeadline, DeadObject, Closed: see these classes.
        """
        seconds = check_timeout(timeout)
        handle = self._open_handle
        if array is None:
            array = self._new_array()
        target = self._parameter.check_output(array)
        if self._is_known and target.shape != self._dimensions:
            raise InvalidArgument(
                f"array has shape {target.shape}, the buffer holds {self._dimensions}"
            )
        with _Shared(self._session, target) as shared:
            shared.call(CopyTo(handle, target.nbytes), seconds)
            shared.fetch()
        return settle_truth(array)

    @property
    def _is_known(self) -> bool:
        return self._parameter.scalar or (bool(self._dimensions) and 0 not in self._dimensions)

    def _new_array(self) -> Array:
        if not self._is_known:
            raise GeneralFailure("the buffer holds nothing, and its shape is unknown")
        return np.empty(self._dimensions, self._parameter.dtype)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Release the buffer; executions under way finish first. Twice is fine, and so is a dead driver."""
        self._closed = True
        self._remote.release()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<nnburst.Buffer {self._token}: {list(self._dimensions)}, {state}>"


class _Shared:
    """Shared memory that begins with an array's bytes: the array's own pool, or a temporary one."""

    def __init__(self, session: Session, array: Array) -> None:
        found = find_memory(array)
        own = found is not None and found[1] == 0
        self._array = array
        self._own = own
        self._session = session
        self._memory: Memory = (
            found[0] if found is not None and own else session.allocate(array.nbytes)
        )

    def fill(self) -> None:
        if not self._own:
            self._view()[...] = self._array

    def fetch(self) -> None:
        if not self._own:
            self._array[...] = self._view()

    def _view(self) -> Array:
        return self._memory.array(self._array.dtype, self._array.shape)

    def call(self, message: CopyTo | CopyFrom, seconds: float) -> None:
        with Fds.duplicates([self._memory]) as fds:
            self._session.connection.call(message, Nothing, list(fds), timeout=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._own:
            self._memory.close()


def refuse_buffers(kind: str, values: Sequence[object]) -> None:
    """Refuse buffers as arguments of calls that cannot carry them.

    Raises:
        InvalidArgument: one of the arguments is a buffer.
    """
    for index, value in enumerate(values):
        if isinstance(value, Buffer):
            raise InvalidArgument(
                f"{kind}[{index}] is a Buffer, which no burst can carry: Burst.execute and"
                " PreparedModel.execute send it over the socket"
            )


def parameter_of(buffer: Buffer) -> Parameter:
    """The type and shape that a buffer was allocated for, as those of an input or output."""
    return buffer._parameter


def token_of(buffer: Buffer) -> int:
    """The number by which requests name a buffer to its driver."""
    return buffer._token


def handle_of(buffer: Buffer) -> int:
    """The number by which messages name a buffer to its driver."""
    return buffer._remote.number
