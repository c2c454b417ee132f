"""Models give the same inside a branch, and if every step is shaped and bound as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nnburst.executor.graph.binding import Layout
from nnburst.executor.reference import executor
from nnburst.hal.enums import OperandType
from nnburst.testing.conformance.campaign import find_files, run_suite
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.conformance.vectors import Tolerance, read
from nnburst.testing.models.random_graphs import PRIMARY, check, generate
from nnburst.testing.models.random_graphs.graphs import as_vector
from testing.some_vectors import some_files
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


def failed_inside_a_branch(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Name and reason of the vectors that fail as a branch of an IF."""
    runner = LocalRunner("reference")
    failed = []
    for path in files:
        for vector in read(path):
            if "run" in vector.suites:
                verdict = run_suite(inside_if(vector), "run", runner)
                if verdict.outcome != "passed":
                    failed.append((vector.name, verdict.reason))
    return failed


@pytest.mark.shared
def test_some_open_vectors_pass_inside_a_branch(shared_dir: Path) -> None:
    assert failed_inside_a_branch(some_files(shared_dir)) == []


@pytest.mark.shared
@pytest.mark.campaign
def test_open_vectors_pass_inside_a_branch(shared_dir: Path) -> None:
    assert failed_inside_a_branch(find_files([shared_dir / "vectors"])) == []
