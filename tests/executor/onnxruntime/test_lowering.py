"""Core operations by onnxruntime: what is claimed runs and is right; what is not is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the executor's engine")

from executor.onnxruntime.networks import F32, I32, Chain, computed, operators
from nnburst.executor.base import Argument
from nnburst.executor.built_in import onnxruntime, reference
from nnburst.executor.onnxruntime.network import lower, survey
from nnburst.hal.enums import ErrorStatus, OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.conformance.campaign import Selection, find_files, run_files
from nnburst.testing.conformance.comparison import Unsupported
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.conformance.vectors import build
from nnburst.testing.models.random_graphs import check, generate
from nnburst.testing.models.random_graphs.graphs import as_vector
from testing.some_vectors import some_files

_KINDS = [OperandType.TENSOR_FLOAT32, OperandType.TENSOR_INT32, OperandType.TENSOR_BOOL8]


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.name)
def test_random_operations_are_right(kind: OperandType) -> None:
    runner, claimed = LocalRunner("onnxruntime"), 0
    for seed in range(120):
        try:
            assert check(generate("single", kind, seed), runner) is None, seed
        except Unsupported:
            continue
        claimed += 1
    assert claimed >= 50


@pytest.mark.parametrize("size", ["small", "wide"])
def test_claimed_operations_of_random_graphs_are_right_together(size: str) -> None:
    """The order of a value's axes between them is theirs, too."""
    runner, together = LocalRunner("onnxruntime"), 0
    for seed in range(15):
        graph = generate(size, F32, seed)
        found = survey(build(as_vector(graph)).model)
        keep = [number for number, lowered in enumerate(found.lowered) if lowered]
        if keep:
            assert check(graph, runner, keep) is None, seed
            together += len(keep) > 1
    assert together >= 3


@pytest.mark.shared
def test_some_claimed_vectors_pass(shared_dir: Path) -> None:
    check_claimed(some_files(shared_dir), 1)


@pytest.mark.shared
@pytest.mark.campaign
def test_claimed_vectors_pass(shared_dir: Path) -> None:
    assert check_claimed(find_files([shared_dir / "vectors"]), 2) >= 2000


def check_claimed(files: Sequence[Path], jobs: int) -> int:
    """The engine gives what the vectors expect for all that it claims; how many those are."""
    selection = Selection("onnxruntime", suites=("run",))
    results = [r for found in run_files(files, selection, jobs) for r in found]
    assert [(r.name, r.reason) for r in results if r.outcome == "failed"] == []
    return sum(r.outcome == "passed" for r in results)


def reshaped_by(target: np.ndarray[tuple[int], np.dtype[np.int32]], lifetime: str) -> Model:
    """Its extents are a small constant, a constant in a pool, or an input."""
    builder = ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.output(F32, (2, 2))
    is_input = lifetime == "SUBGRAPH_INPUT"
    shape = builder.input(I32, (2,)) if is_input else builder.constant(I32, target)
    builder.operation(OperationType.RESHAPE, [x, shape], [y])
    model = builder.build()
    if lifetime != "CONSTANT_REFERENCE":
        return model
    operands = list(model.main.operands)
    place = DataLocation(0, 0, target.nbytes)
    kind = OperandLifeTime.CONSTANT_REFERENCE
    operands[shape] = msgspec.structs.replace(operands[shape], lifetime=kind, location=place)
    main = msgspec.structs.replace(model.main, operands=tuple(operands))
    return msgspec.structs.replace(model, main=main, pools=(MemoryPool(target.nbytes),))


@pytest.mark.parametrize(
    ("lifetime", "claimed"),
    [("CONSTANT_COPY", True), ("CONSTANT_REFERENCE", False), ("SUBGRAPH_INPUT", False)],
)
def test_what_steers_an_operation_has_to_be_known_when_it_is_claimed(
    lifetime: str, claimed: bool
) -> None:
    target = np.array([2, 2], np.int32)
    model = reshaped_by(target, lifetime)
    assert survey(model).lowered == (claimed,)
    if lifetime == "CONSTANT_REFERENCE":
        assert lower(model, [target.view(np.uint8)]) is not None


