"""LSTMs by the engine's own operator: what they give, and which are refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the executor's engine")

from executor.lstm_models import executed, sequence, step
from executor.onnxruntime.networks import operators
from nnburst.executor.built_in import BUILT_IN
from nnburst.executor.onnxruntime.network import survey
from nnburst.hal.model import Model
from nnburst.hal.validation import validate_model
from nnburst.testing.conformance.runners import SIGNATURES


@pytest.mark.parametrize("constant", [True, False], ids=["constant weights", "given weights"])
def test_step_gives_what_the_reference_executor_gives(constant: bool) -> None:
    assert_equal(step(constant=constant))


@pytest.mark.parametrize("states", [True, False], ids=["states", "no states"])
@pytest.mark.parametrize("time_major", [True, False], ids=["time first", "batch first"])
@pytest.mark.parametrize("steps", [1, 3, 40])
def test_sequence_gives_what_the_reference_executor_gives(
    steps: int, time_major: bool, states: bool
) -> None:
    model = sequence(steps, time_major=time_major, states=states)
    assert operators(model)["LSTM"] == 1
    assert_equal(model)


def assert_equal(model: Model) -> None:
    validate_model(model, SIGNATURES)
    assert all(survey(model).lowered)
    pairs = zip(
        executed(BUILT_IN["onnxruntime"](), model),
        executed(BUILT_IN["reference"](), model),
        strict=True,
    )
    for found, expected in pairs:
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (step(activation=0), "an LSTM of another activation than TANH"),
        (step(clip=1.0), "a clip"),
        (step(peephole=True), "peepholes or a projection"),
        (step(coupled=True), "coupled gates"),
        (step(normalised=True), "layer normalisation"),
        (step(steered=True), "extents that depend on data"),
        (sequence(2, normalised=True), "layer normalisation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_steps_are_refused_with_the_reason(model: Model, why: str) -> None:
    assert survey(model).refusals[0] == why
