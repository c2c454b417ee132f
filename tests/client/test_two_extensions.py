"""An operation of one extension over a type of another and core types, in one model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import nnburst
from nnburst import Device, InvalidArgument, Model, OperandType

_EXTENSIONS = """
import numpy as np

from nnburst.executor.graph.extension import VendorExtension
from nnburst.executor.graph.declarations import F32, data
from nnburst.hal.signature import Form

COMPLEX = VendorExtension("com.example.complex")
TENSOR_COMPLEX64 = COMPLEX.operand_type(3, "TENSOR_COMPLEX64", np.complex64, is_tensor=True)
POLAR = VendorExtension("org.example.polar")


def shape(node):
    return [node.like_declared(node.tensor("z").shape)]


@POLAR.operation(9, "MODULUS", forms=[Form((data("z", "Z"),), (data("r", "R"),))],
                 rows=[{"Z": TENSOR_COMPLEX64, "R": F32}], shape=shape)
def modulus(node):
    z, r = node.tensor("z").array, node.output().array

    def run():
        np.abs(z, out=r)

    return run
"""


def modulus_model() -> Model:
    builder = nnburst.ModelBuilder()
    numbers, polar = (
        builder.extension(name) for name in ("com.example.complex", "org.example.polar")
    )
    z = builder.input(numbers.operand_type(3), (2,))
    r = builder.output(OperandType.TENSOR_FLOAT32, (2,))
    builder.operation(polar.operation_type(9), [z], [r])
    return builder.build()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "two_extensions.py").write_text(_EXTENSIONS)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture
def both(environment: dict[str, str]) -> Iterator[Device]:
    with launch(["COMPLEX", "POLAR"], environment) as device:
        yield device


def launch(names: Sequence[str], environment: dict[str, str]) -> Device:
    targets = [f"two_extensions:{name}" for name in names]
    return nnburst.launch("reference", extensions=targets, env=environment)


def test_an_operation_takes_the_type_of_another_extension(both: Device) -> None:
    assert both.supported_operations(modulus_model()) == [True]
    with both.prepare(modulus_model()) as prepared, prepared.open_burst() as burst:
        result = burst.execute([np.array([3 + 4j, -5j], np.complex64)])
    assert result.outputs[0].tolist() == [5.0, 5.0]


def test_without_the_other_extension_the_operation_is_not_supported(
    environment: dict[str, str],
) -> None:
    with launch(["POLAR"], environment) as device:
        assert device.supported_operations(modulus_model()) == [False]
        with pytest.raises(InvalidArgument, match="P8"):
            device.prepare(modulus_model())
