"""DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND: blocks of pixels moved.

Each pair of operations shares one pair of views of equal shape: of the tensor with many channels
or batches, and of the wide one. NNAPI: CpuExecutor.cpp, OperationsExecutionUtils.cpp.
DEVIATES: before 1.2 a quantised input of SPACE_TO_BATCH_ND needed zero point 0. Operations do not
know the version of their model; every zero point can be computed.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, Run, operation
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
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.families.data_movement import control_values, copies, moved
from nnburst.hal.enums import ErrorStatus, OperationType

_NCHW = control("nchw", BOOL, default=False, since=V1_2)


def _extents(node: Node) -> tuple[int, int, int, int]:
    """Batches, height, width and channels of operand 'input'."""
    shape = node.tensor("input").shape
    node.require(len(shape) == 4, f"operand 'input' has rank {len(shape)}, expected 4")
    n, *rest = shape
    c, h, w = rest if node.value("nchw") else (rest[2], rest[0], rest[1])
    return n, h, w, c


def _answer(node: Node, n: int, h: int, w: int, c: int) -> list[TensorType]:
    return [moved(node, (n, c, h, w) if node.value("nchw") else (n, h, w, c))]


def _block_size(node: Node) -> int:
    block = int(node.value("block_size"))
    node.require(block > 0, f"operand 'block_size' is {block}, expected more than 0")
    return block


def _depth_to_space_shape(node: Node) -> list[TensorType]:
    n, h, w, c = _extents(node)
    block = _block_size(node)
    node.require(c % block**2 == 0, f"operand 'input' has {c} channels, no multiple of {block}²")
    return _answer(node, n, h * block, w * block, c // block**2)


def _space_to_depth_shape(node: Node) -> list[TensorType]:
    n, h, w, c = _extents(node)
    block = _block_size(node)
    node.require(
        h % block == 0 and w % block == 0,
        f"operand 'input' has height {h} and width {w}, not both multiples of {block}",
    )
    return _answer(node, n, h // block, w // block, c * block**2)


def _depth_views(deep: Array, wide: Array, block: int, nchw: bool) -> tuple[Array, Array]:
    if nchw:
        n, c, h, w = deep.shape
        depth = c // block**2
        split = deep.reshape(n, block, block, depth, h, w)
        return split.transpose(0, 3, 4, 1, 5, 2), wide.reshape(n, depth, h, block, w, block)
    n, h, w, c = deep.shape
    depth = c // block**2
    split = deep.reshape(n, h, w, block, block, depth)
    return split.transpose(0, 1, 3, 2, 4, 5), wide.reshape(n, h, block, w, block, depth)


@operation(
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
    half=True,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def depth_to_space(node: Node) -> Run:
    """Copy from the deep view to the wide one."""
    x, y = node.tensor("input").array, node.output().array
    deep, wide = _depth_views(x, y, _block_size(node), node.value("nchw"))
    return copies((wide, deep))


@operation(
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
    half=True,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def space_to_depth(node: Node) -> Run:
    """Copy from the wide view to the deep one."""
    x, y = node.tensor("input").array, node.output().array
    deep, wide = _depth_views(y, x, _block_size(node), node.value("nchw"))
    return copies((deep, wide))


def _block_shape(node: Node) -> tuple[int, int]:
    height, width = control_values(node, "block_shape", 2)
    node.require(
        height > 0 and width > 0,
        f"operand 'block_shape' is {[height, width]}, expected more than 0",
    )
    return height, width


def _batch_to_space_shape(node: Node) -> list[TensorType]:
    n, h, w, c = _extents(node)
    bh, bw = _block_shape(node)
    node.require(n % (bh * bw) == 0, f"operand 'input' has {n} batches, no multiple of {bh} x {bw}")
    return _answer(node, n // (bh * bw), h * bh, w * bw, c)


def _paddings(node: Node) -> list[int]:
    """Top, bottom, left and right padding."""
    paddings = node.tensor("paddings")
    node.require(
        paddings.shape == (2, 2), f"operand 'paddings' has shape {paddings.shape}, expected (2, 2)"
    )
    values = [int(v) for v in paddings.array.flat]
    node.require(min(values) >= 0, f"operand 'paddings' is {values}, expected no negative value")
    return values


def _space_to_batch_shape(node: Node) -> list[TensorType]:
    n, h, w, c = _extents(node)
    bh, bw = _block_shape(node)
    top, bottom, left, right = _paddings(node)
    h, w = h + top + bottom, w + left + right
    node.require(
        h % bh == 0 and w % bw == 0,
        f"operand 'input' is {h} x {w} when padded, no multiple of {bh} x {bw}",
    )
    return _answer(node, n * bh * bw, h // bh, w // bw, c)


def _batch_views(
    many: Array, wide: Array, block: tuple[int, int], nchw: bool
) -> tuple[Array, Array]:
    bh, bw = block
    if nchw:
        total, c, h, w = many.shape
        n = total // (bh * bw)
        split = many.reshape(bh, bw, n, c, h, w)
        return split.transpose(2, 3, 4, 0, 5, 1), wide.reshape(n, c, h, bh, w, bw)
    total, h, w, c = many.shape
    n = total // (bh * bw)
    split = many.reshape(bh, bw, n, h, w, c)
    return split.transpose(2, 3, 0, 4, 1, 5), wide.reshape(n, h, bh, w, bw, c)


@operation(
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
    half=True,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def batch_to_space_nd(node: Node) -> Run:
    """Copy from the view with many batches to the wide one."""
    x, y = node.tensor("input").array, node.output().array
    many, wide = _batch_views(x, y, _block_shape(node), node.value("nchw"))
    return copies((wide, many))


@operation(
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
    half=True,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def space_to_batch_nd(node: Node) -> Run:
    """Copy from the wide view of the padded input to the one with many batches."""
    x, y, nchw = node.tensor("input"), node.output().array, bool(node.value("nchw"))
    block, (top, bottom, left, right) = _block_shape(node), _paddings(node)
    n, h, w, c = _extents(node)
    height, width = h + top + bottom, w + left + right
    if (height, width) == (h, w):
        many, wide = _batch_views(y, x.array, block, nchw)
        return copies((many, wide))
    padded = node.scratch((n, c, height, width) if nchw else (n, height, width, c), x.dtype)
    inner = (slice(top, top + h), slice(left, left + w))
    middle = padded[(..., *inner)] if nchw else padded[(slice(None), *inner)]
    many, wide = _batch_views(y, padded, block, nchw)
    copy = copies((middle, x.array), (many, wide))
    zero_point = x.zero_point

    def run() -> None:
        padded.fill(zero_point)
        copy()

    return run
