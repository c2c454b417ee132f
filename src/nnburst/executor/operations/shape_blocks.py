"""DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND: signatures and shape rules.

DEVIATES: before 1.2 a quantised input of SPACE_TO_BATCH_ND needed zero point 0. Operations do not
know the version of their model; every zero point can be computed.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    BOOL,
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    V1_0,
    V1_1,
    V1_2,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.data_movement import control_values, moved
from nnburst.hal.enums import ErrorStatus, OperationType

_NCHW = control("nchw", BOOL, default=False, since=V1_2)


def extents_of(node: Node) -> tuple[int, int, int, int]:
    """Batches, height, width and channels of operand 'input'."""
    shape = node.tensor("input").shape
    node.require(len(shape) == 4, f"operand 'input' has rank {len(shape)}, expected 4")
    n, *rest = shape
    c, h, w = rest if node.value("nchw") else (rest[2], rest[0], rest[1])
    return n, h, w, c


def _answer(node: Node, n: int, h: int, w: int, c: int) -> list[TensorType]:
    return [moved(node, (n, c, h, w) if node.value("nchw") else (n, h, w, c))]


def block_size_of(node: Node) -> int:
    """Value of operand 'block_size', more than 0."""
    block = int(node.value("block_size"))
    node.require(block > 0, f"operand 'block_size' is {block}, expected more than 0")
    return block


def _depth_to_space_shape(node: Node) -> list[TensorType]:
    n, h, w, c = extents_of(node)
    block = block_size_of(node)
    node.require(c % block**2 == 0, f"operand 'input' has {c} channels, no multiple of {block}²")
    return _answer(node, n, h * block, w * block, c // block**2)


def _space_to_depth_shape(node: Node) -> list[TensorType]:
    n, h, w, c = extents_of(node)
    block = block_size_of(node)
    node.require(
        h % block == 0 and w % block == 0,
        f"operand 'input' has height {h} and width {w}, not both multiples of {block}",
    )
    return _answer(node, n, h // block, w // block, c * block**2)


declare(
    signature(
        OperationType.DEPTH_TO_SPACE,
        V1_0,
        "Moves blocks of channels to blocks of pixels.",
        inputs=[data("input"), control("block_size"), _NCHW],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
        counts=(2, 3),
    ),
    shape=_depth_to_space_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


declare(
    signature(
        OperationType.SPACE_TO_DEPTH,
        V1_0,
        "Moves blocks of pixels to blocks of channels.",
        inputs=[data("input"), control("block_size"), _NCHW],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
        counts=(2, 3),
    ),
    shape=_space_to_depth_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def block_shape_of(node: Node) -> tuple[int, int]:
    """Height and width of operand 'block_shape', more than 0."""
    height, width = control_values(node, "block_shape", 2)
    node.require(
        height > 0 and width > 0,
        f"operand 'block_shape' is {[height, width]}, expected more than 0",
    )
    return height, width


def _batch_to_space_shape(node: Node) -> list[TensorType]:
    n, h, w, c = extents_of(node)
    bh, bw = block_shape_of(node)
    node.require(n % (bh * bw) == 0, f"operand 'input' has {n} batches, no multiple of {bh} x {bw}")
    return _answer(node, n // (bh * bw), h * bh, w * bw, c)


def paddings_of(node: Node) -> list[int]:
    """Top, bottom, left and right padding."""
    paddings = node.tensor("paddings")
    node.require(
        paddings.shape == (2, 2), f"operand 'paddings' has shape {paddings.shape}, expected (2, 2)"
    )
    values = [int(v) for v in paddings.numbers]
    node.require(min(values) >= 0, f"operand 'paddings' is {values}, expected no negative value")
    return values


def _space_to_batch_shape(node: Node) -> list[TensorType]:
    n, h, w, c = extents_of(node)
    bh, bw = block_shape_of(node)
    top, bottom, left, right = paddings_of(node)
    h, w = h + top + bottom, w + left + right
    node.require(
        h % bh == 0 and w % bw == 0,
        f"operand 'input' is {h} x {w} when padded, no multiple of {bh} x {bw}",
    )
    return _answer(node, n * bh * bw, h // bh, w // bw, c)


declare(
    signature(
        OperationType.BATCH_TO_SPACE_ND,
        V1_1,
        "Moves groups of batches to blocks of pixels.",
        inputs=[data("input"), control("block_shape", I32), _NCHW],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
        counts=(2, 3),
    ),
    shape=_batch_to_space_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


declare(
    signature(
        OperationType.SPACE_TO_BATCH_ND,
        V1_1,
        "Pads height and width, then moves blocks of pixels to groups of batches.",
        inputs=[
            data("input"),
            control("block_shape", I32),
            control("paddings", I32),
            _NCHW,
        ],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
        counts=(3, 4),
    ),
    shape=_space_to_batch_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
