"""Helpers for declaring operations: slots and signatures, shape rules, dimensions and scales.

A shape rule takes a node and returns the types of its outputs, or raises OperationFailed. Rules that many
operations share are here; the others are in `nnburst.executor.operations`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from nnburst.executor.graph.operation import Node, OperationFailed
from nnburst.executor.graph.tensor import Tensor, TensorType, float32_products
from nnburst.hal.enums import FeatureLevel, OperandType, OperationType
from nnburst.hal.model import QUANTIZED_RANGES
from nnburst.hal.signature import REQUIRED, Check, Form, Role, Signature, Slot, TypeRow

V1_0: Final = FeatureLevel.V1_0
V1_1: Final = FeatureLevel.V1_1
V1_2: Final = FeatureLevel.V1_2
V1_3: Final = FeatureLevel.V1_3
FL6: Final = FeatureLevel.AIDL_V2
FL7: Final = FeatureLevel.AIDL_V3

F32: Final = OperandType.TENSOR_FLOAT32
F16: Final = OperandType.TENSOR_FLOAT16
I32: Final = OperandType.TENSOR_INT32
B8: Final = OperandType.TENSOR_BOOL8
Q8: Final = OperandType.TENSOR_QUANT8_ASYMM
Q8S: Final = OperandType.TENSOR_QUANT8_ASYMM_SIGNED
QSYM8: Final = OperandType.TENSOR_QUANT8_SYMM
QPC: Final = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
Q16A: Final = OperandType.TENSOR_QUANT16_ASYMM
Q16S: Final = OperandType.TENSOR_QUANT16_SYMM
INT32: Final = OperandType.INT32
BOOL: Final = OperandType.BOOL
FLOAT32: Final = OperandType.FLOAT32
FLOAT16: Final = OperandType.FLOAT16
SUBGRAPH: Final = OperandType.SUBGRAPH


def data(
    name: str,
    type: OperandType | str = "T",  # noqa: A002 - NNAPI's word
    *,
    nullable: bool = False,
    repeats: int | None = None,
    rank: Sequence[int] = (),
    since: FeatureLevel = V1_0,
) -> Slot:
    """A tensor whose elements are computed with."""
    return Slot(
        name, type, Role.DATA, nullable=nullable, repeats=repeats, rank=tuple(rank), since=since
    )


def control(
    name: str,
    type: OperandType | str = INT32,  # noqa: A002
    *,
    default: object = REQUIRED,
    nullable: bool = False,
    since: FeatureLevel = V1_0,
    rank: Sequence[int] = (),
) -> Slot:
    """A scalar or small tensor that steers shape or configuration."""
    return Slot(name, type, Role.CONTROL, default, nullable, since, rank=tuple(rank))


def index(name: str) -> Slot:
    """A tensor of INT32 whose elements are used as indexes or lengths."""
    return Slot(name, I32, Role.INDEX)


def row(since: FeatureLevel, **types: OperandType | Sequence[OperandType]) -> TypeRow:
    """One accepted combination: `row(V1_2, T=F16, B=F16)`; a list of types means any of them."""
    return TypeRow(
        since,
        {k: v if isinstance(v, OperandType) else frozenset(v) for k, v in types.items()},
    )


def rows(**by_version: Sequence[OperandType]) -> tuple[TypeRow, ...]:
    """Rows of a signature with the single variable T: `rows(V1_0=[F32, Q8], V1_2=[F16])`."""
    levels = {"V1_0": V1_0, "V1_1": V1_1, "V1_2": V1_2, "V1_3": V1_3, "FL6": FL6, "FL7": FL7}
    return tuple(row(levels[v], T=t) for v, types in by_version.items() for t in types)


def signature(
    type: OperationType,  # noqa: A002
    since: FeatureLevel,
    summary: str,
    inputs: Sequence[Slot],
    outputs: Sequence[Slot],
    rows: Sequence[TypeRow],
    *,
    counts: Sequence[int] = (),
    check: Check | None = None,
) -> Signature:
    """A signature with a single form; `counts` lists the accepted numbers of inputs."""
    form = Form(tuple(inputs), tuple(outputs), tuple(counts))
    return Signature(type, since, (form,), tuple(rows), summary, check)


# -- Shape rules that many operations share --------------------------------------------------------


def require_rank_up_to_4(node: Node, *names: str) -> None:
    """Check ranks at execution, for models whose ranks validation could not see."""
    for name in names:
        rank = len(node.tensor(name).shape)
        node.require(rank <= 4, f"operand '{name}' has rank {rank}, expected 1 to 4")


def same_shape(node: Node) -> list[TensorType]:
    """One output with the extents of the first input, quantised as declared."""
    return [node.like_declared(_first(node).shape)]


def same_shape_up_to_rank_4(node: Node) -> list[TensorType]:
    """`same_shape` for operations that take at most four dimensions."""
    require_rank_up_to_4(node, node.match.inputs[0].name)
    return same_shape(node)


def same_type(node: Node, dimensions: Sequence[int]) -> TensorType:
    """The first input's type and quantisation with other extents: a forced quantisation."""
    meta = _first(node).meta
    return TensorType(meta.type, tuple(dimensions), meta.scale, meta.zero_point)


