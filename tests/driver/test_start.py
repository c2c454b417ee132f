"""What a launch waits for is mostly imports: sets of modules here hold what times have shown."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

#: Each takes about a millisecond or more.
SPARED: Final = {
    "ai_edge_litert.schema_py_generated", "argparse", "asyncio", "dataclasses", "difflib", "email",
    "flatbuffers", "importlib.metadata", "importlib.resources", "json", "subprocess", "tempfile", "zipfile",
}  # fmt: skip
#: What `main` and a worker import and do for one client, up to a prepared network.
_DRIVER: Final = """
import nnburst.driver.code_bundle
from nnburst.driver.service.main import main
from nnburst.driver.service.options import Options
Options(["--executor", "litert", "--fd", "3"])
import nnburst.driver.service.worker
from nnburst.driver.executors import begin_executor, import_engine, make_executor
begin_executor("litert")
import_engine("litert")
executor = make_executor("litert")
import numpy as np
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model_builder import ModelBuilder
builder = ModelBuilder()
x = builder.input(OperandType.TENSOR_FLOAT32, (2, 4))
weights = builder.constant(OperandType.TENSOR_FLOAT32, np.ones((3, 4), np.float32))
bias = builder.constant(OperandType.TENSOR_FLOAT32, np.ones(3, np.float32))
y = builder.output(OperandType.TENSOR_FLOAT32, (2, 3))
builder.operation(OperationType.FULLY_CONNECTED, [x, weights, bias, builder.scalar(0)], [y])
prepared = executor.prepare(builder.build(), [])
assert type(prepared).__name__ == "LiteRtPrepared"
"""
_CLIENT: Final = """
import nnburst
nnburst.launch("null").close()
"""


def modules(code: str) -> set[str]:
    """What a new process has imported once it has run `code`."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_driver_imports_nothing_that_a_network_for_litert_does_not_need() -> None:
    pytest.importorskip("ai_edge_litert")
    found = modules(_DRIVER)
    assert "nnburst.formats.tflite.writer" in found
    assert found & SPARED == set()


def test_client_imports_nothing_before_its_driver_starts_that_only_mistakes_need() -> None:
    assert "difflib" not in modules(_CLIENT)