def test_weights_in_a_pool_are_no_doubt() -> None:
    weights = np.arange(64, dtype=np.float32)
    builder = ModelBuilder()
    x, y = builder.input(F32, (64,)), builder.output(F32, (64,))
    w = builder.constant(F32, weights)
    builder.operation(OperationType.MUL, [x, w, builder.scalar(0)], [y])
    model = builder.build()
    operands = list(model.main.operands)
    operands[w] = msgspec.structs.replace(
        operands[w],
        lifetime=OperandLifeTime.CONSTANT_REFERENCE,
        location=DataLocation(0, 0, weights.nbytes),
    )
    main = msgspec.structs.replace(model.main, operands=tuple(operands))
    model = msgspec.structs.replace(model, main=main, pools=(MemoryPool(weights.nbytes),))
    assert survey(model).lowered == (True,)
    written = lower(model, [weights.view(np.uint8)])
    assert written is not None
    assert bytes(written.constants) == weights.tobytes()


@pytest.mark.parametrize(
    "kind", [OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_FLOAT16], ids=lambda k: k.name
)
def test_other_types_are_not_claimed_and_do_not_hide_what_is(kind: OperandType) -> None:
    builder = ModelBuilder()
    scale = {"scale": 0.5} if kind is OperandType.TENSOR_QUANT8_ASYMM else {}
    q, x = builder.input(kind, (4,), **scale), builder.input(F32, (4,))
    clamped, y = builder.output(kind, (4,), **scale), builder.output(F32, (4,))
    builder.operation(OperationType.RELU, [q], [clamped])
    builder.operation(OperationType.RELU, [x], [y])
    model = builder.build()
    assert survey(model).lowered == (False, True)
    assert onnxruntime().supported(model) == [False, True]


@pytest.mark.parametrize(("alpha", "claimed"), [(0.5, True), (0.0, True), (-0.5, False)])
def test_an_exponential_part_of_any_sign_is_as_nnapi_has_it(alpha: float, claimed: bool) -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ELU, [x, builder.scalar(alpha)], [y])
    model, given = builder.build(), np.array([-2, -0.5, 0.5, 2], np.float32)
    assert survey(model).lowered == (claimed,)
    (found,), (wanted,) = (computed(e, model, [given]) for e in (onnxruntime(), reference()))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_integers_behind_dequantize_are_real_weights() -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (2, 3)), builder.output(F32, (2, 5))
    stored = builder.constant(
        OperandType.TENSOR_QUANT8_ASYMM_SIGNED, np.arange(15).reshape(5, 3), scale=0.5, zero_point=2
    )
    weights = builder.temporary(F32, (5, 3))
    bias = builder.constant(F32, np.zeros(5, np.float32))
    builder.operation(OperationType.DEQUANTIZE, [stored], [weights])
    builder.operation(OperationType.FULLY_CONNECTED, [x, weights, bias, builder.scalar(0)], [y])
    model, given = builder.build(), np.arange(6, dtype=np.float32).reshape(2, 3)
    assert onnxruntime().supported(model) == [True, True]
    (found,), (wanted,) = (computed(e, model, [given]) for e in (onnxruntime(), reference()))
    np.testing.assert_array_equal(found, wanted)


def gathering() -> Model:
    """Rows of a table by the indices of an input."""
    builder = ModelBuilder()
    table = builder.constant(F32, np.arange(12, dtype=np.float32).reshape(4, 3))
    places, y = builder.input(I32, (2,)), builder.output(F32, (2, 3))
    builder.operation(OperationType.GATHER, [table, builder.scalar(0), places], [y])
    return builder.build()


