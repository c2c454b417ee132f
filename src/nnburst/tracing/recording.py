"""Makes this process record its marks, if its environment asks for it.

`NNBURST_TRACE` names a collector's socket. A process that begins makes its memory, sends it there, and from
then on only writes to it: no thread, no system call. A worker does so before it enters its sandbox.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from nnburst._native import ffi, lib
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.environment import TRACE, TRACE_MARKER
from nnburst.tracing.area import BEGIN, BYTES, END, has_steady_tsc
from nnburst.tracing.slices import Layer, Phase, set_tracer

logger = logging.getLogger(__name__)

#: Seconds that a collector may take to accept.
_TIMEOUT: Final = 2.0
#: Layers whose slices go to the kernel's trace, too: those above the HAL.
_MARKED: Final = (Layer.APPLICATION, Layer.RUNTIME)
_LAYERS: Final = {layer: number for number, layer in enumerate(Layer)}
_PHASES: Final = {phase: number for number, phase in enumerate(Phase)}

_recorded_pid = 0
_tracer: _Tracer | None = None
#: Areas stay mapped for the rest of the process: a thread may be writing.
_kept: Final[list[Any]] = []


def record_if_asked(process: str = "") -> bool:
    """Record this process's marks from now on if `NNBURST_TRACE` is set; once for each process.

    Args:
        process: what it is called in the trace; its command unless given.

    Returns:
        Whether it records.
    """
    global _recorded_pid
    if TRACE.name not in os.environ:
        return False
    if _recorded_pid == os.getpid():
        return True
    path = TRACE.read()
    try:
        _record(path, process or _command())
    except OSError as error:
        logger.warning("NNBURST_TRACE: %s cannot be reached (%s); nothing is recorded", path, error)
        stop()
        return False
    _recorded_pid = os.getpid()
    return True


def name_number(layer: Layer, phase: Phase, detail: str) -> int:
    """The number of a slice's name, for marks made in C; 0 if this process does not record."""
    return _tracer.number(f"[NN_{layer}_{phase}]{detail}") if _tracer is not None else 0


def stop() -> None:
    """Record nothing more."""
    global _tracer
    _tracer = None
    lib.nnb_trace_stop()
    set_tracer(None)


def _record(path: Path, process: str) -> None:
    global _tracer
    with SharedMemory.create(BYTES, "nnburst-trace", read_only_for_others=True) as memory:
        view = memory.map_then_protect()
        area = ffi.from_buffer("struct nnb_trace_area *", view)
        _kept.append((view, area))
        # The collector looks at once, so what it looks at is there before.
        lib.nnb_trace_start(area, process.encode()[:63], has_steady_tsc())
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as collector:
            collector.settimeout(_TIMEOUT)
            collector.connect(str(path))
            socket.send_fds(collector, [b"nnburst-trace"], [memory.fd])
    _tracer = _Tracer(_marker())
    set_tracer(_tracer)


def _marker() -> int:
    """A descriptor of the kernel's trace_marker, for the rest of the process; -1 without one."""
    if TRACE_MARKER.name not in os.environ:
        return -1
    path = TRACE_MARKER.read()
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError as error:
        logger.warning(
            "%s: %s cannot be written (%s): no marks go there", TRACE_MARKER.name, path, error
        )
        return -1


def _command() -> str:
    words = [Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python", *sys.argv[1:2]]
    return " ".join(words)


class _Tracer:
    """Slices of Python code by name."""

    def __init__(self, marker: int = -1) -> None:
        self._slices: dict[str, _Slice] = {}
        self._marker = marker

    def __call__(self, name: str) -> _Slice:
        found = self._slices.get(name)
        if found is None:
            from nnburst.tracing.marks import parse  # for who records, which is rare

            mark = parse(name)
            text = mark.detail.encode()[:61]
            number = lib.nnb_trace_add_name(_LAYERS[mark.layer], _PHASES[mark.phase], text)
            if self._marker >= 0 and mark.layer in _MARKED:
                found = _MarkedSlice(int(number), self._marker, name)
            else:
                found = _Slice(int(number))
            self._slices[name] = found
        return found

    def number(self, name: str) -> int:
        """The number of a slice's name."""
        return self(name).name


class _Slice:
    """Marks where a context begins and ends; any thread, as often as wanted."""

    __slots__ = ("name",)

    def __init__(self, name: int) -> None:
        self.name = name

    def __enter__(self) -> None:
        lib.nnb_trace_mark(self.name, BEGIN, 0, 0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lib.nnb_trace_mark(self.name, END, 0, 0)


class _MarkedSlice(_Slice):
    """A slice that stands in the kernel's trace, too, as the original's do.

    What the kernel refuses is lost: it takes no mark while its tracer is stopped (EBADF).
    """

    __slots__ = ("_begin", "_end", "_marker")

    def __init__(self, name: int, marker: int, text: str) -> None:
        super().__init__(name)
        self._marker = marker
        self._begin = f"B|{os.getpid()}|{text}".encode()
        self._end = f"E|{os.getpid()}".encode()

    def __enter__(self) -> None:
        self._mark(self._begin)
        super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._mark(self._end)

    def _mark(self, text: bytes) -> None:
        with suppress(OSError):
            os.write(self._marker, text)