def broadcast_dimensions(node: Node, first: str, second: str) -> tuple[int, ...]:
    """Extents of two inputs aligned at the right; an extent of 1 stretches to the other's.

    NNAPI: IndexedShapeWrapper.cpp, calculateBroadcastedShape; 1 against 0 gives 0.
    """
    a, b = node.tensor(first).shape, node.tensor(second).shape
    reversed_result = []
    for x, y in zip_longest(reversed(a), reversed(b), fillvalue=1):
        node.require(
            x == y or 1 in (x, y),
            f"operands '{first}' {list(a)} and '{second}' {list(b)} do not broadcast",
        )
        reversed_result.append(y if x == 1 else x)
    return tuple(reversed(reversed_result))


def broadcast_shape(node: Node) -> list[TensorType]:
    """One output with the broadcast extents of the first two inputs, quantised as declared."""
    first, second = (slot.name for slot in node.match.inputs[:2])
    return [node.like_declared(broadcast_dimensions(node, first, second))]


def _first(node: Node) -> Tensor:
    return node.tensor(node.match.inputs[0].name)


def require_dimensions(node: Node, name: str, expected: Sequence[int]) -> None:
    """Refuse operand `name`, unless omitted, with other dimensions than `expected`."""
    tensor = node.find(name)
    if tensor is not None:
        node.require(
            tensor.shape == tuple(expected),
            f"operand '{name}' has dimensions {list(tensor.shape)}, expected {list(expected)}",
        )


def require_rank(node: Node, name: str, rank: int) -> tuple[int, ...]:
    """Dimensions of operand `name`, which must have `rank` of them."""
    shape = node.tensor(name).shape
    node.require(len(shape) == rank, f"operand '{name}' has rank {len(shape)}, expected {rank}")
    return shape


# -- Scales of quantised operands: of biases, and ratios as integers and shifts --------------------
# NNAPI: OperationsExecutionUtils.cpp, QuantUtils.cpp.


def quantize_multiplier(real: float) -> tuple[int, int]:
    """The pair (m, shift) with real ≈ m * 2**(shift - 31) and 2**30 ≤ m < 2**31; (0, 0) for 0.

    Args:
        real: a ratio of scales. If NNAPI forms a product of scales in float32, so must the
            caller.

    Raises:
        OperationFailed: it is negative, infinite or NaN.
    """
    if not (math.isfinite(real) and real >= 0):
        raise OperationFailed(
            f"scales give the multiplier {real}, which is not a finite number ≥ 0"
        )
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = 1 << 30, shift + 1
    # NNAPI: a ratio below 2**-32 cannot be distinguished from 0 after the shift.
    return (0, 0) if shift < -31 else (multiplier, shift)


def require_bias_scale(node: Node, filter_name: str) -> None:
    """Fail if the scale of a per-tensor quantised bias is not that of the products."""
    source, weights, bias = (node.tensor(n).meta for n in ("input", filter_name, "bias"))
    if source.type not in QUANTIZED_RANGES or weights.extra_params is not None:
        return
    (product,) = float32_products(source.scale, [weights.scale])
    node.require(
        abs(product - bias.scale) <= 1e-6 * min(product, bias.scale),
        f"operand 'bias' has scale {bias.scale}, expected input times filter scale {product}",
    )


def scale_exponent(node: Node, name: str) -> int:
    """The e with which operand `name` has the scale 2**e.

    Raises:
        OperationFailed: the scale is not a power of two (NNAPI: within 0.001 of the exponent).
    """
    scale = node.tensor(name).scale
    exponent = math.log2(scale) if scale > 0 else math.nan
    node.require(
        math.isfinite(exponent) and abs(exponent - round(exponent)) < 1e-3,
        f"operand '{name}' has scale {scale}, expected a power of two",
    )
    return round(exponent)
