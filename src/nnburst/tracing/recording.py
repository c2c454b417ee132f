"""Records the marks of this process in shared memory, under NNAPI's names for slices.

`NNBURST_TRACE` names a collector's socket. At its start a process makes a shared memory and sends it there; a
worker does this before it enters its sandbox. After that the process only writes to this memory, without a
thread or a system call.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nnburst._native import ffi, lib
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal import late_numpy as np
from nnburst.hal.environment import TRACE, TRACE_MARKER
from nnburst.hal.errors import InvalidArgument
from nnburst.tracing.slices import Layer, Phase, set_tracer

if TYPE_CHECKING:
    import numpy.typing as npt


MAGIC: Final = 0x3145434152544E4E
RINGS: Final[int] = lib.NNB_TRACE_RINGS
RECORDS: Final[int] = lib.NNB_TRACE_RECORDS
NAMES: Final[int] = lib.NNB_TRACE_NAMES
BYTES: Final[int] = int(lib.nnb_trace_area_bytes())

BEGIN: Final[int] = lib.NNB_TRACE_BEGIN
END: Final[int] = lib.NNB_TRACE_END
SWITCH: Final[int] = lib.NNB_TRACE_SWITCH
INSTANT: Final[int] = lib.NNB_TRACE_INSTANT
COUNTER: Final[int] = lib.NNB_TRACE_COUNTER
FLOW_OUT: Final = 1


@functools.cache
def _layout() -> np.dtype[np.void]:
    record = np.dtype(
        [
            ("sequence", "<u8"),
            ("time", "<u8"),
            ("argument", "<u8"),
            ("name", "<u4"),
            ("kind", "u1"),
            ("layer", "u1"),
            ("phase", "u1"),
            ("flags", "u1"),
        ]
    )
    ring = np.dtype([("written", "<u8"), ("tid", "<u4"), ("in_use", "<u4"), ("name", "S16")])
    name = np.dtype([("layer", "u1"), ("phase", "u1"), ("text", "S62")])
    area = np.dtype(
        [
            ("magic", "<u8"),
            ("pid", "<u4"),
            ("uses_tsc", "<u4"),
            ("start_ticks", "<u8"),
            ("start_ns", "<u8"),
            ("rings", "<u4"),
            ("names", "<u4"),
            ("dropped", "<u8"),
            ("process", "S64"),
            ("reserved", "u1", (144,)),
            ("ring", ring, (RINGS,)),
            ("name", name, (NAMES,)),
            ("record", record, (RINGS, RECORDS)),
        ]
    )
    assert area.itemsize == BYTES
    return area


def view(memory: npt.NDArray[np.uint8]) -> Any:  # noqa: ANN401 - a structured numpy array's only element
    """The fields of an area, as a view of its memory."""
    return memory[:BYTES].view(_layout())[0]


def has_steady_tsc() -> bool:
    """Whether the time stamp counters of all cores agree and run at a constant rate, even in sleep."""
    try:
        clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        source = clock.read_text().strip()
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    is_steady = "constant_tsc" in flags and "nonstop_tsc" in flags
    return source == "arch_sys_counter" or (source == "tsc" and is_steady)


logger = logging.getLogger(__name__)

#: Seconds within which a collector must accept a connection.
_TIMEOUT: Final = 2.0
#: Layers above the HAL, whose slices are written to the kernel's trace, too.
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
        process: name of the process in the trace; its command unless given.

    Returns:
        Whether the process records.
    """
    global _recorded_pid
    if not TRACE.is_set:
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
    """Stop recording."""
    global _tracer
    _tracer = None
    lib.nnb_trace_stop()
    set_tracer(None)


#: The area is not mapped in a forked child, which `record_if_asked` gives one of its own.
os.register_at_fork(after_in_child=stop)


def _record(path: Path, process: str) -> None:
    global _tracer
    with SharedMemory.create(BYTES, "nnburst-trace", read_only_for_others=True) as memory:
        view = memory.map_then_protect()
        area = ffi.from_buffer("struct nnb_trace_area *", view)
        _kept.append((view, area))
        # The collector reads the memory at once, so its header is written before it is sent.
        lib.nnb_trace_start(area, process.encode()[:63], has_steady_tsc())
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as collector:
            collector.settimeout(_TIMEOUT)
            collector.connect(str(path))
            socket.send_fds(collector, [b"nnburst-trace"], [memory.fd])
    _tracer = _Tracer(_marker())
    set_tracer(_tracer)


def _marker() -> int:
    """A descriptor of the kernel's trace_marker, for the rest of the process; -1 without one."""
    if not TRACE_MARKER.is_set:
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
    """Makes the slices of Python code."""

    def __init__(self, marker: int = -1) -> None:
        self._slices: dict[str, _Slice] = {}
        self._marker = marker

    def __call__(self, name: str) -> _Slice:
        found = self._slices.get(name)
        if found is None:
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
    """Marks the beginning and the end of a context; usable by any thread, again and again."""

    __slots__ = ("name",)

    def __init__(self, name: int) -> None:
        self.name = name

    def __enter__(self) -> None:
        lib.nnb_trace_mark(self.name, BEGIN, 0, 0)

    def __exit__(self, *_: object) -> None:
        lib.nnb_trace_mark(self.name, END, 0, 0)


class _MarkedSlice(_Slice):
    """A slice that is also written to the kernel's trace, as the original does.

    Marks that the kernel refuses are lost; it refuses all while its tracer is stopped (EBADF).
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

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._mark(self._end)

    def _mark(self, text: bytes) -> None:
        with suppress(OSError):
            os.write(self._marker, text)


_MARK: Final = re.compile(r"(\[SW\])?(\[SUB\])?\[NN_(L[A-Z])_(P[A-Z]+)\](.*)", re.DOTALL)
#: The layer of the parser itself, whose slices are ignored.
IGNORED: Final = "LX"


# -- Names of slices: `[NN_<layer>_<phase>]detail` -------------------------------------------------
# NNAPI: nnapi/Tracing.h.
# With `[SW]` before the name, the slice replaces the one that it lies in. With `[SUB]`, its time is
# subtracted # from the slice that it lies in, and counts for its own layer and phase.


class Mark(NamedTuple):
    """The parts of a slice's name."""

    layer: Layer
    phase: Phase
    detail: str
    switches: bool = False
    subtracts: bool = False

    def __str__(self) -> str:
        before = f"{'[SW]' if self.switches else ''}{'[SUB]' if self.subtracts else ''}"
        return f"{before}[NN_{self.layer}_{self.phase}]{self.detail}"


def is_mark(name: str) -> bool:
    """Whether a slice's name is a mark of nnburst."""
    return "[NN_" in name


def parse(name: str) -> Mark:
    """Parse a slice's name.

    Raises:
        InvalidArgument: the name is not a mark, or has an unknown layer or phase.
    """
    found = _MARK.fullmatch(name)
    if found is None:
        raise InvalidArgument(f"mark: {name!r}, expected [NN_<layer>_<phase>]detail")
    switches, subtracts, layer, phase, detail = found.groups()
    try:
        return Mark(Layer(layer), Phase(phase), detail, switches is not None, subtracts is not None)
    except ValueError as error:
        raise InvalidArgument(f"mark: {name!r}: {error}") from None
