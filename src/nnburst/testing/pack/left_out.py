"""What the pack has no cases of, and why: mostly, the naive evaluator has no second implementation."""

from __future__ import annotations

from typing import Final

from nnburst.hal.enums import OperandType, OperationType

_O = OperationType
#: Operations without cases.
LEFT_OUT: Final = {
    _O.LSH_PROJECTION: "hashes of seeds: agreement means copying the hash, not a second way",
    _O.LSTM: "a step of UNIDIRECTIONAL_SEQUENCE_LSTM, which has cases",
    _O.BOX_WITH_NMS_LIMIT: "which boxes stay depends on ties of scores: needs exact float32 order",
    _O.DETECTION_POSTPROCESSING: "as BOX_WITH_NMS_LIMIT",
    _O.GENERATE_PROPOSALS: "as BOX_WITH_NMS_LIMIT",
    _O.HEATMAP_MAX_KEYPOINT: "solves for a maximum between pixels; ties decide the pixel",
    _O.QUANTIZED_16BIT_LSTM: "defined by its integer arithmetic, which real numbers do not reproduce",
    _O.QUANTIZED_LSTM: "defined by its integer arithmetic, which real numbers do not reproduce",
    _O.RANDOM_MULTINOMIAL: "draws: only frequencies could be compared",
    _O.IF: "chooses between graphs, which cases of one operation do not have",
    _O.WHILE: "repeats graphs, which cases of one operation do not have",
    _O.RANK: "its result is known without executing",
}
#: Types without cases of operations that have some.
LEFT_OUT_TYPES: Final = {
    (
        _O.DIV,
        OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    ): "models with it are valid, NNAPI computes none",
}


def left_out() -> dict[str, str]:
    """Reasons by OPERATION and by OPERATION:TYPE, as reports list them."""
    operations = {operation.name: why for operation, why in sorted(LEFT_OUT.items())}
    types = {f"{o.name}:{kind.name}": why for (o, kind), why in sorted(LEFT_OUT_TYPES.items())}
    return {**operations, **types}
