"""Tests results: random graphs against a naive evaluator, and the vectors of `--nnburst-vectors`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nnburst.client.connect import connect
from nnburst.hal import environment
from nnburst.hal.enums import OperandType
from nnburst.testing.conformance.campaign import Selection, find_files, run_file
from nnburst.testing.conformance.comparison import Unsupported
from nnburst.testing.conformance.runners import BurstRunner, ExecuteRunner, Runner
from nnburst.testing.models.random_graphs import PRIMARY, check, generate
from nnburst.testing.pack.campaign import graphs_of, some_pairs, try_joined

pytestmark = pytest.mark.nnburst_values

#: Number of random graphs of each class.
_SEEDS = 10
_CLASSES = [(size, kind) for size in PRIMARY for kind in PRIMARY[size]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each file of vectors."""
    if "vectors" in metafunc.fixturenames:
        folders = metafunc.config.getoption("nnburst_vectors")
        found = find_files(folders) if folders else []
        metafunc.parametrize("vectors", found, ids=[path.stem for path in found])


@pytest.fixture(params=[ExecuteRunner, BurstRunner], ids=["execute", "burst"])
def runner(nnburst_address: str, request: pytest.FixtureRequest) -> Iterator[Runner]:
    """A runner for each way to the driver: socket and burst."""
    kind: type[ExecuteRunner] = request.param
    found = kind.over(connect(nnburst_address))
    yield found
    found.close()


@pytest.mark.parametrize(
    ("size", "kind"), _CLASSES, ids=[f"{size}-{kind.name}" for size, kind in _CLASSES]
)
def test_random_graphs_give_what_a_naive_evaluator_gives(
    runner: Runner, size: str, kind: OperandType
) -> None:
    skipped = 0
    for seed in range(_SEEDS):
        graph = generate(size, kind, seed)
        try:
            problem = check(graph, runner)
        except Unsupported:
            skipped += 1
            continue
        names = [operation.kind.name for operation in graph.operations]
        assert problem is None, f"graph {graph.name} of {names}: {problem}"
    if skipped == _SEEDS:
        pytest.skip("the driver supports none of the graphs")


@pytest.mark.parametrize("kind", PRIMARY["single"], ids=lambda kind: kind.name)
def test_what_reads_the_result_of_an_operation_gets_the_right_numbers(
    nnburst_address: str, kind: OperandType
) -> None:
    runner = BurstRunner.over(connect(nnburst_address))
    try:
        tried = try_joined(graphs_of(some_pairs(kind, environment.PAIRS.read())), runner)
    finally:
        runner.close()
    assert not tried.failures, "\n".join(f"{f.case}: {f.reason}" for f in tried.failures)
    if not tried.executed:
        pytest.skip(f"the driver supports none of {tried.refused} graphs of two operations")


def test_vectors_give_their_expected_results(runner: Runner, vectors: Path) -> None:
    results = run_file(vectors, Selection(), runner)
    failures = [f"{r.name} [{r.suite}] {r.reason}" for r in results if r.outcome == "failed"]
    assert not failures, "\n".join(failures)
    if all(result.outcome == "skipped" for result in results):
        pytest.skip("; ".join(sorted({result.reason for result in results})) or "no tests in it")
