"""LSTMs of a few steps on the engine: what they give, and which are left to the reference executor."""

from __future__ import annotations

import pytest

from executor.litert.networks import needs_engine
from executor.lstm_models import assert_equal_to_reference, sequence, step
from nnburst.executor.litert.network import survey
from nnburst.hal.model import Model
from nnburst.hal.validation import validate_model
from nnburst.testing.conformance.runners import SIGNATURES

pytestmark = needs_engine


@pytest.mark.parametrize("activation", [1, 3, 4, 6])
def test_step_gives_what_the_reference_executor_gives(route: str, activation: int) -> None:
    del route
    assert_equal(step(activation))


@pytest.mark.parametrize("states", [True, False], ids=["states", "no states"])
@pytest.mark.parametrize("time_major", [True, False], ids=["time first", "batch first"])
@pytest.mark.parametrize("steps", [1, 3, 16])
def test_sequence_gives_what_the_reference_executor_gives(
    route: str, steps: int, time_major: bool, states: bool
) -> None:
    del route
    assert_equal(sequence(steps, time_major=time_major, states=states))


def assert_equal(model: Model) -> None:
    assert survey(model, []).network is not None
    assert_equal_to_reference("litert", model)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (step(activation=0), "activation 0 of an LSTM"),
        (step(clip=1.0), "a clip"),
        (step(peephole=True), "peepholes or a projection"),
        (step(coupled=True), "coupled gates"),
        (step(normalised=True), "layer normalisation"),
        (step(steered=True), "extents that depend on data"),
        (step(constant=False), "'input_to_input_weights' that is not a constant"),
        (sequence(17), "an LSTM of 17 steps"),
        (sequence(2, normalised=True), "layer normalisation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_steps_are_refused_with_the_reason(model: Model, why: str) -> None:
    validate_model(model, SIGNATURES)
    assert survey(model, []).refusals[0] == why
