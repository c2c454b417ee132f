"""A trace of a model in parts has a slice for each partition, and for each step of a plan."""

from __future__ import annotations

import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from nnburst.cli import main
from nnburst.tracing.files import read

PARTITIONS = """
import nnburst
from nnburst import ModelBuilder, OperandType as T, OperationType as O

builder = ModelBuilder()
x = builder.input(T.TENSOR_FLOAT32, (4,))
doubled, squared = (builder.temporary(T.TENSOR_FLOAT32, (4,)) for _ in range(2))
top, where = builder.temporary(T.TENSOR_FLOAT32, (2,)), builder.output(T.TENSOR_INT32, (2,))
y = builder.output(T.TENSOR_FLOAT32, (2,))
builder.operation(O.ADD, [x, x, builder.scalar(0)], [doubled])
builder.operation(O.MUL, [doubled, doubled, builder.scalar(0)], [squared])
builder.operation(O.TOPK_V2, [squared, builder.scalar(2)], [top, where])
builder.operation(O.MUL, [top, top, builder.scalar(0)], [y])
with nnburst.launch("litert") as device, device.prepare(builder.build()).open_burst() as burst:
    bound = burst.bind()
    bound.inputs[0][...] = [1, 4, 3, 2]
    for _ in range(20):
        bound.run()
    assert bound.outputs[1].tolist() == [64**2, 36**2], bound.outputs
"""

STEPS = """
import numpy as np
from nnburst import ModelBuilder, OperandType as T, OperationType as O
from nnburst.runtime import Compilation, Model
from nnburst.runtime.planning.plan import CompoundPlan
from nnburst.testing.framework import two_drivers
from nnburst.runtime.compile import CompiledModel

builder = ModelBuilder()
value = builder.input(T.TENSOR_FLOAT32, (4,))
for kind in (O.TANH, O.LOGISTIC, O.RELU, O.RELU6, O.ABS, O.EXP, O.SIN):
    made = builder.temporary(T.TENSOR_FLOAT32, (4,))
    builder.operation(kind, [value], [made])
    value = made
y = builder.output(T.TENSOR_FLOAT32, (4,))
builder.operation(O.ADD, [value, value, builder.scalar(0)], [y])
manager = two_drivers("reference")
compilation = Compilation(Model.of(builder.build()), manager=manager)
compilation.finish()
assert isinstance(compilation.plan, CompoundPlan), compilation.plan
print(len(compilation.plan.execution_steps), flush=True)
with CompiledModel(compilation, bursts=False) as compiled:  # over a burst, steps are one call of C's
    for _ in range(5):
        compiled.execute([np.ones(4, np.float32)])
manager.close()
"""

LIVES = """
import sys
import nnburst
import nnburst.hal
from nnburst.testing.faults.activities import sum_model, summands

with nnburst.launch("reference") as device:
    for _ in range(2):
        with device.prepare(sum_model(), cache_dir=sys.path[0] + "/cache") as prepared:
            with prepared.open_burst() as burst:
                burst.execute(summands(1.0))
    assert prepared.from_cache
    with device.prepare(sum_model()) as prepared:
        fenced = nnburst.hal.execute_fenced(prepared, summands(1.0))
        fenced.fence.wait()
"""


def names(tmp_path: Path, script: str) -> Counter[str]:
    """The number of times that each slice was recorded while a script ran."""
    client, path = tmp_path / "client.py", tmp_path / "trace.pftrace"
    client.write_text(script)
    assert main(["trace", "-o", str(path), "--", sys.executable, str(client)]) == 0
    trace = read(path)
    assert trace.problems == []
    return Counter(piece.name for thread in trace.threads for piece in thread.slices)


@pytest.mark.campaign
@pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("route", ["library", "interpreter"])
def test_a_slice_for_each_litert_partition(
    tmp_path: Path, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNBURST_LITERT_ROUTE", route)
    found = names(tmp_path, PARTITIONS)
    expected = {
        "[NN_LC_PCO]litert: ADD to MUL (2)": 20,
        "[NN_LC_PCO]TOPK_V2": 20,
        "[NN_LC_PCO]litert: MUL (1)": 20,
    }
    assert {name: found[name] for name in expected} == expected


def test_a_slice_for_each_step_of_a_plan_and_for_each_prepared_part(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = names(tmp_path, STEPS)
    steps = int(capfd.readouterr().out.splitlines()[0])
    executed = Counter({n: c for n, c in found.items() if n.startswith("[NN_LR_PE]step ")})
    assert len(executed) == steps > 1
    assert set(executed.values()) == {5}
    prepared = sum(c for n, c in found.items() if n.startswith("[NN_LR_PC]prepare a part on "))
    assert prepared == steps
    assert found["[NN_LR_PC]place and prepare"] == 1


def test_slices_of_a_models_life_are_in_the_phases_that_they_belong_to(tmp_path: Path) -> None:
    found = names(tmp_path, LIVES)
    expected = {
        "[NN_LR_PI]launch": 1,
        "[NN_LR_PC]prepare": 3,
        "[NN_LR_PC]look in the compilation cache": 2,
        "[NN_LR_PP]describe and send a model": 2,  # the second was in the cache
        "[NN_LD_PC]prepare": 2,
        "[NN_LD_PC]prepare from the cache": 1,
        "[NN_LR_PE]execute fenced": 1,
        "[NN_LI_PE]wait for a fence": 1,
        "[NN_LR_PT]burst: close": 2,
        "[NN_LR_PT]close a model": 3,
        "[NN_LR_PT]close a device": 1,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["[NN_LD_PT]release"] >= 2  # the driver may end before it reads the last one
