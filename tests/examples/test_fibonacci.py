"""The Fibonacci extension, outside the core, through driver processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nnburst
from nnburst.client.device import Device
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType, ResultCode
from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation
from nnburst.hal.model import ExtensionNameAndPrefix, ExtensionParams, Model
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.testing.partitioning.run import uniform
from shared_drivers import connect_to

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "fibonacci"
NAME = "com.example.fibonacci"
F32 = OperandType.TENSOR_FLOAT32
FIRST_TEN = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]

if not FOLDER.is_dir():
    pytest.skip("the examples are not part of what is installed", allow_module_level=True)


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


extension = _module("nnburst_fibonacci")


def _environment(folder: Path = FOLDER) -> dict[str, str]:
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *([others] if others else [])])}


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    named = ["nnburst_fibonacci:FIBONACCI"]
    with nnburst.launch("reference", extensions=named, env=_environment()) as launched:
        yield launched


def quantized(params: ExtensionParams, prefix: int = 1) -> Model:
    """n (INT64) → numbers (TENSOR_QUANT64_ASYMM)."""
    builder = nnburst.ModelBuilder()
    n = builder.input(prefix << 16 | extension.INT64)
    out = builder.output(prefix << 16 | extension.TENSOR_QUANT64_ASYMM, (0,), extra_params=params)
    builder.operation(prefix << 16 | extension.FIBONACCI_OPERATION, [n], [out])
    return builder.build(extension_name_to_prefix=[ExtensionNameAndPrefix(NAME, prefix)])


def doubled() -> Model:
    """n (a float tensor) → numbers, added to themselves: core and extension in one model."""
    builder = nnburst.ModelBuilder()
    used = builder.extension(NAME)
    n = builder.input(F32, (1,))
    numbers, twice = builder.temporary(F32, (0,)), builder.output(F32, (0,))
    builder.operation(used.operation_type(extension.FIBONACCI_OPERATION), [n], [numbers])
    builder.operation(OperationType.ADD, [numbers, numbers, builder.scalar(0)], [twice])
    return builder.build()


def run(device: Device, model: Model, n: Any, via: str = "burst") -> Any:
    with device.prepare(model) as prepared:
        if via == "execute":
            return prepared.execute([n]).outputs[0]
        with prepared.open_burst() as burst:
            return burst.execute([n]).outputs[0]


def test_the_device_reports_the_types_that_it_has(device: Device) -> None:
    types = (
        ExtensionOperandTypeInformation(0, False, 8),
        ExtensionOperandTypeInformation(1, True, 8),
    )
    assert device.supported_extensions() == (Extension(NAME, types),)


@pytest.mark.parametrize("via", ["burst", "execute"])
def test_numbers_come_in_the_type_of_the_extension(device: Device, via: str) -> None:
    params = extension.Quantization(0.5, 7).pack()
    out = run(device, quantized(params), np.array(10, np.int64), via)
    assert out.view(np.int64).tolist() == [2 * f + 7 for f in FIRST_TEN]


def test_the_prefix_is_each_models_own_affair(device: Device) -> None:
    params = extension.Quantization(1.0, 0).pack()
    for prefix in (1, 2, 0x7FFF, 0xFFFF):
        out = run(device, quantized(params, prefix), np.array(5, np.int64))
        assert out.view(np.int64).tolist() == FIRST_TEN[:5]


def test_core_operations_take_what_the_extension_computes(device: Device) -> None:
    assert device.supported_operations(doubled()) == [True, True]
    out = run(device, doubled(), np.array([10], np.float32))
    assert out.tolist() == [2.0 * f for f in FIRST_TEN]


def test_the_litert_executor_leaves_extensions_to_the_reference_executor() -> None:
    pytest.importorskip("ai_edge_litert")
    named = ["nnburst_fibonacci:FIBONACCI"]
    with nnburst.launch("litert", extensions=named, env=_environment()) as litert:
        out = run(litert, doubled(), np.array([10], np.float32))
    assert out.tolist() == [2.0 * f for f in FIRST_TEN]


@pytest.mark.parametrize("data", [b"", b"\0" * 16, b"x" * 15, b"x" * 70_000])
def test_parameters_that_make_no_sense_fail_the_execution(device: Device, data: bytes) -> None:
    prepared = device.prepare(quantized(ExtensionParams(data)))
    with prepared, pytest.raises(nnburst.GeneralFailure, match="FIBONACCI"):
        prepared.execute([np.array(3, np.int64)])


@pytest.mark.parametrize("n", [0, -1, 93, 2**62])
def test_a_length_out_of_range_fails_the_execution(device: Device, n: int) -> None:
    params = extension.Quantization(1.0, 0).pack()
    with device.prepare(quantized(params)) as prepared:
        with pytest.raises(nnburst.GeneralFailure, match="expected 1 to 92"):
            prepared.execute([np.array(n, np.int64)])
        assert len(prepared.execute([np.array(92, np.int64)]).outputs[0]) == 92


def test_an_array_of_another_element_size_is_refused(device: Device) -> None:
    params = extension.Quantization(1.0, 0).pack()
    prepared = device.prepare(quantized(params))
    with prepared, pytest.raises(nnburst.InvalidArgument, match=r"inputs\[0\] has dtype int32"):
        prepared.execute([np.array(3, np.int32)])


def test_an_operation_that_the_extension_does_not_have_is_not_supported(device: Device) -> None:
    builder = nnburst.ModelBuilder()
    used = builder.extension(NAME)
    builder.operation(used.operation_type(7), [builder.input(F32, (1,))], [builder.output(F32)])
    model = builder.build()
    assert device.supported_operations(model) == [False]
    with pytest.raises(nnburst.InvalidArgument, match="P8"):
        device.prepare(model)


def test_a_type_that_the_extension_does_not_have_is_not_supported(device: Device) -> None:
    builder = nnburst.ModelBuilder()
    used = builder.extension(NAME)
    n, out = builder.input(used.operand_type(9)), builder.output(F32, (0,))
    builder.operation(used.operation_type(0), [n], [out])
    assert device.supported_operations(builder.build()) == [False]


def test_a_constant_of_the_wrong_size_is_refused(device: Device) -> None:
    builder = nnburst.ModelBuilder()
    used = builder.extension(NAME)
    n = builder.extension_constant(used.operand_type(0), np.int32(5), is_tensor=False)
    builder.input(F32, (1,))
    builder.operation(used.operation_type(0), [n], [builder.output(F32, (0,))])
    with pytest.raises(nnburst.InvalidArgument, match=r"INT64.*has 4 bytes"):
        device.prepare(builder.build())


def test_a_prefix_that_the_model_does_not_declare_is_refused(device: Device) -> None:
    builder = nnburst.ModelBuilder()
    n, out = builder.input(1 << 16), builder.output(F32, (0,))
    builder.operation(1 << 16, [n], [out])
    with pytest.raises(nnburst.InvalidArgument, match="M9"):
        device.supported_operations(builder.build())


def test_a_driver_without_the_extension_does_not_support_it() -> None:
    model = quantized(extension.Quantization(1.0, 0).pack())
    with connect_to("reference") as plain:
        assert plain.supported_extensions() == ()
        assert plain.supported_operations(model) == [False]
        with pytest.raises(nnburst.InvalidArgument, match="P8") as caught:
            plain.prepare(model)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_a_driver_finds_the_extension_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "nnburst_fibonacci.py").write_text((FOLDER / "nnburst_fibonacci.py").read_text())
    info = tmp_path / "nnburst_fibonacci-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nnburst-fibonacci\nVersion: 1.0.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[nnburst.extensions]\ncom.example.fibonacci = nnburst_fibonacci:FIBONACCI\n"
    )
    with nnburst.launch("reference", env=_environment(tmp_path)) as found:
        out = run(found, doubled(), np.array([3], np.float32))
        assert out.tolist() == [2.0, 2.0, 4.0]
        assert [e.name for e in found.supported_extensions()] == [NAME]


def test_an_extension_that_cannot_be_imported_keeps_the_driver_from_starting() -> None:
    with pytest.raises(nnburst.DeviceUnavailable, match="no_such_module"):
        nnburst.launch("reference", extensions=["no_such_module:EXTENSION"])


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "main.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"extensions: {NAME}",
        "stored: 9 9 11 13 17 23 33 49 75 117",
        "values: 1.0 1.0 2.0 3.0 5.0 8.0 13.0 21.0 34.0 55.0",
    ]


def between_additions(n: int) -> Model:
    """x + x → Fibonacci of its half → + 0: core, extension, core over float tensors."""
    builder = nnburst.ModelBuilder()
    used = builder.extension(NAME)
    x, total = builder.input(F32, (1,)), builder.temporary(F32, (1,))
    numbers, out = builder.temporary(F32, (n,)), builder.output(F32, (n,))
    zero = builder.constant(F32, [0.0])
    builder.operation(OperationType.ADD, [x, zero, builder.scalar(0)], [total])
    builder.operation(used.operation_type(extension.FIBONACCI_OPERATION), [total], [numbers])
    builder.operation(OperationType.ADD, [numbers, zero, builder.scalar(0)], [out])
    return builder.build()


@pytest.fixture(scope="module")
def manager() -> Iterator[Manager]:
    named = ["nnburst_fibonacci:FIBONACCI"]
    driver = DriverDevice(
        lambda: nnburst.launch("reference", extensions=named, env=_environment()), name="fibonacci"
    )
    driver.capabilities = uniform(2.0)  # the CPU is cheaper, if it can
    made = Manager([driver])
    yield made
    made.close()


def test_a_plan_has_the_extension_on_its_driver_and_the_core_on_the_cpu(manager: Manager) -> None:
    devices = ["fibonacci", "nnapi-reference"]
    with nnburst.compile(between_additions(10), devices, manager=manager) as compiled:
        listed = [manager.device(name) for name in devices]
        model = compiled.compilation.model
        assert model.supported_operations(listed, manager) == [True, True, True]
        assert model.supported_operations(listed[1:], manager) == [True, False, True]
        assert compiled.plan.devices == ("nnapi-reference", "fibonacci")
        ten = np.array([10.0], np.float32)
        assert compiled.execute([ten]).outputs[0].tolist() == FIRST_TEN
        with compiled.open_burst() as burst:
            assert burst.execute([ten]).outputs[0].tolist() == FIRST_TEN


def test_a_failing_operation_of_an_extension_has_no_fallback(manager: Manager) -> None:
    with nnburst.compile(between_additions(10), manager=manager) as compiled:
        with pytest.raises(nnburst.NnburstError) as error:
            compiled.execute([np.array([-1.0], np.float32)])
        assert error.value.code == ResultCode.OP_FAILED


def test_devices_answer_which_extensions_they_have(manager: Manager) -> None:
    driver, cpu = manager.devices
    assert driver.supports_extension(NAME)
    assert not driver.supports_extension("com.example.other")
    assert not cpu.supports_extension(NAME)
