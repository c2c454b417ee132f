"""Short words for declaring signatures, so that an operation's declaration reads like its table row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.hal.enums import FeatureLevel, OperandType, OperationType
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


def index(
    name: str,
    type: OperandType | str = I32,  # noqa: A002
    *,
    nullable: bool = False,
    rank: Sequence[int] = (),
) -> Slot:
    """A tensor whose elements are used as indexes or lengths."""
    return Slot(name, type, Role.INDEX, nullable=nullable, rank=tuple(rank))


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
