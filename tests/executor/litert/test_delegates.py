"""External delegates of vendors behind the executor litert: a made-up one, and this package's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from client.service import Service
from executor.litert.networks import F32
from nnburst.capi.installed import DELEGATE_LIBRARY
from nnburst.executor.built_in import litert
from nnburst.hal.enums import DeviceType, OperationType
from nnburst.hal.errors import DeadObject, DeviceUnavailable, InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.models.tflite_builder import TfliteBuilder

SOURCES = Path(__file__).resolve().parents[3] / "csrc"
A, B = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)

pytestmark = pytest.mark.skipif(
    not SOURCES.exists() or shutil.which("cc") is None,
    reason="needs a C compiler and the sources beside the tests",
)


@pytest.fixture(scope="session")
def delegate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library of delegate.c."""
    made = tmp_path_factory.mktemp("delegate") / "libadding_delegate.so"
    source = Path(__file__).with_name("delegate.c")
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", str(made)]
    subprocess.run([*command, f"-I{SOURCES}/litert_delegate", str(source)], check=True)
    return str(made)


def whole_addition() -> bytes:
    """A file that adds two inputs."""
    builder = TfliteBuilder()
    x, y = builder.input("FLOAT32", (4,)), builder.input("FLOAT32", (4,))
    builder.operator("ADD", [x, y], [builder.output("FLOAT32", (4,))])
    return builder.finish()


def added(times: int = 0) -> Model:
    """x + y, and that times y."""
    builder = ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.input(F32, (4,))
    made = (builder.temporary if times else builder.output)(F32, (4,))
    builder.operation(OperationType.ADD, [x, y, builder.scalar(0)], [made])
    if times:
        product = [made, y, builder.scalar(0)]
        builder.operation(OperationType.MUL, product, [builder.output(F32, (4,))])
    return builder.build()


def test_operators_of_a_model_run_on_the_delegate_that_the_service_names(delegate: str) -> None:
    options = {"delegate": delegate, "bias": "1000"}
    with (
        nnburst.launch("litert", options=options) as device,
        device.prepare(added()) as prepared,
        prepared.open_burst() as burst,
    ):
        assert device.type is DeviceType.OTHER
        assert "with delegate libadding_delegate.so" in device.version_string
        for road in (prepared.execute, burst.execute):
            assert road([A, B]).outputs[0].tolist() == (A + B + 1000).tolist()


def test_operators_that_the_delegate_leaves_run_on_the_engine(delegate: str) -> None:
    with (
        nnburst.launch("litert", options={"delegate": delegate, "bias": "1"}) as device,
        device.prepare(added(times=1)) as prepared,
    ):
        assert prepared.execute([A, B]).outputs[0].tolist() == ((A + B + 1) * B).tolist()


def test_whole_files_run_on_the_delegate(delegate: str) -> None:
    imported = nnburst.load(whole_addition(), as_graph=True)
    with (
        nnburst.launch("litert", options={"delegate": delegate, "bias": "7"}) as device,
        device.prepare(imported) as prepared,
    ):
        assert prepared.execute([A, B]).outputs[0].tolist() == (A + B + 7).tolist()


def test_a_delegate_that_aborts_ends_the_worker_alone(delegate: str) -> None:
    options = {"delegate": delegate, "abort": "1"}
    with (
        nnburst.launch("litert", options=options) as device,
        device.prepare(added()) as prepared,
        pytest.raises(DeadObject),
    ):
        prepared.execute([A, B])


def test_a_delegate_that_finds_no_device_leaves_the_model_to_the_other_executor(
    delegate: str,
) -> None:
    with (
        nnburst.launch("litert", options={"delegate": delegate, "port": "7"}) as device,
        device.prepare(added()) as prepared,
    ):
        assert prepared.execute([A, B]).outputs[0].tolist() == (A + B).tolist()
        with pytest.raises(InvalidArgument, match="no device"):
            device.prepare(nnburst.load(whole_addition(), as_graph=True))


def test_what_the_copies_of_this_road_take_is_logged(
    delegate: str, caplog: pytest.LogCaptureFixture
) -> None:
    litert({"delegate": delegate}).prepare(added(), []).close()
    assert "delegate libadding_delegate.so: the Interpreter runs it" in caplog.text
    assert "48 bytes" in caplog.text


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"delegate": "/nowhere/lib.so"}, DeviceUnavailable, "'/nowhere/lib.so' cannot be loaded"),
        ({"delegate": "libc.so.6"}, DeviceUnavailable, "no tflite_plugin_create_delegate"),
        ({"bias": "1"}, InvalidArgument, "option: 'bias', but executor litert has no delegate"),
    ],
)
def test_a_library_that_is_no_delegate_is_refused_by_name(
    options: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        litert(options)


def test_serve_refuses_a_delegate_for_another_executor() -> None:
    command = [sys.executable, "-m", "nnburst", "serve", "x", "--executor", "reference"]
    ran = subprocess.run([*command, "--delegate", "lib.so"], capture_output=True, text=True)
    assert ran.returncode != 0
    assert "--delegate: lib.so, but the executor is reference" in ran.stderr


@pytest.mark.skipif(not DELEGATE_LIBRARY.is_file(), reason="built without the delegate")
def test_this_packages_own_delegate_hands_a_graph_to_another_driver() -> None:
    with (
        Service(executor="litert") as service,
        nnburst.launch(
            "litert",
            options={"delegate": str(DELEGATE_LIBRARY), "device": service.address},
            env={"NNBURST_SANDBOX": "0"},  # it opens a socket
        ) as device,
        device.prepare(nnburst.load(whole_addition(), as_graph=True)) as prepared,
    ):
        assert prepared.execute([A, B]).outputs[0].tolist() == (A + B).tolist()
