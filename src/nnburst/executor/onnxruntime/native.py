"""libonnxruntime.so through csrc/onnxruntime.c: sessions, and requests bound to memory where it lies."""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from nnburst._native import ffi, lib
from nnburst.executor.base import Bytes, NativeCall
from nnburst.executor.caching import Octets
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import (
    DeviceUnavailable,
    GeneralFailure,
    InvalidArgument,
    NnburstError,
    ResourceExhausted,
)

_FUNCTION: Final = int(ffi.cast("uintptr_t", ffi.addressof(lib, "nnb_onnx_run")))
_opening: Final = threading.Lock()
#: Has the engine read options from a graph's metadata, which is a client's.
_OPTIONS_FROM_GRAPHS: Final = "ORT_LOAD_CONFIG_FROM_MODEL"
_PROBLEMS: Final = {
    lib.NNB_ONNX_NO_LIBRARY: "cannot be opened",
    lib.NNB_ONNX_NO_SYMBOL: "is not onnxruntime's",
    lib.NNB_ONNX_TOO_OLD: "is older than 1.18",
    lib.NNB_ONNX_FAILED: "does not start",
}


@dataclass(frozen=True, slots=True)
class Library:
    """The engine's library.

    Attributes:
        version: of it.
        providers: that it has, without "ExecutionProvider".
    """

    version: str
    providers: tuple[str, ...]


@functools.cache
def library() -> Library:
    """Open the library for this process.

    Raises:
        DeviceUnavailable: it is not there, or too old.
    """
    spec = importlib.util.find_spec("onnxruntime")
    folders = spec.submodule_search_locations if spec is not None else None
    found = sorted(Path(folders[0], "capi").glob("libonnxruntime.so.*")) if folders else []
    if not found:
        raise DeviceUnavailable(
            "executor onnxruntime needs the package onnxruntime: pip install 'nnburst[onnxruntime]'"
        )
    os.environ.pop(_OPTIONS_FROM_GRAPHS, None)
    version = ffi.new("char[]", int(lib.NNB_ONNX_NAME_BYTES))
    providers = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
    with _opening:
        status = int(lib.nnb_onnx_open(os.fsencode(found[-1]), version, providers))
    if status != lib.NNB_ONNX_OK:
        raise DeviceUnavailable(f"{found[-1].name} {_PROBLEMS[status]}")
    names = _text(providers).split(",")
    return Library(_text(version), tuple(name.removesuffix("ExecutionProvider") for name in names))


