"""Small models: every operation has one, and all of them can be executed."""

from __future__ import annotations

from collections import Counter

import pytest

from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.validation import validate_model
from nnburst.testing.conformance.runners import SIGNATURES, LocalRunner
from nnburst.testing.models.small_models import (
    SmallModel,
    all_models,
    made_models,
    missing_row,
    some_per_operation,
)

MODELS = list(all_models())


def status(small: SmallModel) -> ErrorStatus:
    prepared = LocalRunner("reference").prepare(small.model, small.pools)
    return prepared.run(small.inputs, small.output_sizes).status


def test_every_operation_has_a_model_and_names_are_unique() -> None:
    covered = frozenset().union(*(small.operations for small in MODELS))
    assert covered == set(OperationType) - {OperationType.OEM_OPERATION}
    assert len({small.name for small in MODELS}) == len(MODELS)


@pytest.mark.parametrize(
    "small", [*made_models(), *some_per_operation(MODELS)], ids=lambda s: s.name
)
def test_model_is_valid_and_its_request_can_be_executed(small: SmallModel) -> None:
    validate_model(small.model, SIGNATURES)
    assert status(small) == ErrorStatus.NONE


def test_models_are_the_same_in_every_run() -> None:
    for one, other in zip(MODELS, all_models(), strict=True):
        assert one.model == other.model


def test_model_with_a_missing_row_is_valid_and_fails() -> None:
    assert status(missing_row()) not in (ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT)


def test_some_per_operation_takes_the_first_of_each() -> None:
    once = list(some_per_operation(MODELS))
    twice = list(some_per_operation(MODELS, 2))
    assert {s.operations for s in once} <= {s.operations for s in twice}
    drawn = Counter(operation for small in once for operation in small.operations)
    assert len(drawn) == 106
    assert len(once) <= 106 < len(twice) <= 2 * 106
