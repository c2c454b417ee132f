"""A driver imports few modules before its first result: imports are most of what a launch waits for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

import nnburst
from nnburst.client.device import Device
from nnburst.client.session.handshake import Session
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import DeadObject
from nnburst.hal.model import DTYPES, Model, SymmPerChannelQuantParams
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.utils import driver_environment
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.testing.faults.activities import check_sum, sum_model, summands
from waiting import wait_for

Array = npt.NDArray[Any]
_Q8S: Final = OperandType.TENSOR_QUANT8_ASYMM_SIGNED

#: Each takes about a millisecond or more.
SPARED: Final = {
    "ai_edge_litert.schema_py_generated", "argparse", "ast", "asyncio", "ctypes", "dataclasses", "difflib",
    "email", "flatbuffers", "importlib.metadata", "importlib.resources", "inspect", "json", "numpy", "pickle",
    "pkgutil", "subprocess", "tempfile", "typing_extensions", "zipfile",
}  # fmt: skip
#: A driver that names what it has imported when its client is gone.
_DRIVER: Final = """
import os, sys
from nnburst.driver.service.main import main
def end(status):
    print(*sys.modules, flush=True)
    really_end(0)
really_end, os._exit = os._exit, end
main(["--executor", "litert", "--fd", sys.argv[1]])
"""
#: Prints as a library in C does, to whatever the descriptors 1 and 2 are.
_NOISY: Final = """
import os
from nnburst.executor.reference.executor import ReferenceExecutor
class Noisy(ReferenceExecutor):
    def prepare(self, *arguments):
        for fd in (1, 2):
            os.write(fd, b"INFO: compiled")
        return super().prepare(*arguments)
"""
_CLIENT: Final = """
import nnburst
nnburst.launch("null").close()
import sys
print(*sys.modules)
"""


class Ended:
    """Stands for the driver's process, which the test waits for."""

    def close(self) -> None:
        """Do nothing."""


def modules_of_a_driver(model: Model | ImportedModel, inputs: list[Array]) -> set[str]:
    """The modules that a driver of LiteRT has imported after the first result of a burst."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        driver = subprocess.Popen(
            [sys.executable, "-P", "-c", _DRIVER, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            text=True,
            env=driver_environment(),
        )
    session = Session(ours, "driver", lambda: DeadObject("the driver died"), timeout=60)
    with (
        Device(session, Ended()) as device,
        device.prepare(model) as prepared,
        prepared.open_burst() as burst,
    ):
        burst.execute(inputs)
    printed, _ = driver.communicate(timeout=60)
    return set(printed.split())


def small_network() -> Model:
    """8 bits, convolved with a scale for each channel, averaged, flattened, multiplied, made shares of 1."""
    builder = ModelBuilder()
    image = builder.input(_Q8S, (1, 6, 6, 2), 0.5)
    channels = SymmPerChannelQuantParams((0.5, 0.25, 0.125), 0)
    kernel = builder.constant(
        OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, np.ones((3, 3, 3, 2)), extra_params=channels
    )
    bias = builder.constant(OperandType.TENSOR_INT32, np.arange(3))
    wide = builder.temporary(_Q8S, (1, 3, 3, 3), 1.0)
    numbers = map(builder.scalar, (0, 1, 0, 1, 2, 2, 1))
    builder.operation(OperationType.CONV_2D, [image, kernel, bias, *numbers], [wide])
    mean = builder.temporary(_Q8S, (1, 1, 1, 3), 1.0)
    numbers = map(builder.scalar, (2, 1, 1, 3, 3, 0))
    builder.operation(OperationType.AVERAGE_POOL_2D, [wide, *numbers], [mean])
    flat = builder.temporary(_Q8S, (1, 3), 1.0)
    shape = builder.constant(OperandType.TENSOR_INT32, [1, 3])
    builder.operation(OperationType.RESHAPE, [mean, shape], [flat])
    weights = builder.constant(_Q8S, np.ones((4, 3)), 0.5)
    offsets = builder.constant(OperandType.TENSOR_INT32, np.zeros(4), 0.5)
    scores = builder.temporary(_Q8S, (1, 4), 1.0)
    builder.operation(
        OperationType.FULLY_CONNECTED, [flat, weights, offsets, builder.scalar(0)], [scores]
    )
    shares = builder.output(_Q8S, (1, 4), 1 / 256, -128)
    builder.operation(OperationType.SOFTMAX, [scores, builder.scalar(1.0)], [shares])
    return builder.build()


def test_driver_comes_to_a_first_result_without_what_that_does_not_need() -> None:
    pytest.importorskip("ai_edge_litert")
    found = modules_of_a_driver(small_network(), [np.ones((1, 6, 6, 2), np.int8)])
    assert "nnburst.formats.tflite_writer" in found
    assert "nnburst.executor.reference" not in found
    assert found & SPARED == set()


@pytest.mark.shared
@pytest.mark.parametrize("name", ["kws_int8", "kws_float", "mobilenet_v1_0.25_128_uint8"])
def test_driver_comes_to_a_first_result_of_a_real_network_without_it_either(
    name: str, shared_dir: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    imported = load(shared_dir / "models" / f"{name}.tflite")
    inputs = [
        np.zeros(operand.dimensions, DTYPES[OperandType(operand.type)])
        for operand in (imported.model.main.operands[i] for i in imported.model.main.input_indexes)
    ]
    assert modules_of_a_driver(imported, inputs) & SPARED == set()


def test_client_imports_nothing_that_only_mistakes_or_event_loops_need() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _CLIENT], capture_output=True, text=True, check=True
    )
    assert {"difflib", "asyncio"} & set(ran.stdout.split()) == set()


@pytest.mark.parametrize("closed", [(0, 1, 2), (1, 2), (0,), (2,)])
def test_service_that_is_started_without_standard_streams_has_dev_null_for_them(
    closed: tuple[int, ...], tmp_path: Path, make_module: Callable[[str, str], None]
) -> None:
    make_module("noisy", _NOISY)
    address = str(tmp_path / "driver")
    serve = [sys.executable, "-m", "nnburst", "serve", address, "--executor", "noisy:Noisy"]
    without = " ".join(f"{fd}>&-" for fd in closed)
    with subprocess.Popen(["sh", "-c", f'exec "$@" {without}', "sh", *serve]) as process:
        try:
            wait_for(Path(address).exists)
            with nnburst.connect(address) as device, device.prepare(sum_model()) as prepared:
                streams = [Path(f"/proc/{process.pid}/fd/{fd}") for fd in closed]
                assert [os.readlink(stream) for stream in streams] == ["/dev/null"] * len(closed)
                check_sum(np.asarray(prepared.execute(summands(3)).outputs[0]), 3)
        finally:
            process.terminate()
    assert process.returncode == 0
