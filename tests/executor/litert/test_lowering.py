"""Claimed operations run and are right; others are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from executor.litert.networks import F32, convolution, needs_engine
from nnburst.executor.litert.network import survey
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.conformance.campaign import Selection, find_files, run_files
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.models.random_graphs import check, generate
from testing.some_vectors import some_files
from testing.ties import unexcused

pytestmark = needs_engine

_KINDS = [
    OperandType.TENSOR_FLOAT32,
    OperandType.TENSOR_INT32,
    OperandType.TENSOR_BOOL8,
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
]


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.name)
def test_random_operations_are_right(kind: OperandType) -> None:
    runner = LocalRunner("litert")
    for seed in range(120):
        assert check(generate("single", kind, seed), runner) is None, seed


@pytest.mark.every_day("small-TENSOR_INT32")
@pytest.mark.parametrize("kind", _KINDS[:3], ids=lambda kind: kind.name)
@pytest.mark.parametrize("size", ["small", "large"])
def test_random_graphs_of_lowered_and_other_operations_are_right(
    size: str, kind: OperandType
) -> None:
    runner = LocalRunner("litert")
    for seed in range(25):
        assert check(generate(size, kind, seed), runner) is None, seed


def operators(lowered: Model) -> list[str]:
    """Names of the operators that a model is lowered to."""
    from ai_edge_litert import schema_py_generated as schema

    network = survey(lowered, []).network
    assert network is not None
    model = schema.ModelT.InitFromPackedBuf(network.content)
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    return [
        names[model.operatorCodes[o.opcodeIndex].builtinCode] for o in model.subgraphs[0].operators
    ]


def test_activation_becomes_part_of_the_operator_before_it() -> None:
    assert operators(convolution()) == ["CONV_2D", "AVERAGE_POOL_2D"]


def test_activation_of_a_model_output_stays_by_itself() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (4,))
    total, clamped = builder.output(F32, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [total])
    builder.operation(OperationType.RELU, [total], [clamped])
    assert operators(builder.build()) == ["ADD", "RELU"]


def pooled_window(skipping: bool) -> Model:
    builder = ModelBuilder()
    x, y = builder.input(F32, (1, 2, 2, 1)), builder.output(F32, (1, 1, 2, 1))
    scalars = [0, int(skipping), 0, 0, 1, 2, 2 if skipping else 1, 1, 0]
    builder.operation(OperationType.MAX_POOL_2D, [x, *(builder.scalar(n) for n in scalars)], [y])
    return builder.build()


def test_same_padding_that_skips_cells_is_written_as_pad() -> None:
    assert operators(pooled_window(skipping=True)) == ["PADV2", "MAX_POOL_2D"]
    assert operators(pooled_window(skipping=False)) == ["MAX_POOL_2D"]


def topk_then_relu() -> Model:
    builder = ModelBuilder()
    x = builder.input(F32, (2, 4))
    values = builder.temporary(F32, (2, 2))
    indices = builder.output(OperandType.TENSOR_INT32, (2, 2))
    y = builder.output(F32, (2, 2))
    builder.operation(OperationType.TOPK_V2, [x, builder.scalar(2)], [values, indices])
    builder.operation(OperationType.RELU, [values], [y])
    return builder.build()


def test_operation_that_the_engine_lacks_does_not_hide_the_others() -> None:
    assert survey(topk_then_relu(), []).lowered == (False, True)


def reshaped(*, in_pool: bool) -> tuple[Model, bytes]:
    shape = np.array([2, 2], np.int32)
    builder = ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.output(F32, (2, 2))
    target = builder.constant(OperandType.TENSOR_INT32, shape)
    builder.operation(OperationType.RESHAPE, [x, target], [y])
    model = builder.build()
    if not in_pool:
        return model, b""
    import msgspec

    from nnburst.hal.enums import OperandLifeTime

    operands = list(model.main.operands)
    operands[target] = msgspec.structs.replace(
        operands[target],
        lifetime=OperandLifeTime.CONSTANT_REFERENCE,
        location=DataLocation(0, 0, shape.nbytes),
    )
    main = msgspec.structs.replace(model.main, operands=tuple(operands))
    pools = (MemoryPool(shape.nbytes),)
    return msgspec.structs.replace(model, main=main, pools=pools), shape.tobytes()


@pytest.mark.parametrize("in_pool", [False, True])
def test_parameters_may_lie_in_a_pool(in_pool: bool) -> None:
    model, pool = reshaped(in_pool=in_pool)
    found = survey(model, [np.frombuffer(pool, np.uint8)] if in_pool else [])
    assert found.lowered == (True,)


@pytest.mark.shared
def test_some_claimed_vectors_pass_and_their_integers_exactly(
    shared_dir: Path, tmp_path: Path
) -> None:
    check_claimed(some_files(shared_dir), tmp_path, 1)


@pytest.mark.shared
@pytest.mark.campaign
def test_claimed_vectors_pass_and_their_integers_exactly(shared_dir: Path, tmp_path: Path) -> None:
    check_claimed(find_files([shared_dir / "vectors"]), tmp_path, 2)


def check_claimed(files: Sequence[Path], tmp_path: Path, jobs: int) -> None:
    """The engine gives what the vectors expect for all that it claims."""
    selection = Selection("litert", suites=("run",), exact=True, dump=tmp_path)
    results = [r for found in run_files(files, selection, jobs) for r in found]
    assert unexcused(results, LocalRunner("litert"), rounds_its_own_way=True) == []
    assert all(r.outcome != "skipped" for r in results)


@pytest.mark.parametrize(
    ("kind", "size", "target", "taken"),
    [
        (OperandType.TENSOR_QUANT8_ASYMM, 14, 46, False),
        (OperandType.TENSOR_QUANT8_ASYMM_SIGNED, 527, 1517, False),
        (OperandType.TENSOR_QUANT8_ASYMM, 14, 45, True),
        (OperandType.TENSOR_FLOAT32, 14, 46, True),
    ],
)
def test_nearest_neighbours_of_8_bits_are_taken_only_if_the_engine_finds_the_same(
    kind: OperandType, size: int, target: int, taken: bool
) -> None:
    builder = ModelBuilder()
    quantised = {} if kind == F32 else {"scale": 1.0}
    x = builder.input(kind, (1, 1, size, 1), **quantised)
    y = builder.output(kind, (1, 1, target, 1), **quantised)
    arguments = [x, builder.scalar(target), builder.scalar(1), builder.scalar(False)]
    builder.operation(OperationType.RESIZE_NEAREST_NEIGHBOR, arguments, [y])
    assert survey(builder.build(), []).lowered == (taken,)


@pytest.mark.parametrize(
    ("machine", "kind", "points", "taken"),
    [
        ("aarch64", OperandType.TENSOR_QUANT8_ASYMM, (0, 0), False),
        ("aarch64", OperandType.TENSOR_QUANT8_ASYMM, (0, 1), True),
        ("aarch64", OperandType.TENSOR_QUANT8_ASYMM, (1, 0), True),
        ("aarch64", OperandType.TENSOR_QUANT8_ASYMM_SIGNED, (-128, -128), False),
        ("aarch64", OperandType.TENSOR_QUANT8_ASYMM_SIGNED, (0, 0), True),
        ("armv7l", OperandType.TENSOR_QUANT8_ASYMM, (0, 0), False),
        ("x86_64", OperandType.TENSOR_QUANT8_ASYMM, (0, 0), True),
    ],
)
def test_two_lowest_zero_points_are_not_given_to_the_engine_on_arm(
    machine: str,
    kind: OperandType,
    points: tuple[int, int],
    taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine=machine))
    builder = ModelBuilder()
    x = builder.input(kind, (3, 5), scale=0.5, zero_point=points[0])
    w = builder.input(kind, (1, 5), scale=0.5, zero_point=points[1])
    bias = builder.input(OperandType.TENSOR_INT32, (1,), scale=0.25)
    y = builder.output(kind, (3, 1), scale=64.0, zero_point=0)
    builder.operation(OperationType.FULLY_CONNECTED, [x, w, bias, builder.scalar(0)], [y])
    assert survey(builder.build(), []).lowered == (taken,)
