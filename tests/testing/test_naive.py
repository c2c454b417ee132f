"""Naive versions of operations give what the open vectors expect."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from naive_graphs import computes, evaluate_vector
from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.conformance.comparison import first_mismatch, limits_for
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.conformance.vectors import Vector, build, read
from nnburst.testing.models.naive import NAIVE
from nnburst.testing.models.naive.detection import chances, fingerprint64

_O = OperationType
#: Operations that have no cases of their own in the pack, and the files in which vectors have them.
FILES = {
    _O.BOX_WITH_NMS_LIMIT: "box_with_nms_limit_* add_v1_2 transpose_conv2d softmax_v1_2 slice",
    _O.DETECTION_POSTPROCESSING: "detection_postprocess",
    _O.GENERATE_PROPOSALS: "generate_proposals_* bbox_graph_*",
    _O.HEATMAP_MAX_KEYPOINT: "heatmap_max_keypoint",
    _O.IF: "if_*",
    _O.LSH_PROJECTION: "lsh_projection*",
    _O.LSTM: "lstm* layer_norm_lstm",
    _O.QUANTIZED_16BIT_LSTM: "quantized_lstm",
    _O.QUANTIZED_LSTM: "qlstm_*",
    _O.RANK: "rank",
    _O.WHILE: "while_*",
}
#: Steps of 2**-15 by which NNAPI's logistic and tanh of 16 bits lie beside the real ones in a cell's state.
FUNCTIONS_OF_16_BITS = 10
#: Vectors of each file in the everyday tests.
FEW = 3


def vectors_of(folder: Path, operation: OperationType, most: int) -> Iterator[Vector]:
    for pattern in FILES[operation].split():
        for path in sorted(folder.glob(f"vectors/*/{pattern}.json.gz")):
            found = (
                vector
                for vector in read(path)
                if not vector.expect_failure
                and any(
                    o.type == operation.name for graph in vector.graphs for o in graph.operations
                )
            )
            yield from (vector for vector, _ in zip(found, range(most), strict=False))


def problem(vector: Vector) -> str | None:
    half = vector.relaxed or any(
        o.kind is OperandType.TENSOR_FLOAT16 for graph in vector.graphs for o in graph.operands
    )
    kinds = {o.type for graph in vector.graphs for o in graph.operations}
    for operand, value in zip(vector.outputs, evaluate_vector(vector), strict=True):
        if operand.is_ignored:
            continue
        expected = vector.array_of(operand)
        assert expected is not None
        if expected.shape != value.dimensions:
            return f"{operand.name}: {value.dimensions}, expected {expected.shape}"
        limits = limits_for(operand.kind, vector.tolerance, half=half)
        if _O.QUANTIZED_LSTM.name in kinds and operand.kind is OperandType.TENSOR_QUANT16_SYMM:
            limits = limits._replace(atol=FUNCTIONS_OF_16_BITS)
        mismatch = first_mismatch(expected, value.array, limits)
        if mismatch is not None:
            return f"{operand.name}: {mismatch}"
    return None


def held(folder: Path, operation: OperationType, most: int) -> None:
    tried = 0
    for vector in vectors_of(folder, operation, most):
        assert computes(vector), vector.name
        assert problem(vector) is None, vector.name
        tried += 1
    assert tried >= min(most, 2)


@pytest.mark.shared
@pytest.mark.parametrize("operation", FILES, ids=lambda operation: operation.name)
def test_naive_versions_give_what_some_vectors_expect(
    operation: OperationType, shared_dir: Path
) -> None:
    held(shared_dir, operation, FEW)


@pytest.mark.shared
@pytest.mark.campaign
@pytest.mark.parametrize("operation", FILES, ids=lambda operation: operation.name)
def test_naive_versions_give_what_all_vectors_expect(
    operation: OperationType, shared_dir: Path
) -> None:
    held(shared_dir, operation, 10**9)


@pytest.mark.shared
def test_classes_are_drawn_as_often_as_chances_say(shared_dir: Path) -> None:
    tried = 0
    for path in sorted(shared_dir.glob("vectors/*/random_multinomial*.json.gz")):
        for vector in read(path):
            built, logits = build(vector), vector.array_of(vector.inputs[0])
            prepared = LocalRunner("reference").prepare(built.model, built.pools)
            [operand] = vector.outputs
            room = 4 * math.prod(operand.dimensions)
            result = prepared.run([vector.array_of(o) for o in vector.inputs], [room])
            samples = np.frombuffer(result.outputs[0], np.int32).reshape(operand.dimensions)
            assert logits is not None
            for row, drawn in zip(logits, samples, strict=True):
                found = np.bincount(drawn, minlength=len(row)) / len(drawn)
                expected = chances([float(v) for v in row])
                assert vector.multinomial_tolerance is not None
                assert np.abs(found - expected).max() <= vector.multinomial_tolerance
                tried += 1
    assert tried


def test_every_operation_but_those_of_other_graphs_has_a_naive_version() -> None:
    assert set(OperationType) - set(NAIVE) == {_O.IF, _O.WHILE, _O.OEM_OPERATION}
    assert {*FILES, _O.RANDOM_MULTINOMIAL} - {_O.IF, _O.WHILE} <= set(NAIVE)


@pytest.mark.parametrize("size", [3, 65])
def test_fingerprints_of_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes, expected 4 to 64"):
        fingerprint64(bytes(size))
