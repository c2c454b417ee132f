"""What one execution of a conformance test gave, whichever way it went."""

from __future__ import annotations

from typing import NamedTuple

from nnburst.hal.enums import ErrorStatus
from nnburst.hal.timing import OutputShape, Timing


class RunResult(NamedTuple):
    """What one execution gave.

    Attributes:
        status: its outcome.
        shapes: reported output shapes; may be empty.
        outputs: the bytes of each output buffer, meaningful with NONE.
        message: why it failed, where known.
        timing: the driver's own durations, where a driver ran it.
        total_ns: the execution as its caller saw it.
    """

    status: ErrorStatus
    shapes: tuple[OutputShape, ...]
    outputs: tuple[bytes, ...]
    message: str
    timing: Timing = Timing()
    total_ns: int = 0
