"""Declares the operations that keep all elements and change only their shape or order.

Checks that several families use come first: values of CONTROL tensors, axes, ranks, quantisation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from nnburst.executor.graph.declarations import (
    BOOL,
    F16,
    F32,
    FL7,
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
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.windows import in_layout, is_nchw, nhwc_extents
from nnburst.hal.enums import ErrorStatus, OperandLifeTime, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import MAX_RANK
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match

UP_TO_4: Final = (1, 2, 3, 4)


def moved(node: Node, dimensions: Sequence[int], index: int = 0) -> TensorType:
    """Output `index` with the quantisation of operand 'input' forced on it."""
    meta = node.tensor("input").meta
    kind = node.declared(index).type
    return TensorType(kind, tuple(dimensions), meta.scale, meta.zero_point, meta.extra_params)


def control_values(
    node: Node, name: str, length: int | None = None, most: int | None = None
) -> list[int]:
    """Values of a CONTROL tensor, which must be one-dimensional.

    Args:
        node: the operation.
        name: the operand.
        length: the required number of elements; None for any.
        most: the largest number of elements; None for any.
    """
    found = node.tensor(name)
    node.require(len(found.shape) == 1, f"operand '{name}' has shape {found.shape}, not rank 1")
    (size,) = found.shape
    node.require(
        length is None or size == length, f"operand '{name}' has {size} elements, expected {length}"
    )
    node.require(
        most is None or size <= most, f"operand '{name}' has {size} elements, at most {most} fit"
    )
    return [int(v) for v in found.numbers]


def resolve_axis(node: Node, rank: int) -> int:
    """Value of the scalar 'axis' in [0, rank); the operand may count from the end."""
    axis = int(node.value("axis"))
    node.require(-rank <= axis < rank, f"operand 'axis' is {axis}, expected [{-rank}, {rank - 1}]")
    return axis % rank


def require_ranks(node: Node) -> None:
    """Fail if a shape known only at execution breaks the rank that its slot accepts."""
    for slot, tensor in zip(node.match.inputs, node.inputs, strict=True):
        if slot.rank and tensor is not None:
            node.require(
                len(tensor.shape) in slot.rank,
                f"operand '{slot.name}' has rank {len(tensor.shape)},"
                f" expected {' or '.join(map(str, slot.rank))}",
            )


def check_same_quantization(
    match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> None:
    """validation:P4: every operand 'input' has the scale and zero point of the output."""
    wanted = outputs[0].scale, outputs[0].zero_point
    for slot, operand in zip(match.inputs, inputs, strict=True):
        if slot.name == "input" and (operand.scale, operand.zero_point) != wanted:
            raise InvalidArgument(
                f"validation:P4: operand 'input' has scale {operand.scale} and zero point"
                f" {operand.zero_point}, the output {wanted[0]} and {wanted[1]}"
            )


def check_output_rank(
    match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand], added: int = 0
) -> None:
    """validation:P4: the output has the rank of every operand 'input' plus `added`, if ranks are known."""
    wanted = len(outputs[0].dimensions)
    for slot, operand in zip(match.inputs, inputs, strict=True):
        rank = len(operand.dimensions)
        if slot.name == "input" and rank and wanted and rank + added != wanted:
            raise InvalidArgument(
                f"validation:P4: operand 'output' has rank {wanted}, expected {rank + added}"
            )


# -- RESHAPE, EXPAND_DIMS, SQUEEZE -----------------------------------------------------------------
# NNAPI: Reshape.cpp, ExpandDims.cpp, Squeeze.cpp.


def _reshape_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    count = math.prod(node.tensor("input").shape)
    target = control_values(node, "shape", most=MAX_RANK)
    node.require(target.count(-1) <= 1, f"operand 'shape' is {target}: more than one -1")
    node.require(min(target, default=1) >= -1, f"operand 'shape' is {target}: negative extent")
    if -1 in target:
        known = math.prod(d for d in target if d != -1)
        node.require(
            known > 0 and count % known == 0,
            f"operand 'shape' is {target}: -1 cannot stand for {count} elements",
        )
        target[target.index(-1)] = count // known
    node.require(
        math.prod(target) == count,
        f"operand 'shape' is {target}: 'input' has {count} elements",
    )
    return [moved(node, target)]


declare(
    signature(
        OperationType.RESHAPE,
        V1_0,
        "Gives a tensor other extents; one of them may be -1, which stands for what is left.",
        inputs=[data("input", rank=UP_TO_4), control("shape", I32)],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S], FL6=[I32]),
    ),
    shape=_reshape_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _expand_dims_shape(node: Node) -> list[TensorType]:
    dimensions = list(node.tensor("input").shape)
    axis, rank = int(node.value("axis")), len(dimensions) + 1
    node.require(-rank <= axis < rank, f"operand 'axis' is {axis}, expected [{-rank}, {rank - 1}]")
    dimensions.insert(axis % rank, 1)
    return [moved(node, dimensions)]


declare(
    signature(
        OperationType.EXPAND_DIMS,
        V1_2,
        "Inserts a dimension of extent 1 at `axis`; a negative axis counts from the output's end.",
        inputs=[data("input"), control("axis")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_expand_dims_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _check_squeeze(match: Match, inputs: Sequence[Operand], _outputs: Sequence[Operand]) -> None:
    """validation:P4: 'squeeze_dims' has rank 1 even if it is omitted, so that its type stays plain.

    DEVIATES: SQUEEZE refuses a 'squeeze_dims' without value of another rank when the model is
    prepared, not when it is executed.
    """
    for slot, operand in zip(match.inputs, inputs, strict=True):
        omitted = operand.lifetime == OperandLifeTime.NO_VALUE
        if slot.name == "squeeze_dims" and omitted and len(operand.dimensions) != 1:
            raise InvalidArgument(
                f"validation:P4: SQUEEZE: operand 'squeeze_dims' has rank {len(operand.dimensions)},"
                " expected 1 also without a value"
            )


def _squeeze_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    dimensions = node.tensor("input").shape
    rank = len(dimensions)
    if node.find("squeeze_dims") is None:
        dropped = {i for i, extent in enumerate(dimensions) if extent == 1}
    else:
        listed = control_values(node, "squeeze_dims")
        wrong = [axis for axis in listed if not -rank <= axis < rank]
        node.require(
            not wrong,
            f"operand 'squeeze_dims' has values {wrong[:1]}, expected [{-rank}, {rank - 1}]",
        )
        dropped = {axis % rank for axis in listed}
        node.require(
            all(dimensions[axis] == 1 for axis in dropped),
            f"operand 'squeeze_dims' names {sorted(dropped)}: extents of 'input' {dimensions}"
            " are not all 1 there",
        )
    left = [extent for i, extent in enumerate(dimensions) if i not in dropped]
    return [moved(node, left or [1])]


declare(
    signature(
        OperationType.SQUEEZE,
        V1_1,
        "Drops the listed dimensions of extent 1, or all of them; a scalar comes out as [1].",
        inputs=[data("input", rank=UP_TO_4), control("squeeze_dims", I32, nullable=True)],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
        check=_check_squeeze,
    ),
    shape=_squeeze_shape,
)


# -- TRANSPOSE, REVERSE, CHANNEL_SHUFFLE -----------------------------------------------------------
# NNAPI: Transpose.cpp, Reverse.cpp, ChannelShuffle.cpp.


def permutation_of(node: Node) -> list[int]:
    """Operand 'perm' of TRANSPOSE; both axes swapped if it is omitted."""
    rank = len(node.tensor("input").shape)
    if node.find("perm") is None:
        node.require(rank == 2, f"operand 'perm' is omitted and 'input' has rank {rank}, not 2")
        return [1, 0]
    perm = control_values(node, "perm", rank)
    node.require(
        sorted(perm) == list(range(rank)),
        f"operand 'perm' is {perm}, expected a permutation of 0 to {rank - 1}",
    )
    return perm


def _transpose_shape(node: Node) -> list[TensorType]:
    """DEVIATES: TRANSPOSE refuses a dimension named twice; the original leaves elements unwritten."""
    require_ranks(node)
    dimensions = node.tensor("input").shape
    return [moved(node, [dimensions[axis] for axis in permutation_of(node)])]


declare(
    signature(
        OperationType.TRANSPOSE,
        V1_1,
        "Permutes the dimensions: output dimension i is input dimension perm[i].",
        inputs=[data("input", rank=UP_TO_4), control("perm", I32, nullable=True)],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_transpose_shape,
    zero_sized=True,
)


def _check_reverse(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    check_same_quantization(match, inputs, outputs)
    check_output_rank(match, inputs, outputs)
    if inputs[1].dimensions not in ((), (0,), (1,)):
        raise InvalidArgument(
            f"validation:P4: REVERSE: operand 'axis' has shape {inputs[1].dimensions}, expected (1,)"
        )


def reverse_axis_of(node: Node) -> int:
    """Operand 'axis' of REVERSE, which has one element."""
    (axis,) = control_values(node, "axis", 1)
    rank = len(node.tensor("input").shape)
    node.require(0 <= axis < rank, f"operand 'axis' is {axis}, expected [0, {rank - 1}]")
    return axis


def _reverse_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    reverse_axis_of(node)
    return [moved(node, node.tensor("input").shape)]


declare(
    signature(
        OperationType.REVERSE,
        FL7,
        "Reverses a tensor along one dimension, which must not be negative.",
        inputs=[data("input", rank=range(1, 9)), control("axis", I32)],
        outputs=[data("output")],
        rows=rows(FL7=[F16, F32, Q8, Q8S, I32]),
        check=_check_reverse,
    ),
    shape=_reverse_shape,
)


def _shuffle_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    dimensions = node.tensor("input").shape
    groups = int(node.value("groups"))
    extent = dimensions[resolve_axis(node, len(dimensions))]
    node.require(groups > 0, f"operand 'groups' is {groups}, expected more than 0")
    node.require(
        extent % groups == 0, f"operand 'groups' is {groups}, which does not divide {extent}"
    )
    return [moved(node, dimensions)]


declare(
    signature(
        OperationType.CHANNEL_SHUFFLE,
        V1_2,
        "Interleaves groups of channels: the first of every group, then the second of every group.",
        inputs=[data("input", rank=UP_TO_4), control("groups"), control("axis")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, Q8], V1_3=[Q8S]),
    ),
    shape=_shuffle_shape,
)


# -- DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND --------------------------
# DEVIATES: before 1.2 a quantised input of SPACE_TO_BATCH_ND needed zero point 0. Operations do not
# know the version of their model; every zero point can be computed.


_NCHW = control("nchw", BOOL, default=False, since=V1_2)


def extents_of(node: Node) -> tuple[int, int, int, int]:
    """Batches, height, width and channels of operand 'input'."""
    shape = node.tensor("input").shape
    node.require(len(shape) == 4, f"operand 'input' has rank {len(shape)}, expected 4")
    return nhwc_extents(shape, is_nchw(node))


def _answer(node: Node, n: int, h: int, w: int, c: int) -> list[TensorType]:
    return [moved(node, in_layout(n, h, w, c, is_nchw(node)))]


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


def block_paddings_of(node: Node) -> list[int]:
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
    top, bottom, left, right = block_paddings_of(node)
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
