"""Reads and writes values at addresses that a C program passed, and keeps the objects behind its handles.

Values are numbers, structs, strings and bytes. The library has already refused nulls. The program is
responsible for valid addresses and lengths, as in every C interface.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from nnburst._native import ffi
from nnburst.capi.constants import NANOSECOND, OPERAND_TYPE, PER_CHANNEL
from nnburst.capi.functions import Argument, Function, HandleKind, Pass
from nnburst.hal.errors import InvalidArgument, ResourceExhausted
from nnburst.hal.limits import BYTE_SIZE_OF_CACHE_TOKEN
from nnburst.runtime.objects.operands import OperandDescription

#: The longest list of operands or dimensions that a program may pass.
MOST_ENTRIES: Final = 1 << 24
MOST_BYTES: Final = 1 << 56
_UINT64: Final = (1 << 64) - 1

_operand_type: Final = OPERAND_TYPE.layout
_per_channel: Final = PER_CHANNEL.layout


def content(address: int, length: int) -> memoryview:
    """The `length` bytes at an address, in place and writable.

    Raises:
        InvalidArgument: the length is larger than any memory.
    """
    if length > MOST_BYTES:
        raise InvalidArgument(f"length: {length} bytes, no memory has more than {MOST_BYTES}")
    return memoryview(ffi.buffer(ffi.cast("uint8_t *", address), length))


def optional(address: int, length: int) -> memoryview | None:
    """As `content`; None for a null address, whose length the library has found to be 0."""
    return content(address, length) if address else None


def string(address: int) -> str:
    """The string at an address, which ends before the first 0.

    Raises:
        InvalidArgument: it is not UTF-8.
    """
    raw: bytes = ffi.string(ffi.cast("char *", address))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"string {raw!r}: expected UTF-8") from None


def path(address: int) -> str:
    """The path at an address, whose bytes may be of any encoding."""
    raw: bytes = ffi.string(ffi.cast("char *", address))
    return os.fsdecode(raw)


def numbers(name: str, address: int, count: int) -> tuple[int, ...]:
    """`count` values of type uint32_t.

    Raises:
        InvalidArgument: the count is larger than any call needs.
    """
    if count > MOST_ENTRIES:
        raise InvalidArgument(f"{name}: {count} entries, the limit is {MOST_ENTRIES}")
    return tuple(memoryview(content(address, 4 * count)).cast("I")) if count else ()


def scales(address: int) -> tuple[list[float] | None, int]:
    """Scales and dimension of a struct of per-channel parameters; None if null and count disagree."""
    dimension, count, place = _per_channel.unpack(content(address, _per_channel.size))
    if not place or not 0 < count <= MOST_ENTRIES:
        return None, dimension
    return list(content(place, 4 * count).cast("f")), dimension


def operand_type(address: int) -> OperandDescription | None:
    """The struct of an operand type; None for null. Dimensions are None if null and count disagree."""
    if not address:
        return None
    kind, count, place, scale, zero_point = _operand_type.unpack(
        content(address, _operand_type.size)
    )
    contradiction = bool(place) != bool(count)  # NNAPI: RT:M3
    dimensions = None if contradiction else numbers("dimensions", place, count)
    return OperandDescription(kind, dimensions, scale, zero_point)


def unsigned(word: int) -> int:
    """A uint64_t or size_t that came as a signed word."""
    return word & _UINT64


def store(ctype: str, address: int, value: int) -> None:
    """Store a number at an address, unless that is null."""
    cast("Any", ffi.cast(f"{ctype} *", address))[0] = value


def store_all(ctype: str, address: int, values: Sequence[int]) -> None:
    """Store numbers at an address, one after the other."""
    place = cast("Any", ffi.cast(f"{ctype} *", address))
    for index, value in enumerate(values):
        place[index] = value


#: Strings that programs have pointers to; they are kept until the process ends.
_strings: Final[dict[str, Any]] = {}


def lasting_string(text: str) -> int:
    """The address of a string that lasts as long as the process."""
    if text not in _strings:
        _strings[text] = ffi.new("char[]", text.encode())
    return int(ffi.cast("uintptr_t", _strings[text]))


# -- objects behind handles ------------------------------------------------------------------------


class HandleTable:
    """Maps handles to objects. Thread-safe: each call is one operation on a dict."""

    def __init__(self) -> None:
        """Begin empty; `new_handle` is set before the first object is added."""
        self.new_handle: Callable[[int], int] | None = None
        self._objects: dict[int, Any] = {}
        self._handles: dict[int, int] = {}

    def handle(self, value: object) -> int:
        """The handle of an object.

        Raises:
            InvalidArgument: another thread has freed the object.
        """
        handle = self.find(value)
        if handle is None:
            raise InvalidArgument(f"{type(value).__name__}: it was freed meanwhile")
        return handle

    def find(self, value: object) -> int | None:
        """The handle of an object; None if it has none."""
        return self._handles.get(id(value))

    def get(self, handle: int) -> Any:  # noqa: ANN401 - the library has checked the kind
        """The object of a handle; None if the handle was freed."""
        return self._objects.get(handle)

    def __getitem__(self, handle: int) -> Any:  # noqa: ANN401 - the library has checked the kind
        """The object of a handle.

        Raises:
            InvalidArgument: another thread has freed it.
        """
        try:
            return self._objects[handle]
        except KeyError:
            raise InvalidArgument(f"handle {handle:#x}: it was freed meanwhile") from None

    def __setitem__(self, handle: int, value: object) -> None:
        """Let a handle stand for an object."""
        self._objects[handle] = value
        self._handles[id(value)] = handle

    def remove(self, handle: int) -> None:
        """Forget the object of a handle, if it has one."""
        value = self._objects.get(handle)
        self._handles.pop(id(value), None)
        self._objects.pop(handle, None)

    def close(self) -> None:
        """Forget all objects."""
        self._objects.clear()
        self._handles.clear()

    def add(self, kind: HandleKind, value: object) -> int:
        """Add an object and return its new handle.

        Raises:
            ResourceExhausted: the library has no more handles.
        """
        handle = self.reserve(kind)
        if not handle:
            raise ResourceExhausted(f"no handle for another {kind.name}")
        self[handle] = value
        return handle

    def reserve(self, kind: HandleKind) -> int:
        """Return a new handle without an object; 0 if the library has no more handles."""
        assert self.new_handle is not None
        return int(self.new_handle(int(kind)))


HANDLES = HandleTable()


# -- arguments and results by their C types ---------------------------------------------------------

#: Converts the word of one argument, given the words of a call and the argument's index.
Read = Callable[[Any, int], Any]
_UNSIGNED: Final = {"size_t", "uint64_t"}
_word_as_float: Final = ffi.new("uint32_t *")


def _float(word: int) -> float:
    _word_as_float[0] = word
    return float(ffi.cast("float *", _word_as_float)[0])


def _objects(address: int, count: int) -> list[Any]:
    handles = ffi.cast("uint64_t *", address)
    return [HANDLES[handles[index]] for index in range(count)]


def reader(function: Function, argument: Argument) -> Read:
    """Make a function that reads one argument: the object of a handle, or a number (also for an address)."""
    if argument.passing is Pass.HANDLE:
        return lambda words, index: HANDLES[words[index]]
    if argument.passing is Pass.HANDLES:
        count = count_of(function, argument)
        return lambda words, index: _objects(unsigned(words[index]), words[count])
    if argument.ctype == "float":
        return lambda words, index: _float(words[index])
    if argument.ctype in _UNSIGNED or argument.passing is not Pass.VALUE:
        return lambda words, index: unsigned(words[index])
    return lambda words, index: words[index]


def count_of(function: Function, argument: Argument) -> int:
    """The position of the argument that counts another."""
    return [other.name for other in function.arguments].index(argument.count or "")


def value_reader(function: Function, argument: Argument) -> Read:
    """As `reader`, but for a method of the framework: an address is replaced by the value that lies there."""
    read = reader(function, argument)
    ctype = argument.ctype
    if ctype == "bool":
        return lambda words, index: bool(read(words, index))
    if argument.name == "duration":
        return lambda words, index: read(words, index) * NANOSECOND
    if argument.passing is not Pass.POINTER:
        return read
    if argument.name == "cacheDir":
        return lambda words, index: path(read(words, index))
    if ctype == "const uint8_t*":
        return lambda words, index: bytes(content(read(words, index), BYTE_SIZE_OF_CACHE_TOKEN))
    if ctype in _AT_ADDRESS:
        convert = _AT_ADDRESS[ctype]
        return lambda words, index: convert(read(words, index))
    count = count_of(function, argument)
    if ctype == "const uint32_t*":
        return lambda words, index: numbers(argument.name, read(words, index), words[count])
    return lambda words, index: optional(read(words, index), unsigned(words[count]))


_AT_ADDRESS: Final[dict[str, Callable[[int], Any]]] = {
    "const char*": string,
    "const ANeuralNetworksOperandType*": operand_type,
    "const ANeuralNetworksSymmPerChannelQuantParams*": scales,
}
#: C's types of results that are stored as another one.
_STORED_AS: Final = {
    "bool": "uint8_t",
    "const char*": "uint64_t",
    "ANeuralNetworksOperationType": "int32_t",
}


def store_result(argument: Argument, address: int, value: Any) -> None:  # noqa: ANN401
    """Store the result of a method of the framework: a number, a string, or several numbers."""
    ctype = argument.ctype.removesuffix("*")
    stored = _STORED_AS.get(ctype, ctype)
    if isinstance(value, str):
        store(stored, address, lasting_string(value))
    elif isinstance(value, Sequence):
        store_all(stored, address, [int(each) for each in value])
    else:
        store(stored, address, int(value))
