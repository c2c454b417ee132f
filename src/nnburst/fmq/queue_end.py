"""Opens the ends of a queue, converts objects to elements, and turns outcomes in C into errors.

csrc/queue_python.c has the class `QueueEnd`. Its methods return True, False or the elements that were read;
for every other outcome they call `Rules.raise_for`, and for every object that is not an array of the queue's
dtype `Rules.elements`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NoReturn

from nnburst import _native
from nnburst._native import lib
from nnburst.fmq.cores import cpu_quota
from nnburst.hal import late_numpy as np
from nnburst.hal.errors import (
    BadState,
    Closed,
    DeadObject,
    InvalidArgument,
    NnburstError,
    QueueCorrupted,
    ResourceExhausted,
)
from nnburst.hal.model import refuse_masked
from nnburst.hal.utils import is_number

if TYPE_CHECKING:
    import numpy.typing as npt

    from nnburst._native import QueueEnd

if lib.nnb_queue_add_types() != 0:
    raise ImportError("cannot add the class QueueEnd to nnburst._native")

#: Seconds of spinning before a sleep, if no rhythm is known.
SPIN_WINDOW: Final = 200e-6
_LONGEST_WINDOW: Final = 1.0


def open_end(
    rules: Rules,
    *,
    ring: int,
    flag: int,
    words: int,
    quantum: int,
    spin_window: float,
    keep: object,
) -> QueueEnd:
    """Open one end of a queue.

    Args:
        rules: the rules of the end: writer or reader, and the type of elements.
        ring: address of the `struct nnb_ring`.
        flag: address of the event flag's word; 0 for none.
        words: address of the words of both ends; 0 for none.
        quantum: bytes of an element.
        spin_window: seconds to spin before a sleep.
        keep: the objects that own the memory at these addresses.

    Raises:
        BadState: this or another process has this end.
        Closed: the process with this end has closed it.
        DeadObject: the process with this end has died.
    """
    quota_allows = cpu_quota() >= 2
    window_ns = int(spin_window * 1e9)
    return _native.QueueEnd(
        ring,
        flag,
        words,
        rules.writes,
        quota_allows,
        window_ns,
        quantum,
        keep,
        np.ndarray,
        np.empty,
        rules.dtype,
        rules.elements,
        rules.raise_for,
    )


def checked_spin_window(spin_window: float) -> float:
    """Check a spin window in seconds, and return it.

    Raises:
        InvalidArgument: it is not from 0 to 1.
    """
    if not is_number(spin_window) or not 0 <= spin_window <= _LONGEST_WINDOW:
        raise InvalidArgument(f"spin_window is {spin_window!r}, expected 0 to 1 second")
    return float(spin_window)


def _is_raw(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype gives its elements a size and no meaning: not a record, or a type of an extension."""
    return dtype.type is np.void and dtype.names is None


