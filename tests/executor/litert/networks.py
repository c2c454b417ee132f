"""Small networks for tests of the `litert` executor, and requests on them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nnburst.executor.base import Argument, Execution, Prepared
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

F32 = OperandType.TENSOR_FLOAT32
I32 = OperandType.TENSOR_INT32
Array = np.ndarray[Any, Any]

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None,
    reason="ai-edge-litert is not installed (pip install 'nnburst[litert]')",
)


def convolution(size: int = 16, channels: int = 8) -> Model:
    """A 3 × 3 convolution with bias, RELU by itself, and an average pool."""
    rng = np.random.default_rng(7)
    builder = ModelBuilder()
    x = builder.input(F32, (1, size, size, 3))
    w = builder.constant(F32, rng.standard_normal((channels, 3, 3, 3)))
    b = builder.constant(F32, rng.standard_normal(channels))
    image = (1, size, size, channels)
    summed, clamped = builder.temporary(F32, image), builder.temporary(F32, image)
    y = builder.output(F32, (1, size // 2, size // 2, channels))
    one, two, none = builder.scalar(1), builder.scalar(2), builder.scalar(0)
    builder.operation(OperationType.CONV_2D, [x, w, b, one, one, one, none], [summed])
    builder.operation(OperationType.RELU, [summed], [clamped])
    pool = [clamped, builder.scalar(2), two, two, two, two, none]
    builder.operation(OperationType.AVERAGE_POOL_2D, pool, [y])
    return builder.build()


def addition(count: int = 4) -> Model:
    """x + x."""
    builder = ModelBuilder()
    x, y = builder.input(F32, (count,)), builder.output(F32, (count,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


def gathering() -> Model:
    """Rows of a constant table by an index that is a model input."""
    builder = ModelBuilder()
    table = builder.constant(F32, np.arange(12).reshape(4, 3))
    indices = builder.input(I32, (2,))
    y = builder.output(F32, (2, 3))
    builder.operation(OperationType.GATHER, [table, builder.scalar(0), indices], [y])
    return builder.build()


def aligned(size: int, offset: int = 0) -> Array:
    """`size` zero bytes that start `offset` bytes behind a multiple of 64."""
    room = np.zeros(size + 128 + offset, np.uint8)
    start = -room.ctypes.data % 64 + offset
    return room[start : start + size]


def bind(prepared: Prepared, model: Model, memory: Sequence[Array]) -> Execution:
    """Bind inputs, then outputs, to `memory`."""
    graph = model.main
    count = len(graph.input_indexes)
    arguments = [
        Argument(m, graph.operands[i].dimensions)
        for i, m in zip((*graph.input_indexes, *graph.output_indexes), memory, strict=True)
    ]
    return prepared.bind(arguments[:count], arguments[count:])


def largest_doubled() -> Model:
    """Doubles, takes the two largest (which the engine lacks) and doubles those again."""
    builder = ModelBuilder()
    x = builder.input(F32, (4,))
    doubled, values = builder.output(F32, (4,)), builder.temporary(F32, (2,))
    indices, again = builder.output(I32, (2,)), builder.output(F32, (2,))
    none = builder.scalar(0)
    builder.operation(OperationType.ADD, [x, x, none], [doubled])
    builder.operation(OperationType.TOPK_V2, [doubled, builder.scalar(2)], [values, indices])
    builder.operation(OperationType.ADD, [values, values, none], [again])
    return builder.build()
