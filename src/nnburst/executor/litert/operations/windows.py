"""Windows over images: explicit padding turned into the engine's schemes or into PAD."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.geometry import SAME as NNAPI_SAME
from nnburst.executor.graph.geometry import Axis, implicit_padding
from nnburst.executor.graph.sliding_window import Window
from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import Lowering

#: Padding schemes of the format.
SAME: Final = 0
VALID: Final = 1


def scheme_of(window: Window) -> int | None:
    """The scheme that pads as the window does; None if only PAD can.

    With SAME the engine's fast kernels compute nonsense if windows skip cells at the end of an axis.
    """
    axes = (window.height, window.width)
    if not window.pads:
        return VALID
    if all((a.head, a.tail) == _same(a) and a.padded >= a.size for a in axes):
        return SAME
    return None


def _same(axis: Axis) -> tuple[int, int]:
    head, tail = implicit_padding(NNAPI_SAME, axis.size, axis.filter, axis.stride, axis.dilation)
    return head, tail


def pad(op: Lowering, image: Value, window: Window, filling: Value | None = None) -> Value:
    """An NHWC image with the window's padding around it.

    Args:
        op: the operation.
        image: as NHWC.
        window: its paddings.
        filling: what to pad with; the number 0 unless given.
    """
    height, width = window.height, window.width
    paddings = (0, 0, height.head, height.tail, width.head, width.tail, 0, 0)
    both = zip(paddings[::2], paddings[1::2], strict=True)
    dimensions = [n + head + tail for n, (head, tail) in zip(image.shape, both, strict=True)]
    meta = replace(image.meta, dimensions=tuple(dimensions))
    sides = op.pairs(paddings)
    if filling is None:
        return op.emit("PAD", [image, sides], meta, "Pad")
    return op.emit("PADV2", [image, sides, filling], meta, "PadV2")


def padded(op: Lowering, image: Value, window: Window) -> tuple[Value, int]:
    """The image, padded if no scheme does it, and the scheme for the operator."""
    scheme = scheme_of(window)
    if scheme is None:
        return pad(op, image, window), VALID
    return image, scheme


def strides(window: Window) -> dict[str, int]:
    """Fields of the operator's options."""
    return {"strideW": window.width.stride, "strideH": window.height.stride}


def nhwc_result(op: Lowering, window: Window) -> tuple[int, ...]:
    """Extents of the output as NHWC."""
    dimensions = op.result().dimensions
    return tuple(dimensions[i] for i in (0, 2, 3, 1)) if window.nchw else dimensions
