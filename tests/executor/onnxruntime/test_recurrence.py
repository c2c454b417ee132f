"""LSTMs by the engine's own operator: what they give, and which are refused."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime", reason="the executor's engine")

from executor.lstm_models import assert_equal_to_reference, sequence, step
from executor.onnxruntime.networks import operators
from nnburst.executor.onnxruntime.network import survey
from nnburst.hal.model import Model


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
    assert all(survey(model).lowered)
    assert_equal_to_reference("onnxruntime", model)


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
