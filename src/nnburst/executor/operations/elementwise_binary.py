"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW: signatures and shape rules.

NNAPI: Broadcast.cpp, MaximumMinimum.cpp, Pow.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.shape_rules import broadcast_shape, require_rank_up_to_4
from nnburst.executor.graph.signatures import (
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
from nnburst.executor.graph.tensor import TensorType, float32, float32_products
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.hal.signature import Check, Match


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