@dataclass(frozen=True, slots=True)
class Border:
    """An input or output of a session.

    Attributes:
        name: of it.
        element: ONNX's number of the element type; 0 for what is not a tensor.
        extents: -1 if open.
    """

    name: str
    element: int
    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of one argument.

    Attributes:
        memory: exactly its bytes; None for an output whose extents the run finds out.
        element: ONNX's number of the element type.
        extents: of the tensor as the graph sees it.
        apart: whether the engine works on a copy.
    """

    memory: Bytes | None
    element: int
    extents: tuple[int, ...]
    apart: bool


class Session:
    """A graph ready to run. Its bindings may run on several threads at once on the CPU."""

    def __init__(
        self, content: bytes, files: Mapping[str, Octets], threads: int, provider: str = ""
    ) -> None:
        """Make it from a graph that was checked (`checks.py`).

        Args:
            content: the file.
            files: other files that it names.
            threads: that compute.
            provider: that executes it; the CPU unless given.

        Raises:
            InvalidArgument: the engine refuses the graph.
            DeviceUnavailable: the provider is refused.
            ResourceExhausted: memory is short.
        """
        library()
        message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
        external = ffi.new("struct nnb_onnx_external[]", max(len(files), 1))
        kept: list[Any] = []
        for at, (name, values) in enumerate(files.items()):
            named, memory = ffi.new("char[]", os.fsencode(name)), ffi.from_buffer("char[]", values)
            kept += [named, memory]
            external[at].name, external[at].memory = named, memory
            external[at].bytes = len(values)
        found = lib.nnb_onnx_session_new_unlocked(
            ffi.from_buffer("uint8_t[]", content),
            len(content),
            threads,
            external,
            len(files),
            provider.encode(),
            message,
        )
        if found == ffi.NULL:
            raise _refusal(_text(message), provider)
        self._handle = ffi.gc(found, lib.nnb_onnx_session_free)
        self._kept = kept  # the engine may use other files' bytes where they are
        self.inputs = self._borders(0)
        self.outputs = self._borders(1)

    def _borders(self, outputs: int) -> tuple[Border, ...]:
        found = []
        for at in range(int(lib.nnb_onnx_count(self._handle, outputs))):
            border = ffi.new("struct nnb_onnx_border *")
            if lib.nnb_onnx_describe(self._handle, outputs, at, border) != lib.NNB_ONNX_OK:
                raise InvalidArgument(
                    f"{'output' if outputs else 'input'} {at} has too many axes, or cannot be described"
                )
            extents = tuple(int(border.dimensions[axis]) for axis in range(border.rank))
            found.append(Border(_text(border.name), int(border.element), extents))
        return tuple(found)

    def bind(self, inputs: Sequence[Room], outputs: Sequence[Room]) -> GraphBinding:
        """Bind memory, which stays as long as the binding.

        Raises:
            GeneralFailure: the engine refuses an argument.
        """
        message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
        call = lib.nnb_onnx_bind(self._handle, _arguments(inputs), _arguments(outputs), message)
        if call == ffi.NULL:
            raise GeneralFailure(f"onnxruntime refuses an argument: {_text(message)}")
        return GraphBinding(self, ffi.gc(call, lib.nnb_onnx_call_free), (*inputs, *outputs))


class GraphBinding:
    """A request bound to a session. One thread runs it at a time; any thread may stop it.

    Attributes:
        native: how the burst loop runs it.
        copied_bytes: what each run copies.
    """

    def __init__(self, session: Session, call: Any, rooms: Sequence[Room]) -> None:  # noqa: ANN401
        """Own `call`, a cffi struct nnb_onnx_call *; keep the session and the memory alive."""
        self.call = call
        self._kept: tuple[object, ...] = (session, rooms)
        self.native = NativeCall(_FUNCTION, int(ffi.cast("uintptr_t", call)))
        self.copied_bytes = int(lib.nnb_onnx_copied_bytes(call))

    def run(self) -> str:
        """Run once, without Python's lock; why it failed, or ""."""
        if lib.nnb_onnx_run_unlocked(self.call) == ErrorStatus.NONE:
            return ""
        message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
        lib.nnb_onnx_message(self.call, message)
        return _text(message) or "the engine failed"

    def cancel(self, stop: bool) -> None:
        """Have the run that is under way end soon, and later ones at once; or no longer."""
        lib.nnb_onnx_stop(self.call, stop)

    def result(self, output: int, itemsize: int) -> tuple[Bytes, tuple[int, ...]]:
        """What the last run gave an output that had no memory: its bytes, until the next run; its extents."""
        elements, rank = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        dimensions = ffi.new("int64_t[]", int(lib.NNB_ONNX_MAX_RANK))
        data = lib.nnb_onnx_result(self.call, output, elements, rank, dimensions)
        extents = tuple(int(dimensions[axis]) for axis in range(rank[0]))
        if data == ffi.NULL:
            return np.zeros(0, np.uint8), extents
        return np.frombuffer(ffi.buffer(data, elements[0] * itemsize), np.uint8), extents

    def close(self) -> None:
        """Free the binding and let go of the memory."""
        ffi.release(self.call)
        self._kept = ()


def _arguments(rooms: Sequence[Room]) -> Any:  # noqa: ANN401 - a cffi struct nnb_onnx_argument[]
    made = ffi.new("struct nnb_onnx_argument[]", max(len(rooms), 1))
    for at, room in enumerate(rooms):
        argument = made[at]
        if room.memory is not None:
            argument.memory = ffi.cast("uint8_t *", room.memory.ctypes.data)
            argument.bytes = room.memory.nbytes
        argument.element = room.element
        argument.apart = room.apart
        argument.rank = len(room.extents)
        argument.dimensions[0 : len(room.extents)] = list(room.extents)
    return made


def _refusal(message: str, provider: str) -> NnburstError:
    if is_short_of_memory(message):
        return ResourceExhausted(f"onnxruntime: {message}")
    if provider and provider in message:
        return DeviceUnavailable(f"onnxruntime refuses the provider {provider}: {message}")
    return InvalidArgument(f"onnxruntime refuses the graph: {message}")


def is_short_of_memory(message: str) -> bool:
    """Whether a failure is one of memory."""
    return "bad_alloc" in message or "allocate memory" in message or "out of memory" in message


def _text(message: Any) -> str:  # noqa: ANN401 - a cffi char[]
    return bytes(ffi.string(message)).decode(errors="replace").strip()
