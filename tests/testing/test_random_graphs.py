"""Random graphs: reproducible, valid, agreed on by two implementations, shrunk when not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nnburst.cli import main
from nnburst.executor.graph import memory
from nnburst.executor.graph.memory import aligned_bytes
from nnburst.executor.graph.operation import REGISTRY, Node, OperationDefinition, Run
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference import execution
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.validation import validate_model
from nnburst.testing.conformance.campaign import run_suite
from nnburst.testing.conformance.runners import SIGNATURES, BurstRunner, ExecuteRunner, LocalRunner
from nnburst.testing.conformance.vectors import build, read
from nnburst.testing.models.naive import NAIVE
from nnburst.testing.models.random_graphs import PRIMARY, SIZES, check, generate, shrink
from nnburst.testing.models.random_graphs.builder import TEMPLATES, GraphBuilder
from nnburst.testing.models.random_graphs.graphs import CRITERIA, as_vector, difference, draw

F32, I32, B8 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_INT32, OperandType.TENSOR_BOOL8


@pytest.fixture(autouse=True)
def stale_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory holds NaN: what is read before it is written shows."""

    def filled(size: int) -> Array:
        memory = aligned_bytes(size)
        memory[...] = 0xFF
        return memory

    monkeypatch.setattr(memory, "aligned_bytes", filled)
    monkeypatch.setattr(execution, "aligned_bytes", filled)


CLASSES = [(size, kind) for size in PRIMARY for kind in PRIMARY[size]]


@pytest.fixture(scope="module")
def runner() -> LocalRunner:
    return LocalRunner("reference")


@pytest.mark.parametrize(("size", "kind"), CLASSES)
def test_reference_and_naive_evaluator_agree(
    size: str, kind: OperandType, runner: LocalRunner
) -> None:
    for seed in range(5):
        graph = generate(size, kind, seed)
        assert len(graph.operations) == SIZES[size].operations
        validate_model(build(as_vector(graph)).model, SIGNATURES)
        assert check(graph, runner) is None, graph.name


@pytest.mark.every_day("BurstRunner")
@pytest.mark.parametrize("way", [ExecuteRunner, BurstRunner])
def test_random_graphs_pass_through_a_driver(way: type[ExecuteRunner]) -> None:
    """Their requests have scalars and omitted operands, which few vectors have."""
    driver = way("reference")
    try:
        for size, kind in CLASSES:
            for seed in range(200, 204):
                graph = generate(size, kind, seed)
                assert check(graph, driver) is None, graph.name
    finally:
        driver.close()


@pytest.mark.parametrize(
    ("operation", "kind"),
    [(operation, kind) for operation, t in TEMPLATES.items() for kind in t.kinds],
    ids=lambda value: value.name,
)
def test_every_operation_agrees_for_every_type_it_is_drawn_with(
    operation: OperationType, kind: OperandType, runner: LocalRunner
) -> None:
    builder = GraphBuilder(np.random.default_rng([operation, kind]), SIZES["single"])
    drawn = 0
    for _ in range(40):
        drawn += draw(builder, operation, kind)
        if drawn == 2:
            break
    assert drawn, "nothing that was drawn could be used"
    graph = builder.finish("one", "single")
    for number in range(len(graph.operations)):
        assert check(graph, runner, [number]) is None


def test_every_template_has_a_naive_implementation_and_is_registered() -> None:
    assert set(TEMPLATES) <= set(NAIVE)
    assert set(TEMPLATES) <= set(REGISTRY)


def test_seed_decides_the_graph() -> None:
    first, again, other = (as_vector(generate("small", F32, seed)) for seed in (3, 3, 4))
    assert first == again
    assert first.main != other.main


def test_graph_as_a_vector_passes_its_suite(runner: LocalRunner) -> None:
    vector = as_vector(generate("large", I32, 1))
    assert run_suite(vector, "run", runner).outcome == "passed"


