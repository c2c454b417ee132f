"""Calls libnnburst.so by cffi, with the declarations of its own header."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

import numpy as np
import pytest
from cffi import FFI

from nnburst.capi import installed

HEADER: Final = installed.INCLUDE / "nnburst.h"
LIBRARY: Final = installed.CLIENT_LIBRARY
SECOND: Final = 10**9
#: Nanoseconds that anything may take on a busy machine before a test fails.
PATIENCE: Final = 60 * SECOND

ffi = FFI()


@functools.cache
def _open() -> Any:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
    ffi.cdef(re.sub(r"^#.*$|\bNNBURST_API\b", "", text, flags=re.MULTILINE))
    return ffi.dlopen(str(LIBRARY))


def library() -> Any:
    """The library; skips if this nnburst was built without."""
    if not LIBRARY.is_file():
        pytest.skip(f"no {LIBRARY}: this nnburst was built without")
    return _open()


class Failed(Exception):
    """A call did not return NO_ERROR.

    Attributes:
        code: the returned code.
        text: text of nnburst_error_message.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


def made(function: Any, *arguments: Any) -> Any:
    """The pointer that a function writes to its last argument, a pointer to a pointer."""
    kind = ffi.typeof(function).args[-1]
    found = ffi.new(kind)
    check(function(*arguments, found))
    return found[0]


def check(code: int) -> None:
    if code:
        raise Failed(code, text_of(library().nnburst_error_message()))


def text_of(pointer: Any) -> str:
    return ffi.string(pointer).decode()


def connected(address: str, timeout: int = PATIENCE) -> Any:
    return made(library().nnburst_connect, address.encode(), 0, timeout)


def opened(device: Any, name: str, version: int = 0) -> Any:
    return made(library().nnburst_open_model, device, name.encode(), version, PATIENCE)


def open_burst(model: Any, **options: int) -> Any:
    given = ffi.new("nnburst_burst_options *", options)
    return made(
        library().nnburst_open_burst, model, given, ffi.sizeof("nnburst_burst_options"), PATIENCE
    )


def created(burst: Any) -> Any:
    return made(library().nnburst_create_request, burst)


def bound(burst: Any) -> Any:
    """A request with memory of its own."""
    request = created(burst)
    check(library().nnburst_bind(request))
    return request


def operand(function: Any, model: Any, index: int) -> Any:
    found = ffi.new("nnburst_operand *")
    check(function(model, index, found, ffi.sizeof("nnburst_operand")))
    return found


def array_at(pointer: Any, count: int, dtype: str = "<f4") -> np.ndarray[Any, np.dtype[Any]]:
    """`count` elements that lie at a pointer."""
    return np.frombuffer(ffi.buffer(pointer, count * np.dtype(dtype).itemsize), dtype)


def input_of(request: Any, index: int, count: int, dtype: str = "<f4") -> Any:
    return array_at(library().nnburst_input_data(request, index), count, dtype)


def output_of(request: Any, index: int, count: int, dtype: str = "<f4") -> Any:
    pointer = ffi.cast("void *", library().nnburst_output_data(request, index))
    return array_at(pointer, count, dtype)


def run(request: Any, timeout: int = PATIENCE) -> int:
    return int(library().nnburst_run(request, timeout))
