"""Models, compilations and executions for tests of the framework's objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nnburst.hal.enums import OperandType, OperationType, ResultCode
from nnburst.hal.errors import NnburstError
from nnburst.runtime import Compilation, Manager, Model, OperandDescription

FLOATS = OperandType.TENSOR_FLOAT32


def floats(*dimensions: int) -> OperandDescription:
    """A float32 tensor."""
    return OperandDescription(FLOATS, dimensions)


def scalar(kind: OperandType = OperandType.INT32) -> OperandDescription:
    """A scalar."""
    return OperandDescription(kind)


class Built:
    """A shorter interface for building a model."""

    def __init__(self) -> None:
        self.model = Model()

    def tensor(self, *dimensions: int) -> int:
        return self.model.add_operand(floats(*dimensions))

    def int32(self, value: int) -> int:
        index = self.model.add_operand(scalar())
        self.model.set_operand_value(index, np.int32(value))
        return index

    def constant(self, values: Any) -> int:
        array = np.asarray(values, np.float32)
        index = self.tensor(*array.shape)
        self.model.set_operand_value(index, array)
        return index

    def add(self, a: int, b: int, out: int, kind: OperationType = OperationType.ADD) -> None:
        self.model.add_operation(kind, [a, b, self.int32(0)], [out])

    def finish(self, inputs: Sequence[int], outputs: Sequence[int]) -> Model:
        self.model.identify_inputs_and_outputs(inputs, outputs)
        self.model.finish()
        return self.model


def add_model(*dimensions: int, out: Sequence[int] | None = None) -> Model:
    """out = a + b, both of `dimensions`."""
    built = Built()
    a, b = built.tensor(*dimensions), built.tensor(*dimensions)
    c = built.tensor(*(dimensions if out is None else out))
    built.add(a, b, c)
    return built.finish([a, b], [c])


def finished(
    model: Model, devices: Sequence[Any] | None = None, manager: Manager | None = None
) -> Compilation:
    """A compilation that is finished."""
    compilation = Compilation(model, devices, manager=manager or Manager([]))
    compilation.finish()
    return compilation


class Refusal:
    """Expects an error with a given code."""

    def __init__(self, code: ResultCode) -> None:
        self._raises = pytest.raises(NnburstError)
        self._code = code

    def __enter__(self) -> None:
        self._info = self._raises.__enter__()

    def __exit__(self, *error: object) -> bool:
        handled = self._raises.__exit__(*error)
        if handled:
            assert self._info.value.code == self._code, self._info.value
            assert ": " in str(self._info.value), "the message names no argument"
        return bool(handled)


def bad_data() -> Refusal:
    return Refusal(ResultCode.BAD_DATA)


def bad_state() -> Refusal:
    return Refusal(ResultCode.BAD_STATE)


def unexpected_null() -> Refusal:
    return Refusal(ResultCode.UNEXPECTED_NULL)


def op_failed() -> Refusal:
    return Refusal(ResultCode.OP_FAILED)
