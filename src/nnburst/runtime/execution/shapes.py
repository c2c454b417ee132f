"""What a device reports about its outputs, checked before it is used."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnburst.hal.enums import ResultCode
from nnburst.hal.limits import UINT32_MAX
from nnburst.runtime.argument import Outcome

Shape = tuple[int, ...]


def checked_outcome(
    outcome: Outcome, declared: Sequence[Shape], is_tensor: Sequence[bool], sizes: Sequence[int]
) -> Outcome:
    """`outcome` itself, or OP_FAILED if its shapes cannot be (RT:R10).

    Args:
        outcome: of a device.
        declared: dimensions of each output as the request had them.
        is_tensor: whether each output is one.
        sizes: bytes of an element of each output.
    """
    reason = _what_is_wrong(outcome, declared, is_tensor, sizes)
    if reason:
        return Outcome(ResultCode.OP_FAILED, message=f"device: it {reason}")
    return outcome


def _what_is_wrong(
    outcome: Outcome, declared: Sequence[Shape], is_tensor: Sequence[bool], sizes: Sequence[int]
) -> str:
    shapes = outcome.output_shapes
    if outcome.code == ResultCode.NO_ERROR:
        if not all(shape.is_sufficient for shape in shapes):
            return "reports success and an output that is too small"
        if any(t and not s.dimensions for t, s in zip(is_tensor, shapes, strict=False)):
            return "reports success and a tensor without rank"
    elif outcome.code == ResultCode.OUTPUT_INSUFFICIENT_SIZE:
        if not shapes or all(shape.is_sufficient for shape in shapes):
            return "reports OUTPUT_INSUFFICIENT_SIZE and no output that is too small"
    elif shapes:
        return f"reports {outcome.code.name} and shapes"
    if shapes and len(shapes) != len(declared):
        return f"reports {len(shapes)} shapes for {len(declared)} outputs"
    for index, (shape, known, size) in enumerate(zip(shapes, declared, sizes, strict=False)):
        if changes_dimensions(known, shape.dimensions):
            return f"reports {list(shape.dimensions)} for output {index}, which is {list(known)}"
        if size * math.prod(shape.dimensions) > UINT32_MAX:
            return f"reports {list(shape.dimensions)} for output {index}: more than 2^32 bytes"
    return ""


def changes_dimensions(known: Shape, reported: Shape) -> bool:
    """Whether a report contradicts what is known, or has less."""
    if not known:
        return False
    if len(known) != len(reported):
        return True
    return any(a not in (0, b) for a, b in zip(known, reported, strict=True))
