"""Conversion of the conformance vectors' models with the signatures of the reference executor."""

from __future__ import annotations

from pathlib import Path

import pytest

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.compat import convert, requirement
from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.enums import FeatureLevel, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import SCALARS, Model
from nnburst.testing.conformance.vectors import build, read

SIGNATURES = {kind: definition.signature for kind, definition in REGISTRY.items()}
FOLDERS = ["V1_0", "V1_1", "V1_2", "V1_3", "AIDL_V2", "AIDL_V3"]


def check(model: Model) -> None:
    """The model survives the first version that can express it, and the one before refuses it."""
    level = requirement.model(model, SIGNATURES)
    made = convert.to_hal(model, level, signatures=SIGNATURES)
    back = convert.to_canonical(made, level, signatures=SIGNATURES)
    if level > FeatureLevel.V1_0:  # whose models have no relaxed flag
        assert back == model
        with pytest.raises(InvalidArgument):
            convert.to_hal(model, FeatureLevel(level - 1), signatures=SIGNATURES)
    assert back.main == model.main


def _loops_over_unknown_sizes(model: Model) -> bool:
    """Whether a WHILE, or a subgraph that it runs, has an argument of unknown dimensions."""
    for graph in (model.main, *model.referenced):
        for operation in graph.operations:
            if operation.type != OperationType.WHILE:
                continue
            seen = [graph.operands[i] for i in (*operation.inputs, *operation.outputs)]
            for operand in seen[:2]:
                inner = model.referenced[operand.location.offset]
                indexes = (*inner.input_indexes, *inner.output_indexes)
                seen += [inner.operands[i] for i in indexes]
            tensors = [o for o in seen if o.type not in SCALARS]
            if any(not o.dimensions or 0 in o.dimensions for o in tensors):
                return True
    return False


@pytest.mark.shared
@pytest.mark.parametrize("folder", FOLDERS)
def test_models_of_the_vectors_survive_their_version_and_no_older_one(
    folder: str, shared_dir: Path
) -> None:
    checked = 0
    for path in sorted((shared_dir / "vectors" / folder).glob("*.json.gz")):
        vector = next((v for v in read(path) if not v.expect_failure), None)
        if vector is None:
            continue
        model = build(vector).model
        if _loops_over_unknown_sizes(model):  # which only runtimes can run
            with pytest.raises(InvalidArgument, match="P12"):
                check(model)
        else:
            check(model)
        checked += 1
    assert checked
