"""The memory of one process's marks, as csrc/trace.h lays it out."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nnburst._native import lib
from nnburst.hal.imports import late_numpy as np

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
    """An area's fields, over its memory."""
    return memory[:BYTES].view(_layout())[0]


def has_steady_tsc() -> bool:
    """Whether all cores' time stamp counters run alike, at one rate, also asleep."""
    try:
        source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        flags = Path("/proc/cpuinfo").read_text()
        return (
            source.read_text().strip() in ("tsc", "arch_sys_counter")
            and ("constant_tsc" in flags and "nonstop_tsc" in flags)
        ) or source.read_text().strip() == "arch_sys_counter"
    except OSError:
        return False
