"""Has models that fronts of tests serve by `module:attribute`, and an executor that inputs control."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np

from nnburst.executor import base
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.importer.imported_model import ImportedModel, State

#: First values of an input that mean something to `Obedient`: an end by SIGKILL, 1 s of sleep.
DIE, SLEEP = 1009.0, 2000.0


def add() -> ImportedModel:
    """y = a + b, float32 of shape (2, 3)."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    a, b = builder.input(kind, (2, 3)), builder.input(kind, (2, 3))
    y = builder.output(kind, (2, 3))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [y])
    return ImportedModel(builder.build(), input_names=("a", "b"), output_names=("y",))


def both() -> ImportedModel:
    """sum and difference of two int32 vectors of any length."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_INT32
    a, b = builder.input(kind, (0,)), builder.input(kind, (0,))
    total, difference = builder.output(kind, (0,)), builder.output(kind, (0,))
    none = builder.scalar(0)
    builder.operation(OperationType.ADD, [a, b, none], [total])
    builder.operation(OperationType.SUB, [a, b, none], [difference])
    return ImportedModel(builder.build(), output_names=("sum", "difference"))


def absolutes(count: int = 4) -> ImportedModel:
    """Absolute values of a tensor of rank 4 and any extents, once for each of `count` outputs."""
    builder = ModelBuilder()
    kind, shape = OperandType.TENSOR_FLOAT32, (0, 0, 0, 0)
    x = builder.input(kind, shape)
    for _ in range(count):
        builder.operation(OperationType.ABS, [x], [builder.output(kind, shape)])
    return ImportedModel(builder.build())


def half_named() -> ImportedModel:
    """`both`, whose second input and first output have the names that the nameless ones would get."""
    return replace(both(), input_names=("", "input_0"), output_names=("output_1", ""))


def conjunction() -> ImportedModel:
    """x and y, truth values of shape (4,)."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_BOOL8
    x, y = builder.input(kind, (4,)), builder.input(kind, (4,))
    both_true = builder.output(kind, (4,))
    builder.operation(OperationType.LOGICAL_AND, [x, y], [both_true])
    return ImportedModel(builder.build(), input_names=("x", "y"), output_names=("both",))


def quantised() -> Model:
    """RELU of quantised values; names of its own it has none."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_QUANT8_ASYMM
    x = builder.input(kind, (4,), scale=0.5, zero_point=100)
    y = builder.output(kind, (4,), scale=0.5, zero_point=100)
    builder.operation(OperationType.RELU, [x], [y])
    return builder.build()


def accumulate() -> ImportedModel:
    """A running sum that begins at (10, 20)."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    x, before = builder.input(kind, (2,)), builder.input(kind, (2,))
    y, after = builder.output(kind, (2,)), builder.output(kind, (2,))
    none = builder.scalar(0)
    builder.operation(OperationType.ADD, [x, before, none], [after])
    builder.operation(OperationType.ADD, [x, before, none], [y])
    state = State("sum", 1, 1, np.float32([10, 20]))
    return ImportedModel(
        builder.build(), input_names=("x", "sum"), output_names=("y", "sum"), states=(state,)
    )


def behind_a_state() -> ImportedModel:
    """2 x of any length, behind a state that doubles."""
    builder = ModelBuilder()
    kind, none = OperandType.TENSOR_FLOAT32, builder.scalar(0)
    before, x = builder.input(kind, (2,)), builder.input(kind, (0,))
    after, y = builder.output(kind, (2,)), builder.output(kind, (0,))
    builder.operation(OperationType.ADD, [before, before, none], [after])
    builder.operation(OperationType.ADD, [x, x, none], [y])
    return ImportedModel(builder.build(), states=(State("doubled", 0, 0, np.float32([1, 2])),))


class _Execution(base.Execution):
    def __init__(self, execution: Any, first: Any) -> None:
        self._execution, self._first = execution, first

    def run(self, *deadlines: Any, **more: Any) -> Any:
        wish = self._first.view(np.float32)[0]
        if wish == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if wish == SLEEP:
            time.sleep(1)
        return self._execution.run(*deadlines, **more)

    def close(self) -> None:
        self._execution.close()


class _Prepared(base.Prepared):
    def __init__(self, prepared: Any) -> None:
        self._prepared = prepared

    def bind(self, inputs: Any, outputs: Any) -> _Execution:
        return _Execution(self._prepared.bind(inputs, outputs), inputs[0].buffer)

    def close(self) -> None:
        self._prepared.close()


class Obedient(base.Executor):
    """The reference executor, which dies or sleeps first if an input begins with DIE or SLEEP."""

    name = "obedient"

    def __init__(self) -> None:
        self._inner = ReferenceExecutor()

    def supported(self, model: Any) -> Any:
        return self._inner.supported(model)

    def prepare(self, *arguments: Any, **more: Any) -> _Prepared:
        return _Prepared(self._inner.prepare(*arguments, **more))


class Unready(Obedient):
    """Prepares nothing: it writes a line to stderr, and sleeps for longer than any test."""

    def prepare(self, *_arguments: Any, **_more: Any) -> _Prepared:
        os.write(2, b"preparing\n")
        time.sleep(3600)
        raise AssertionError
