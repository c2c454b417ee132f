"""An operation of one extension over a type of another and core types, in one model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import nnburst
from nnburst import Device, InvalidArgument, Model, OperandType
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice

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


@POLAR.operation(10, "COPY", forms=[Form((data("z", "Z"),), (data("r", "Z"),))],
                 rows=[{"Z": TENSOR_COMPLEX64}], shape=shape)
def copy(node):
    z, r = node.tensor("z").array, node.output().array

    def run():
        r[...] = z

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


def copy_model() -> Model:
    builder = nnburst.ModelBuilder()
    numbers, polar = (
        builder.extension(name) for name in ("com.example.complex", "org.example.polar")
    )
    z, r = (
        builder.input(numbers.operand_type(3), (3,)),
        builder.output(numbers.operand_type(3), (3,)),
    )
    builder.operation(polar.operation_type(10), [z], [r])
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


@pytest.mark.parametrize("is_compiled", [False, True], ids=["prepared", "compiled"])
def test_a_burst_copies_the_bytes_of_an_extension_s_elements_whatever_their_dtype_is(
    environment: dict[str, str], both: Device, is_compiled: bool
) -> None:
    with contextlib.ExitStack() as stack:
        if is_compiled:
            driver = DriverDevice(lambda: launch(["COMPLEX", "POLAR"], environment), name="both")
            manager = stack.enter_context(Manager([driver]))
            compiled = stack.enter_context(nnburst.compile(copy_model(), manager=manager))
            burst = stack.enter_context(compiled.open_burst())
        else:
            burst = stack.enter_context(both.prepare(copy_model()).open_burst())
        for dtype in ("<i8", ">i8", "<c8", "M8[s]", "<U2", "u4,i2,i2"):
            # A conversion by value takes the same bytes for a number, a date or a text.
            given = np.frombuffer(b"1\0\0\x002\0\0\0" * 3, dtype)
            opaque = given.view("V8")
            for _ in range(4):  # the third execution of a compiled burst binds
                for source, target in ((given, opaque), (opaque, given)):
                    room = np.zeros_like(target)
                    burst.execute([source], [room])
                    assert room.tobytes() == given.tobytes()
                    assert burst.execute([source]).outputs[0].tobytes() == given.tobytes()
            for like in (None, [given], [opaque]):
                function = burst.function(like)
                for array in (given, opaque, np.repeat(given, 2)[::2]):
                    assert function(array)[0].tobytes() == given.tobytes()
