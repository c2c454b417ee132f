"""Manages the buffers of a driver: their memory, tokens and roles, and whether they are initialised.

    uninitialised ── copyFrom, or a successful execution that writes it ──► initialised
          ▲                                                                      │
          └───── failed copyFrom, or a failed execution that was to write it ────┘

NNAPI: IBuffer, IDevice::allocate, BufferTracker.cpp, CanonicalBuffer.cpp. DEVIATES: there a failed execution
leaves a buffer initialised, against the HAL's text; and a buffer whose size is not known when it is allocated
is refused there, while here it gets its memory with its first content.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections.abc import Callable
from typing import ClassVar, Final

from nnburst.control.channel import MAX_BUFFERS
from nnburst.control.service import ObjectTable, Reference
from nnburst.driver.confinement import SHARED_BYTES
from nnburst.executor.base import DeviceMemory
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import Closed, GeneralFailure, InvalidArgument, ResourceExhausted
from nnburst.hal.limits import MAX_RANK, UINT32_MAX
from nnburst.hal.model import ELEMENT_BYTES, SCALARS, Operand, is_extension
from nnburst.hal.validation.request import combine_dimensions
from nnburst.hal.validation.values import Broken

Shape = tuple[int, ...]
#: A use of a buffer: the prepared model, "input" or "output", and the index.
Role = tuple["weakref.ref[object]", str, int]
#: memoryview offered for an output of unknown size.
_FIRST_GUESS: Final = 64 * 1024
_LAST_GUESS: Final = 1 << 30


class Room:
    """Memory of the driver for one content of a buffer. Zeroed when it is made; freed with its last view.

    Attributes:
        nbytes: its size.
    """

    def __init__(self, size: int) -> None:
        """Map `size` bytes and a page behind them, since engines may read beyond the end.

        Raises:
            ResourceExhausted: too little memory is left.
        """
        self._charge = SHARED_BYTES.charge(size)
        self.nbytes: Final = size
        try:
            owner = mmap.mmap(-1, size + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise ResourceExhausted(f"no memory for a buffer of {size} bytes: {error}") from error
        self._writable: Final = memoryview(owner)[:size]
        self._readable: Final = self._writable.toreadonly()

    def input(self, size: int | None) -> memoryview:
        """The first bytes for an execution that reads them."""
        return self._readable[:size]

    def output(self, size: int | None) -> memoryview:
        """The first bytes, all unless `size` is given, for an execution that writes them."""
        return self._writable[:size]

    def copy_in(self, source: memoryview) -> None:
        """Fill the first bytes."""
        self._writable[: source.nbytes] = source

    def copy_out(self, target: memoryview) -> None:
        """Copy the first bytes out."""
        target[:] = self._readable[: target.nbytes]


class DeviceRoom:
    """Memory of the device for one content of a buffer.

    Attributes:
        nbytes: its size.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        """Own `memory`.

        Raises:
            ResourceExhausted: the client has as much memory as it may have.
        """
        self._charge = SHARED_BYTES.charge(memory.nbytes)
        self.nbytes: Final = memory.nbytes
        self._memory = memory

    def input(self, _size: int | None) -> DeviceMemory:
        """The memory, for an execution that reads it."""
        return self._memory

    def output(self, _size: int | None) -> DeviceMemory:
        """The memory, for an execution that writes it."""
        return self._memory

    def copy_in(self, source: memoryview) -> None:
        """Fill the first bytes; passes on the executor's exceptions."""
        self._memory.copy_in(source)

    def copy_out(self, target: memoryview) -> None:
        """Copy the first bytes out; passes on the executor's exceptions."""
        self._memory.copy_out(target)