class Rules:
    """Converts objects to elements for one end, and its outcomes to errors.

    Attributes:
        dtype: dtype of an element; for messages of `bytes`, one without a size.
        writes: whether it is the writer's end.
    """

    __slots__ = ("_owner", "_unwaitable", "dtype", "writes")

    def __init__(self, dtype: np.dtype[Any], *, writes: bool, unwaitable: str) -> None:
        self.dtype = dtype
        self.writes = writes
        self._unwaitable = unwaitable
        self._owner = os.getpid()

    def elements(self, found: object, writable: bool) -> npt.NDArray[np.uint8]:
        """Convert an object to the contiguous bytes of whole elements.

        Args:
            found: an array of this dtype, or a buffer of whole elements.
            writable: whether the array itself will be written.

        Raises:
            InvalidArgument: it is neither, or it will be written and is not contiguous.
        """
        refuse_masked("elements", found)
        is_array = isinstance(found, np.ndarray) and self.dtype.itemsize != 0
        array = self._array(found, writable) if is_array else self._buffer(found)
        if writable and not array.flags.writeable:
            raise InvalidArgument(
                "array: its memory is read-only, expected one that can be written"
            )
        return array

    def memory_of(self, array: object) -> npt.NDArray[np.uint8]:
        """The bytes of an array that is sent or received repeatedly, and so must be contiguous itself.

        Raises:
            InvalidArgument: as for `elements`; or the queue has messages of any length.
        """
        if not self.dtype.itemsize:
            raise InvalidArgument("the queue has messages of any length: use send and receive")
        if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
            raise InvalidArgument("array has gaps, expected a contiguous one")
        return self.elements(array, not self.writes)

    def _array(self, found: Any, writable: bool) -> npt.NDArray[np.uint8]:  # noqa: ANN401 - an array
        same = found.dtype == self.dtype
        if not same and (_is_raw(found.dtype) or _is_raw(self.dtype)):
            same = found.dtype.itemsize == self.dtype.itemsize
        if not same:
            raise InvalidArgument(f"elements have dtype {found.dtype}, expected {self.dtype}")
        if writable and not found.flags.c_contiguous:
            raise InvalidArgument("array has gaps, expected a contiguous one")
        flat = np.ascontiguousarray(found).reshape(-1)
        return flat.view(np.uint8) if flat.dtype.itemsize else flat.astype(np.uint8)

    def _buffer(self, found: object) -> npt.NDArray[np.uint8]:
        kind, size = type(found).__name__, self.dtype.itemsize
        try:
            data: npt.NDArray[np.uint8] = np.frombuffer(found, np.uint8)  # type: ignore[call-overload]
        except (TypeError, ValueError, BufferError) as error:
            wanted = f"an array of {self.dtype} or a contiguous buffer of whole elements"
            wanted = wanted if size else "bytes or a contiguous buffer"
            raise InvalidArgument(f"elements are of type {kind}, expected {wanted}") from error
        if size and len(data) % size:
            raise InvalidArgument(f"elements have {len(data)} bytes, not a multiple of {size}")
        return data

    def raise_for(self, end: QueueEnd, status: int, argument: object) -> NoReturn:
        """Raise the error of `status` (`enum nnb_end_status`)."""
        raise self._error(end, status, argument)

    def _error(self, end: QueueEnd, status: int, argument: object) -> NnburstError:
        mine, other = ("writer", "reader") if self.writes else ("reader", "writer")
        if status == lib.NNB_END_CLOSED:
            return self._closed()
        if status == lib.NNB_END_BAD_TIMEOUT:
            return InvalidArgument(
                f"timeout is {argument!r}, expected a finite number of seconds, at least 0"
            )
        if status == lib.NNB_END_BAD_COUNT:
            return InvalidArgument(
                f"count is {argument!r}, expected an integer from 0 to 2**64 - 1"
            )
        if status == lib.NNB_RING_TOO_LARGE:
            size = self._buffer(argument).size
            return InvalidArgument(
                f"a message of {size} bytes and the 4 bytes of its length do not fit the queue"
            )
        if status == lib.NNB_END_UNWAITABLE:
            # Several readers share one flag: each could consume the wake of another.
            return InvalidArgument(self._unwaitable)
        if status == lib.NNB_END_FAILED:
            text = os.strerror(end.statistics()[-1])
            return ResourceExhausted(f"the system refuses what an end of the queue needs: {text}")
        rest = "" if self.writes else ", and fewer elements are left than asked for"
        kinds: dict[int, tuple[type[NnburstError], str]] = {
            lib.NNB_RING_CORRUPT: (
                QueueCorrupted,
                "the peer's counter contradicts the queue's size",
            ),
            lib.NNB_END_MALFORMED: (QueueCorrupted, "no message begins where one should"),
            lib.NNB_END_PEER_CLOSED: (Closed, f"the {other} has closed its end{rest}"),
            lib.NNB_END_PEER_DIED: (DeadObject, f"the {other}'s process has died{rest}"),
            lib.NNB_END_BUSY: (BadState, f"another thread is using this {mine}"),
            lib.NNB_END_UNCLAIMED: (
                BadState,
                f"not claimed: fewer elements are, or this {mine} has moved on since",
            ),
            lib.NNB_END_TAKEN: (BadState, f"the queue has a {mine} already: one at a time"),
            lib.NNB_END_WAS_CLOSED: (Closed, f"the queue's {mine} was closed"),
            lib.NNB_END_WAS_DEAD: (DeadObject, f"the process of the queue's {mine} has died"),
            lib.NNB_END_BAD_SIZE: (
                InvalidArgument,
                f"memory is not a whole number of elements of {self.dtype.itemsize} bytes",
            ),
        }
        kind, text = kinds[status]
        return kind(text)

    def _closed(self) -> Closed:
        if os.getpid() != self._owner:
            return Closed(f"the queue is not mapped here: process {self._owner} forked")
        return Closed("the queue is closed")
