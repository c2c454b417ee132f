"""One step of each cell that keeps a state, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.models.small_models.source import Maker, SmallModel

_T = OperandType
_O = OperationType
_F32, _I32, _Q8 = _T.TENSOR_FLOAT32, _T.TENSOR_INT32, _T.TENSOR_QUANT8_ASYMM
_Q8S, _S8, _S16 = _T.TENSOR_QUANT8_ASYMM_SIGNED, _T.TENSOR_QUANT8_SYMM, _T.TENSOR_QUANT16_SYMM


def lstm() -> SmallModel:
    """LSTM with coupled gates: 2 inputs, 4 cells."""
    m = Maker()
    inputs = [
        m.random(_F32, (1, 2)),
        m.absent(_F32), *(m.random(_F32, (4, 2)) for _ in range(3)),
        m.absent(_F32), *(m.random(_F32, (4, 4)) for _ in range(3)),
        *(m.absent(_F32) for _ in range(3)),
        m.absent(_F32), *(m.random(_F32, (4,)) for _ in range(3)),
        m.absent(_F32), m.absent(_F32),
        m.random(_F32, (1, 4)), m.random(_F32, (1, 4)),
        m.builder.scalar(4), m.builder.scalar(0.0), m.builder.scalar(0.0),
    ]  # fmt: skip
    outputs = [m.result(_F32, (1, extent)) for extent in (12, 4, 4, 4)]
    return m.finish("LSTM", _O.LSTM, inputs, outputs)


def quantized_16bit_lstm() -> SmallModel:
    """QUANTIZED_16BIT_LSTM: 2 inputs, 4 cells."""
    m = Maker()
    value, weight = (1 / 128, 128), (1 / 256, 100)
    bias = 1 / 128 / 256
    inputs = [
        m.random(_Q8, (2, 2), *value),
        *(m.random(_Q8, (4, 2), *weight) for _ in range(4)),
        *(m.random(_Q8, (4, 4), *weight) for _ in range(4)),
        *(m.random(_I32, (4,), bias) for _ in range(4)),
        m.random(_S16, (2, 4), 1 / 2048), m.random(_Q8, (2, 4), *value),
    ]  # fmt: skip
    outputs = [m.result(_S16, (2, 4), 1 / 2048), m.result(_Q8, (2, 4), *value)]
    return m.finish("QUANTIZED_16BIT_LSTM", _O.QUANTIZED_16BIT_LSTM, inputs, outputs)


def quantized_lstm() -> SmallModel:
    """QUANTIZED_LSTM with coupled gates: 2 inputs, 4 cells."""
    m = Maker()
    weight, state = 1 / 128, 1 / 32768
    inputs = [
        m.random(_Q8S, (2, 2), 1 / 128),
        m.absent(_S8, weight), *(m.random(_S8, (4, 2), weight) for _ in range(3)),
        m.absent(_S8, weight), *(m.random(_S8, (4, 4), weight) for _ in range(3)),
        *(m.absent(_S16, 1.0) for _ in range(3)),
        m.absent(_I32), *(m.random(_I32, (4,)) for _ in range(3)),
        m.absent(_S8, weight), m.absent(_I32),
        m.random(_Q8S, (2, 4), 1 / 128), m.random(_S16, (2, 4), state),
        *(m.absent(_S16, 1.0) for _ in range(4)),
        *map(m.builder.scalar, (0.0, 0.0, 1 / 128, 1 / 128, 1 / 128, 1 / 128, 0, 1 / 128)),
    ]  # fmt: skip
    outputs = [
        m.result(_Q8S, (2, 4), 1 / 128), m.result(_S16, (2, 4), state),
        m.result(_Q8S, (2, 4), 1 / 128),
    ]  # fmt: skip
    return m.finish("QUANTIZED_LSTM", _O.QUANTIZED_LSTM, inputs, outputs)


CELLS: Final[tuple[Callable[[], SmallModel], ...]] = (lstm, quantized_16bit_lstm, quantized_lstm)
