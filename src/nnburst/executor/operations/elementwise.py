"""Declares the operations that compute each element by itself: arithmetic, comparisons, logic, casts.

Operations on two tensors broadcast them as numpy does; the shape rule is the same for all of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.declarations import (
    B8,
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    Q16A,
    Q16S,
    QPC,
    QSYM8,
    V1_0,
    V1_1,
    V1_2,
    V1_3,
    broadcast_shape,
    control,
    data,
    require_rank_up_to_4,
    row,
    rows,
    same_shape,
    same_shape_up_to_rank_4,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType, float32, float32_products
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import QUANTIZED_RANGES, Operand
from nnburst.hal.signature import Check, Match, Signature

# -- Functions of two tensors: ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW ---------------------------
# NNAPI: Broadcast.cpp, MaximumMinimum.cpp, Pow.cpp.


def _rank_check(type: OperationType) -> Check:  # noqa: A002 - NNAPI's word
    def check(_: Match, inputs: Sequence[Operand], __: Sequence[Operand]) -> None:
        ranks = [len(operand.dimensions) for operand in inputs[:2]]
        # NNAPI: one unknown rank leaves the rule to execution.
        if min(ranks) > 0 and max(ranks) > 4:
            raise InvalidArgument(
                f"validation:P4: {type.name}: operands 'input0' and 'input1' have ranks {ranks}, at most 4"
            )

    return check


def _check_mul(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    _rank_check(OperationType.MUL)(match, inputs, outputs)
    if inputs[0].type in QUANTIZED_RANGES:
        (product,) = float32_products(inputs[0].scale, [inputs[1].scale])
        if not float32(outputs[0].scale) > product:
            raise InvalidArgument(
                f"validation:P4: MUL: operand 'output' has scale {outputs[0].scale},"
                f" which must exceed the product {product} of the inputs' scales"
            )


def _arithmetic_shape(node: Node) -> list[TensorType]:
    require_rank_up_to_4(node, "input0", "input1")
    return broadcast_shape(node)


def _divide_shape(node: Node) -> list[TensorType]:
    # NNAPI: validation lets the type through, the kernel does not have it.
    node.require(
        node.tensor("input0").type != Q8S,
        f"operand 'input0' is {Q8S.name}, which DIV does not take",
    )
    return _arithmetic_shape(node)


_INPUTS = (data("input0"), data("input1"), control("activation"))
_OUTPUTS = (data("output"),)


declare(
    signature(
        OperationType.ADD,
        V1_0,
        "Adds two tensors element by element, broadcasting.",
        inputs=_INPUTS,
        outputs=_OUTPUTS,
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S, I32]),
        check=_rank_check(OperationType.ADD),
    ),
    shape=_arithmetic_shape,
    zero_sized=True,
)


declare(
    signature(
        OperationType.SUB,
        V1_1,
        "Subtracts the second tensor from the first, broadcasting.",
        inputs=_INPUTS,
        outputs=_OUTPUTS,
        rows=rows(V1_1=[F32], V1_2=[F16, Q8], V1_3=[Q8S, I32]),
        check=_rank_check(OperationType.SUB),
    ),
    shape=_arithmetic_shape,
    zero_sized=True,
)


declare(
    signature(
        OperationType.MUL,
        V1_0,
        "Multiplies two tensors element by element, broadcasting.",
        inputs=_INPUTS,
        outputs=_OUTPUTS,
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S, I32]),
        check=_check_mul,
    ),
    shape=_arithmetic_shape,
    zero_sized=True,
)


declare(
    signature(
        OperationType.DIV,
        V1_1,
        "Divides the first tensor by the second, broadcasting; int32 rounds down.",
        inputs=_INPUTS,
        outputs=_OUTPUTS,
        rows=rows(V1_1=[F32], V1_2=[F16], V1_3=[I32, Q8S]),
        check=_rank_check(OperationType.DIV),
    ),
    shape=_divide_shape,
    zero_sized=True,
)


def _declare_extremum(type: OperationType, summary: str) -> None:  # noqa: A002 - NNAPI's word
    declare(
        signature(
            type,
            V1_2,
            summary,
            inputs=_INPUTS[:2],
            outputs=_OUTPUTS,
            rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
        ),
        shape=broadcast_shape,
        omitted_status=ErrorStatus.INVALID_ARGUMENT,
    )


_declare_extremum(
    OperationType.MAXIMUM, "The larger of two tensors, element by element, broadcasting."
)
_declare_extremum(
    OperationType.MINIMUM, "The smaller of two tensors, element by element, broadcasting."
)


declare(
    signature(
        OperationType.POW,
        V1_2,
        "Raises the first tensor to the power of the second, broadcasting.",
        inputs=(data("base"), data("exponent")),
        outputs=_OUTPUTS,
        rows=rows(V1_2=[F16, F32]),
    ),
    shape=broadcast_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


# -- Functions of one tensor: ABS, NEG, EXP, LOG, SIN, SQRT, RSQRT, FLOOR --------------------------
# NNAPI: Elementwise.cpp, Neg.cpp, Floor.cpp.


def _signature(
    type: OperationType,  # noqa: A002 - NNAPI's word
    summary: str,
    **types: list[OperandType],
) -> Signature:
    return signature(
        type, V1_2, summary, inputs=[data("input")], outputs=[data("output")], rows=rows(**types)
    )


declare(
    _signature(OperationType.ABS, "Absolute value.", V1_2=[F16, F32], V1_3=[I32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.NEG, "Negation.", V1_2=[F16, F32, I32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.EXP, "Exponential function.", V1_2=[F16, F32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.LOG, "Natural logarithm.", V1_2=[F16, F32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.SIN, "Sine.", V1_2=[F16, F32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.SQRT, "Square root.", V1_2=[F16, F32]),
    shape=same_shape,
)


declare(
    _signature(
        OperationType.RSQRT, "Reciprocal of the square root.", V1_2=[F16, F32], FL7=[Q8, Q8S]
    ),
    shape=same_shape,
)


declare(
    signature(
        OperationType.FLOOR,
        V1_0,
        "Largest integer that is not above the element.",
        inputs=[data("input", rank=(1, 2, 3, 4))],
        outputs=[data("output")],
        rows=rows(V1_0=[F32], V1_2=[F16]),
    ),
    shape=same_shape_up_to_rank_4,
)


# -- Comparisons, LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT, SELECT -------------------------------------
# NNAPI: Comparisons.cpp, LogicalAndOr.cpp, LogicalNot.cpp, Select.cpp.


def _declare_comparison(type: OperationType, summary: str) -> None:  # noqa: A002 - NNAPI's word
    declare(
        signature(
            type,
            V1_2,
            summary,
            inputs=[data("input0"), data("input1")],
            outputs=[data("output", B8)],
            rows=rows(V1_2=[B8, F16, F32, I32, Q8], V1_3=[Q8S]),
        ),
        shape=broadcast_shape,
    )


_declare_comparison(OperationType.EQUAL, "Whether x = y, broadcasting.")
_declare_comparison(OperationType.NOT_EQUAL, "Whether x ≠ y, broadcasting.")
_declare_comparison(OperationType.LESS, "Whether x < y, broadcasting.")
_declare_comparison(OperationType.LESS_EQUAL, "Whether x ≤ y, broadcasting.")
_declare_comparison(OperationType.GREATER, "Whether x > y, broadcasting.")
_declare_comparison(OperationType.GREATER_EQUAL, "Whether x ≥ y, broadcasting.")


def _declare_logical(type: OperationType, summary: str) -> None:  # noqa: A002 - NNAPI's word
    declare(
        signature(
            type,
            V1_2,
            summary,
            inputs=[data("input0", B8), data("input1", B8)],
            outputs=[data("output", B8)],
            rows=[row(V1_2)],
        ),
        shape=broadcast_shape,
    )


_declare_logical(OperationType.LOGICAL_AND, "Whether both are true, broadcasting.")
_declare_logical(OperationType.LOGICAL_OR, "Whether either is true, broadcasting.")


declare(
    signature(
        OperationType.LOGICAL_NOT,
        V1_2,
        "Whether it is false.",
        inputs=[data("input", B8)],
        outputs=[data("output", B8)],
        rows=[row(V1_2)],
    ),
    shape=same_shape,
)


# SELECT


def _select_shape(node: Node) -> list[TensorType]:
    condition = node.tensor("condition").shape
    for name in ("input0", "input1"):
        shape = node.tensor(name).shape
        node.require(
            shape == condition,
            f"operand '{name}' is {list(shape)}, but 'condition' is {list(condition)}"
            " (nothing is broadcast)",
        )
    return [node.like_declared(condition)]


declare(
    signature(
        OperationType.SELECT,
        V1_2,
        "Takes each element from the first tensor where the condition is true, else from the second.",
        inputs=[data("condition", B8), data("input0"), data("input1")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_select_shape,
)


# -- Changes of type: QUANTIZE, DEQUANTIZE, CAST ---------------------------------------------------
# NNAPI: Quantize.cpp, Dequantize.cpp, Cast.cpp.


declare(
    signature(
        OperationType.QUANTIZE,
        V1_2,
        "Stores real numbers as 8-bit integers with the output's scale and zero point.",
        inputs=[data("input", "T")],
        outputs=[data("output", "Q")],
        rows=[row(V1_2, T=(F16, F32), Q=Q8), row(V1_3, T=(F16, F32), Q=Q8S)],
    ),
    shape=same_shape,
    zero_sized=True,
)


declare(
    signature(
        OperationType.DEQUANTIZE,
        V1_0,
        "Real numbers of stored integers.",
        inputs=[data("input", "Q", rank=(1, 2, 3, 4))],
        outputs=[data("output", "T")],
        rows=[
            row(V1_0, Q=Q8, T=F32),
            row(V1_2, Q=(Q8, QSYM8, QPC), T=(F16, F32)),
            row(V1_3, Q=Q8S, T=(F16, F32)),
        ],
    ),
    shape=same_shape_up_to_rank_4,
    zero_sized=True,
)


_CASTABLE = (F16, F32, I32, Q8)


def _check_cast(_: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    given, wanted = inputs[0].dimensions, outputs[0].dimensions
    if not given or not wanted:
        return
    if len(given) != len(wanted) or any(
        a != b and a != 0 and b != 0 for a, b in zip(given, wanted, strict=True)
    ):
        raise InvalidArgument(
            f"validation:P4: CAST: operand 'output' is {list(wanted)}, but 'input' is {list(given)}"
        )


declare(
    signature(
        OperationType.CAST,
        V1_2,
        "Converts the elements' type; stored integers are plain numbers here, without scale.",
        inputs=[data("input", "T")],
        outputs=[data("output", "O")],
        rows=[
            row(V1_2, T=_CASTABLE, O=_CASTABLE),
            *(row(V1_3, T=t, O=t) for t in (B8, Q8S, QSYM8, Q16A, Q16S)),
        ],
        check=_check_cast,
    ),
    shape=same_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
