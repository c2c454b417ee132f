"""QUANTIZE, DEQUANTIZE, CAST: signatures and shape rules.

NNAPI: Quantize.cpp, Dequantize.cpp, Cast.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.operation import declare
from nnburst.executor.graph.shape_rules import same_shape, same_shape_up_to_rank_4
from nnburst.executor.graph.signatures import (
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
    V1_2,
    V1_3,
    data,
    row,
    signature,
)
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match

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