@pytest.mark.parametrize(
    ("indices", "status"),
    [((3, 0), "NONE"), ((4, 0), "GENERAL_FAILURE"), ((0, -1), "GENERAL_FAILURE")],
)
def test_an_index_outside_fails_though_the_engine_counts_from_the_end(
    indices: tuple[int, int], status: str
) -> None:
    prepared = onnxruntime().prepare(gathering(), [])
    given, taken = np.array(indices, np.int32), np.zeros((2, 3), np.float32)
    execution = prepared.bind(
        [Argument(given.view(np.uint8), (2,))], [Argument(taken.reshape(-1).view(np.uint8), (2, 3))]
    )
    assert execution.run().status is ErrorStatus[status]
    assert status != "NONE" or taken.tolist() == [[9, 10, 11], [0, 1, 2]]


@pytest.mark.parametrize(
    ("indices", "operator"),
    [
        ((0, 2, 4), "Slice"),
        ((5, 3, 1), "Slice"),
        ((2, 1, 0), "Slice"),
        ((1, 1, 1), "Gather"),
        ((0, 1, 3), "Gather"),
        ((4, 5, 6), "Gather"),
        ((1, 0, -1), "Gather"),
    ],
)
def test_constant_indices_at_equal_distances_are_a_slice(
    indices: tuple[int, ...], operator: str
) -> None:
    chain = Chain((6, 2))
    axis, places = chain.builder.scalar(0), chain.integers(*indices)
    chain.then(OperationType.GATHER, (3, 2), axis, places, last=True)
    model = chain.build()
    assert operators(model)[operator] == 1
    if 0 <= min(indices) <= max(indices) < 6:
        x = np.arange(12, dtype=np.float32).reshape(6, 2)
        assert computed(onnxruntime(), model, [x])[0].tolist() == x[list(indices)].tolist()


def test_the_last_of_equal_elements_comes_first_as_in_nnapi() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (2, 4))
    values, places = builder.output(F32, (2, 2)), builder.output(I32, (2, 2))
    builder.operation(OperationType.TOPK_V2, [x, builder.scalar(2)], [values, places])
    model, given = builder.build(), np.array([[1, 3, 3, 3], [5, 5, 0, 1]], np.float32)
    found = computed(onnxruntime(), model, [given])
    assert found[1].tolist() == [[3, 2], [1, 0]]
    for ours, theirs in zip(found, computed(reference(), model, [given]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("align", "half_pixel"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("size", "target"), [(14, 46), (5, 10), (10, 5), (7, 3), (3, 9), (1, 4)])
def test_nearest_neighbours_are_the_very_same(
    size: int, target: int, align: bool, half_pixel: bool
) -> None:
    builder = ModelBuilder()
    x, y = builder.input(F32, (1, size, size, 2)), builder.output(F32, (1, target, target, 2))
    operands = [x, *map(builder.scalar, (target, target, False, align, half_pixel))]
    builder.operation(OperationType.RESIZE_NEAREST_NEIGHBOR, operands, [y])
    model = builder.build()
    given = np.arange(size * size * 2, dtype=np.float32).reshape(1, size, size, 2)
    (found,), (wanted,) = (computed(e, model, [given]) for e in (onnxruntime(), reference()))
    np.testing.assert_array_equal(found, wanted)


def test_outputs_may_be_inputs_constants_and_each_other() -> None:
    chain = Chain((2, 3))
    builder, x = chain.builder, chain.now
    same, one, other = (builder.output(F32, shape) for shape in ((3, 2), (2, 3), (6,)))
    count = builder.output(OperandType.INT32, ())
    builder.operation(OperationType.RESHAPE, [x, chain.integers(3, 2)], [same])
    builder.operation(OperationType.RESHAPE, [same, chain.integers(2, 3)], [one])
    builder.operation(OperationType.RESHAPE, [x, chain.integers(6)], [other])
    builder.operation(OperationType.RANK, [x], [count])
    model, given = builder.build(), np.arange(6, dtype=np.float32).reshape(2, 3)
    found = computed(onnxruntime(), model, [given])
    for ours, theirs in zip(found, computed(reference(), model, [given]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
