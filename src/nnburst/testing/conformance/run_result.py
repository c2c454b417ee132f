"""What one execution of a conformance test gave, whichever way it went; or that there was none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.timing import OutputShape, Timing


class Unsupported(InvalidArgument):
    """An executor reports beforehand that it cannot run some operation: no failure, nothing to judge."""


def require_supported(model: Model, supported: Sequence[bool]) -> None:
    """Refuse a model of which something is not supported (NNAPI VTS skips such tests).

    Raises:
        Unsupported: the message names the operations.
    """
    kinds = {o.type for o, yes in zip(model.main.operations, supported, strict=True) if not yes}
    if kinds:
        known = {kind.value: kind.name for kind in OperationType}
        names = sorted(known.get(kind, f"{kind:#x}") for kind in kinds)
        raise Unsupported(f"the executor does not support {', '.join(names)}")


class RunResult(NamedTuple):
    """What one execution gave.

    Attributes:
        status: its outcome.
        shapes: reported output shapes; may be empty.
        outputs: the bytes of each output buffer, meaningful with NONE.
        message: why it failed, if known.
        timing: the driver's own durations, if a driver ran it.
        total_ns: the execution as its caller saw it.
        changed_inputs: numbers of inputs whose memory is not what it was before.
    """

    status: ErrorStatus
    shapes: tuple[OutputShape, ...]
    outputs: tuple[bytes, ...]
    message: str
    timing: Timing = Timing()
    total_ns: int = 0
    changed_inputs: tuple[int, ...] = ()
