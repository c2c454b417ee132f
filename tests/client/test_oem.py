"""OEM operands and OEM_OPERATION: bytes whose meaning is between one application and one driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnburst
from nnburst import Device, InvalidArgument, Model, ModelBuilder, OperandType, OperationType

_VENDOR = """
from nnburst.executor.null import NullExecutor, NullPrepared
from nnburst.executor.base import Outcome
from nnburst.hal.types import OutputShape


class Reversed:
    native = None

    def __init__(self, inputs, outputs):
        self._source, self._target = inputs[0].buffer, outputs[0].buffer
        self._shapes = (OutputShape(outputs[0].dimensions, True),)

    def run(self, *deadlines):
        self._target[:] = self._source[::-1]
        return Outcome(output_shapes=self._shapes)

    def close(self):
        pass


class Prepared(NullPrepared):
    def bind(self, inputs, outputs):
        return Reversed(inputs, outputs)


class Executor(NullExecutor):
    def supported(self, model):
        return [operation.type == 10000 for operation in model.main.operations]

    def prepare(self, model, *arguments, **more):
        return Prepared(model)
"""


def oem_model() -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_OEM_BYTE, (5,))
    y = builder.output(OperandType.TENSOR_OEM_BYTE, (5,))
    builder.operation(OperationType.OEM_OPERATION, [x], [y])
    return builder.build()


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Device]:
    """A driver whose OEM_OPERATION turns bytes around."""
    (tmp_path / "oem_vendor.py").write_text(_VENDOR)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(paths)}
    with nnburst.launch("oem_vendor:Executor", env=environment) as device:
        yield device


def test_oem_bytes_pass_through_to_the_driver_that_defines_them(vendor: Device) -> None:
    values = np.array([1, 2, 3, 250, 255], np.uint8)
    assert vendor.supported_operations(oem_model()) == [True]
    with vendor.prepare(oem_model()) as prepared, prepared.open_burst() as burst:
        for result in (prepared.execute([values]), burst.execute([values])):
            np.testing.assert_array_equal(result.outputs[0], values[::-1])


def test_a_driver_that_defines_no_oem_operation_reports_no_support(device: Device) -> None:
    assert device.supported_operations(oem_model()) == [False]
    with pytest.raises(InvalidArgument, match="OEM_OPERATION"):
        device.prepare(oem_model())