def broken(kind: OperationType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an operation add 1 to the first element of its result."""
    old = REGISTRY[kind]

    def kernel(node: Node) -> Run:
        right, out = old.kernel(node), node.output().array.reshape(-1)

        def run() -> None:
            right()
            out[0] += 1

        return run

    wrong = OperationDefinition(old.signature, old.shape, kernel, old.half, old.zero_sized)
    monkeypatch.setitem(REGISTRY, kind, wrong)


def failing(kind: OperationType) -> int:
    """A seed whose large graph has the operation."""
    for seed in range(100):
        if any(o.kind is kind for o in generate("large", I32, seed).operations):
            return seed
    raise AssertionError(kind)


def test_wrong_operation_is_found_and_the_graph_shrunk_to_it(
    monkeypatch: pytest.MonkeyPatch, runner: LocalRunner
) -> None:
    graph = generate("large", I32, failing(OperationType.NEG))
    assert check(graph, runner) is None
    broken(OperationType.NEG, monkeypatch)
    assert check(graph, runner) is not None
    kept = shrink(graph, lambda keep: check(graph, runner, keep) is not None)
    assert [graph.operations[i].kind for i in kept] == [OperationType.NEG]


def test_shrinking_keeps_operations_that_fail_only_together() -> None:
    graph = generate("large", F32, 0)
    kept = shrink(graph, lambda keep: {3, 17, 30} <= set(keep))
    assert kept == [3, 17, 30]


def test_command_writes_the_shrunk_graph_as_a_vector_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runner: LocalRunner
) -> None:
    seed = failing(OperationType.NEG)
    broken(OperationType.NEG, monkeypatch)
    report = tmp_path / "report.json"
    words = ["fuzz", "graphs", "--size", "large", "--seeds", "1", "--first", str(seed)]
    assert main([*words, "--dump", str(tmp_path), "--json", str(report)]) == 1
    failures = json.loads(report.read_text())["failures"]
    found = next(f for f in failures if f["name"] == f"random_large_tensor_int32_{seed}")
    assert found["operations"] == ["NEG"]
    [vector] = read(Path(found["file"]))
    # The first element is off by one, which a vector's own tolerance of integers allows.
    verdict = run_suite(vector, "run", runner, exact=True)
    assert verdict.outcome == "failed"


def test_command_passes_where_everything_agrees(tmp_path: Path) -> None:
    assert main(["fuzz", "graphs", "--size", "small", "--seeds", "1", "--dump", str(tmp_path)]) == 0


def test_criteria_bound_elements_mean_and_square() -> None:
    medium = CRITERIA["medium"]
    e = np.zeros(1000, np.float32)

    def reason(actual: np.ndarray[tuple[int], np.dtype[np.float32]]) -> str | None:
        return difference(F32, e, actual, medium, exact=False)

    assert reason(e + np.float32(0.5e-6)) is None
    assert "mean difference" in str(reason(e + np.float32(5e-6)))
    assert "element 0" in str(reason(e + np.float32(5e-5)))
    noise = np.where(np.arange(1000) % 2, 1, -1).astype(np.float32)
    strict = CRITERIA["strict"]._replace(float32=CRITERIA["strict"].float32._replace(atol=1.0))
    assert "mean square" in str(difference(F32, e, e + noise * 0.1, strict, exact=False))


def test_integers_and_booleans_are_equal_where_nothing_inexact_leads_to_them() -> None:
    zeros, ones = np.zeros(20, np.int32), np.ones(20, np.int32)
    large = CRITERIA["large"]
    assert difference(I32, zeros, ones, large, exact=False) is None
    assert difference(I32, zeros, ones, large, exact=True) is not None
    flags, flipped = np.zeros(20, np.uint8), np.zeros(20, np.uint8)
    flipped[:2] = 1
    assert difference(B8, flags, flipped, large, exact=False) is None
    assert difference(B8, flags, flipped, large, exact=True) is not None
    flipped[:3] = 1
    assert difference(B8, flags, flipped, large, exact=False) is not None