class DeviceBuffer:
    """One buffer. Thread-safe except for its bytes: two executions that use it at once race.

    Attributes:
        token: names it in requests.
        dimensions: as allocated; 0 if they are left open, empty for scalars and open ranks.
    """

    per_client: ClassVar = MAX_BUFFERS

    def __init__(
        self,
        token: int,
        operand: Operand,
        roles: frozenset[Role],
        forget: Callable[[], None],
        allocate: Callable[[Shape, int], DeviceMemory | None] = lambda _dimensions, _size: None,
    ) -> None:
        """Allocate the buffer.

        Args:
            token: the number that names it in requests.
            operand: type and dimensions, as from `validate_memory_desc`.
            roles: the uses that are allowed.
            forget: called once when it is closed.
            allocate: allocates memory of the device, given dimensions and bytes of a content; returns None if
                the driver's memory is to be used.

        Raises:
            GeneralFailure: the elements of the type have no size.
            ResourceExhausted: too little memory is left.
        """
        known = not is_extension(operand.type)
        element_bytes = ELEMENT_BYTES.get(OperandType(operand.type)) if known else None
        if element_bytes is None:
            raise GeneralFailure(
                f"buffers hold operands of core types only, not of type {operand.type}"
            )
        self.token: Final = token
        self.dimensions: Final = operand.dimensions
        self._element_bytes: Final = element_bytes
        self._is_scalar: Final = operand.type in SCALARS
        self._roles = roles
        self._forget = forget
        self._allocate = allocate
        self._lock = threading.Lock()
        self._initialised = False
        self._content: Shape = operand.dimensions  # of what it holds, or may hold
        self._content_bytes: int | None = self.size_of(self.dimensions)
        size = self._content_bytes
        self._room = None if size is None else self._make_room(self.dimensions, size)

    def _make_room(self, dimensions: Shape, size: int) -> Room | DeviceRoom:
        memory = self._allocate(dimensions, size)
        return Room(size) if memory is None else DeviceRoom(memory)

    def size_of(self, dimensions: Shape) -> int | None:
        """Bytes of a content with these dimensions; None if they are not all known."""
        if self._is_scalar:
            return self._element_bytes
        if not dimensions or 0 in dimensions:
            return None
        return self._element_bytes * math.prod(dimensions)

    def check_role(self, model: object, kind: str, index: int) -> None:
        """Refuse a use that was not declared at the allocation.

        Raises:
            InvalidArgument: device:§6.
        """
        if (weakref.ref(model), kind, index) not in self._roles:
            raise InvalidArgument(
                f"device:E6: {kind} {index}: buffer {self.token} was not allocated for this use"
            )

    def content(self, dimensions: Shape) -> memoryview | DeviceMemory:
        """Its content, read-only, for an input of these dimensions.

        Raises:
            GeneralFailure: the buffer is uninitialised.
            InvalidArgument: its content has other dimensions.
        """
        with self._lock:
            if not self._initialised or self._room is None:
                raise GeneralFailure(f"device:E6: buffer {self.token} is not initialised")
            self._combine(self._content, dimensions)
            return self._room.input(self._content_bytes)

    def check_output(self, dimensions: Shape) -> Shape:
        """Combine the dimensions of an output with those of the buffer, as far as either is known.

        Raises:
            InvalidArgument: they contradict each other.
        """
        return self._combine(self.dimensions, dimensions)

    def space(self, dimensions: Shape) -> memoryview | DeviceMemory:
        """Memory to write an output of these dimensions to; the whole buffer if they are not all known.

        The buffer is uninitialised from here until `fill`.

        Raises:
            ResourceExhausted: too little memory is left.
        """
        size = self.size_of(dimensions)
        with self._lock:
            self._clear()
            if size is not None and (self._room is None or self._room.nbytes < size):
                self._room = self._make_room(dimensions, size)
            if self._room is None:
                return memoryview(bytearray())
            return self._room.output(size)

    def grow(self, needed: Shape) -> bool:
        """Make room for an output that did not fit; False if the buffer's size is fixed.

        Args:
            needed: the output's dimensions as far as the execution has determined them.

        Raises:
            ResourceExhausted: too little memory is left.
        """
        if self.size_of(self.dimensions) is not None:
            return False
        with self._lock:
            have = 0 if self._room is None else self._room.nbytes
            wanted = self.size_of(needed) or min(max(_FIRST_GUESS, 2 * have), _LAST_GUESS)
            if wanted <= have:
                return False
            self._room = self._make_room(needed, wanted)
        return True

    def fill(self, dimensions: Shape) -> None:
        """Note that an execution has written a content of these dimensions.

        Raises:
            GeneralFailure: device:E9: they contradict those of the buffer, or cannot lie in it.
        """
        try:
            combine_dimensions(self.dimensions, dimensions)
        except Broken as broken:
            raise GeneralFailure(f"device:E9: buffer {self.token}: {broken.message}") from None
        with self._lock:
            size = self._element_bytes * math.prod(dimensions)
            room = 0 if self._room is None else self._room.nbytes
            if size > room or not (dimensions or self._is_scalar):
                raise GeneralFailure(
                    f"device:E9: buffer {self.token} cannot hold {list(dimensions)}"
                )
            self._content, self._content_bytes = dimensions, size
            self._initialised = True

    def invalidate(self) -> None:
        """Mark the buffer as uninitialised, after an execution that was to write it has failed."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._initialised = False
        self._content, self._content_bytes = self.dimensions, self.size_of(self.dimensions)

    def copy_to(self, target: Callable[[], memoryview], size: int) -> None:
        """Copy the content out (NNAPI: IBuffer::copyTo).

        Args:
            target: maps the target and returns it.
            size: bytes of the target.

        Raises:
            InvalidArgument: `size` is not the size of the content.
            GeneralFailure: the buffer is uninitialised, or `target` raised it.
        """
        with self._lock:
            wanted = self._content_bytes
            if wanted is not None and size != wanted:
                raise InvalidArgument(f"copyTo: {size} bytes, buffer {self.token} has {wanted}")
            if not self._initialised or self._room is None:
                raise GeneralFailure(f"copyTo: buffer {self.token} is not initialised")
            self._room.copy_out(target())

    def copy_from(self, source: Callable[[], memoryview], size: int, dimensions: Shape) -> None:
        """Fill the buffer (NNAPI: IBuffer::copyFrom); after a failure it is uninitialised.

        Args:
            source: maps the source and returns it.
            size: bytes of the source.
            dimensions: dimensions of the content; empty if those of the buffer are all known.

        Raises:
            InvalidArgument: size or dimensions do not fit.
            GeneralFailure: `source` raised it.
            ResourceExhausted: too little memory is left.
        """
        with self._lock:
            self._clear()
            data = source()
            found, wanted = self._incoming(dimensions)
            if size != wanted:
                raise InvalidArgument(f"copyFrom: {size} bytes, buffer {self.token} takes {wanted}")
            if self._room is None or self._room.nbytes < wanted:
                self._room = self._make_room(found, wanted)
            self._room.copy_in(data)
            self._content, self._content_bytes = found, wanted
            self._initialised = True

    def _incoming(self, dimensions: Shape) -> tuple[Shape, int]:
        """Dimensions and bytes of the content that `copy_from` was given."""
        if self._is_scalar and dimensions:
            raise InvalidArgument(f"copyFrom: a scalar takes no dimensions, got {list(dimensions)}")
        if len(dimensions) > MAX_RANK:  # as R7: a product of so many extents can take hours
            raise InvalidArgument(
                f"copyFrom: rank is {len(dimensions)}, expected at most {MAX_RANK}"
            )
        for index, extent in enumerate(dimensions):
            if extent > UINT32_MAX:
                raise InvalidArgument(f"copyFrom: dimension {index} is {extent}, expected a uint32")
        if any(extent <= 0 for extent in dimensions):
            raise InvalidArgument(f"copyFrom: dimensions {list(dimensions)} must all be known")
        found = self._combine(self.dimensions, dimensions)
        size = self.size_of(found)
        if size is None:
            raise InvalidArgument(
                f"copyFrom: buffer {self.token} of {list(self.dimensions)} needs dimensions"
            )
        return found, size

    def _combine(self, mine: Shape, theirs: Shape) -> Shape:
        try:
            return combine_dimensions(mine, theirs)
        except Broken as broken:
            raise InvalidArgument(f"device:E6: buffer {self.token}: {broken.message}") from None

    def close(self) -> None:
        """Free memory and token. No execution may be using the buffer."""
        self._room = None
        self._forget()


# -- The buffers of one client by their tokens, which name them in requests ------------------------
# NNAPI: BufferTracker.cpp: tokens count from 1, and the one freed last is handed out first.


class BufferTracker:
    """Maps tokens to buffers. Thread-safe. A token is valid as long as the handle of its buffer.

    It is given to a new buffer only after the last execution with the old one has ended.
    """

    def __init__(self, objects: ObjectTable) -> None:
        """Register buffers in `objects`."""
        self._objects = objects
        self._lock = threading.Lock()
        self._handles: dict[int, int] = {}
        self._free: list[int] = []
        self._issued = 0

    def add(self, make: Callable[[int, Callable[[], None]], DeviceBuffer]) -> tuple[int, int]:
        """Add a new buffer, and return its handle and token.

        Args:
            make: allocates the buffer, given its token and the function to call when it is closed.

        Raises:
            ResourceExhausted: the client has as many buffers as it may have.
            NnburstError: `make` raised it.
        """
        token = self._take()
        try:
            buffer = make(token, lambda: self._release(token))
        except BaseException:
            self._release(token)
            raise
        handle = self._objects.add(buffer)
        with self._lock:
            # A client may guess the handle and release it before it gets it.
            if self._objects.find(handle) is buffer:
                self._handles[token] = handle
        return handle, token

    def acquire(self, token: int) -> Reference[DeviceBuffer]:
        """Use the buffer behind a token.

        Raises:
            InvalidArgument: it does not exist.
        """
        with self._lock:
            handle = self._handles.get(token)
        if handle is not None:
            try:
                return self._objects.acquire(handle, DeviceBuffer)
            except Closed:
                pass  # released, and still used
        raise InvalidArgument(f"token: {token} does not name a buffer")

    def _take(self) -> int:
        with self._lock:
            if self._free:
                return self._free.pop()
            self._issued += 1
            return self._issued

    def _release(self, token: int) -> None:
        with self._lock:
            self._handles.pop(token, None)
            self._free.append(token)
