"""Models give the same inside a branch, and where every step is shaped and bound as it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnburst.executor.reference import executor
from nnburst.executor.reference.layout import Layout
from nnburst.hal.enums import OperandType
from nnburst.testing.conformance import find_files
from nnburst.testing.random_graphs import PRIMARY, check, generate
from nnburst.testing.random_graphs.as_vector import as_vector
from nnburst.testing.runners import LocalRunner
from nnburst.testing.suites import run_suite
from nnburst.testing.vectors import Tolerance, read
from testing.wrapped import inside_if

#: That of large graphs: here two ways through one executor are compared, not two executors.
TOLERANCE = Tolerance(float32=(1e-1, 1e-1), float16=(1, 1), quant8=2)


@pytest.mark.parametrize(("size", "kind"), [(s, k) for s in PRIMARY for k in PRIMARY[s]])
def test_random_graphs_pass_inside_a_branch(size: str, kind: OperandType) -> None:
    runner = LocalRunner("reference")
    for seed in range(100, 105):
        vector = as_vector(generate(size, kind, seed), tolerance=TOLERANCE)
        verdict = run_suite(inside_if(vector), "run", runner)
        assert verdict.outcome == "passed", verdict.reason


@pytest.mark.parametrize(("size", "kind"), [(s, k) for s in PRIMARY for k in PRIMARY[s]])
def test_random_graphs_pass_with_no_step_bound_beforehand(
    size: str, kind: OperandType, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Layout(frozenset(), {}, {}, 0)
    monkeypatch.setattr(executor, "lay_out", lambda *_: nothing)
    runner = LocalRunner("reference")
    for seed in range(105, 110):
        graph = generate(size, kind, seed)
        assert check(graph, runner) is None, graph.name


@pytest.mark.shared
@pytest.mark.slow
def test_open_vectors_pass_inside_a_branch(shared_dir: Path) -> None:
    runner = LocalRunner("reference")
    failed = []
    for path in find_files([shared_dir / "vectors"]):
        for vector in read(path):
            if "run" in vector.suites:
                verdict = run_suite(inside_if(vector), "run", runner)
                if verdict.outcome != "passed":
                    failed.append((vector.name, verdict.reason))
    assert failed == []
