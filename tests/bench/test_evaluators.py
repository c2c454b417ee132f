"""Evaluators score outputs beside the truth and golden sequences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.bench.model.networks import (
    Outputs,
    characters,
    differences,
    mel_cep_log_f0,
    phone_error_rate,
    segments,
    top_k,
)
from nnburst.hal.errors import InvalidArgument

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.4, 0.35, 0.25]])


def phones(*labels: int) -> np.ndarray:
    return np.eye(8)[list(labels)]


def test_top_k_counts_the_class_among_the_first_ones() -> None:
    found = top_k(SCORES, np.array([1, 1, 2, 2]))
    assert found.figures == {"top1": 0.5, "top2": 0.75, "top3": 1.0}
    assert list(found.failures) == []


@pytest.mark.parametrize(("expected", "fails"), [(0.5, False), (0.549, False), (0.56, True)])
def test_first_class_may_be_five_points_below_what_is_expected(
    expected: float, fails: bool
) -> None:
    found = top_k(SCORES, np.array([1, 1, 2, 2]), expected)
    assert bool(found.failures) == fails
    if fails:
        assert "top1 is 0.5, expected at least 0.56" in found.failures[0]


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2, 3], [0, 0, 0, -1]])
def test_labels_that_do_not_fit_are_refused(labels: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="labels"):
        top_k(SCORES, np.array(labels))


def test_negative_differences_count_as_positive_ones_do() -> None:
    pair = Outputs(np.array([[1.0], [0.0]]), np.array([[1.0], [3.0]]))
    found = differences("sequences", [pair], largest=2.9)
    assert found.figures == {"mean_squared": 4.5, "largest": 3.0}
    assert "largest is 3, expected at most 2.9" in found.failures


def test_differences_are_those_of_real_values() -> None:
    pair = Outputs(np.array([1.0]), np.array([2.0]))
    assert differences("values", [pair], mean=5.0, deviation=10.0).figures["largest"] == 10


def test_output_that_is_not_a_number_is_never_as_expected() -> None:
    pair = Outputs(np.array([np.nan]), np.array([2.0]))
    found = differences("values", [pair], largest=1e9)
    assert found.failures
    assert found.as_json()["figures"]["largest"] is None


def test_worst_utterance_decides_the_rate_of_phones() -> None:
    right = Outputs(phones(1, 2, 3, 4), phones(1, 2, 3, 4))
    shifted = Outputs(phones(2, 3, 4, 5), phones(1, 2, 3, 4))  # one left out, one put in
    assert phone_error_rate([right]).figures == {"worst_rate": 0.0}
    found = phone_error_rate([right, shifted])
    assert found.figures == {"worst_rate": 0.5}
    assert found.failures


@given(
    st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=12)
)
def test_edits_are_as_few_as_the_textbook_counts(one: list[int], other: list[int]) -> None:
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b)))
        rows.append(row)
    found = np.eye(8)[one].reshape(-1, 8)
    rate = phone_error_rate([Outputs(found, phones(*other))]).figures["worst_rate"]
    assert rate == pytest.approx(rows[-1][-1] / len(other))


def test_spectrum_and_melody_of_speech_are_judged_apart() -> None:
    golden = np.zeros((2, 4 * 49))
    golden.reshape(-1, 49)[:, 48] = 1
    found = golden.copy()
    frames = found.reshape(-1, 49)
    frames[:, 0] = 100  # the first amplitude is loudness, which does not count
    frames[0, 48] = -1  # unvoiced here: its melody does not count
    frames[0, 47] = 100
    assert not mel_cep_log_f0([Outputs(found, golden)]).failures
    frames[1, 47] = 1
    (failure,) = mel_cep_log_f0([Outputs(found, golden)]).failures
    assert failure.startswith("log_f0 is")
    frames[:, 1:40] += 5
    assert len(mel_cep_log_f0([Outputs(found, golden)]).failures) == 2


def test_decisions_near_the_borders_of_speech_do_not_count() -> None:
    spoken = np.zeros(100, bool)
    spoken[20:60] = True
    shifted = np.roll(spoken, 2).astype(float)
    assert segments(shifted, spoken).figures == {"wrong_decisions": 0.0}
    found = segments(np.roll(spoken, 8).astype(float), spoken)
    assert found.figures == {"wrong_decisions": pytest.approx(0.12)}
    assert found.failures
    with pytest.raises(InvalidArgument, match="99 probabilities, expected one for each of 100"):
        segments(np.zeros(99), spoken)


def line(*classes: int) -> np.ndarray:
    return np.eye(5)[list(classes)]


def test_text_is_read_without_repeats_and_frames_of_no_character() -> None:
    scores = np.stack([line(1, 1, 0, 1, 2, 2, 0), line(3, 0, 0, 4, 0, 1, 0)])
    found = characters(scores, ["aab", "c a"], "abc")
    assert found.figures == {"wrong": 0.0, "lines": 1.0}
    assert list(found.failures) == []


def test_wrong_characters_count_by_edits() -> None:
    scores = np.stack([line(1, 2, 0, 0), line(1, 2, 3, 0)])
    found = characters(scores, ["abc", "abc"], "abc", 0.1)
    assert found.figures["wrong"] == pytest.approx(1 / 6)
    assert found.figures["lines"] == 0.5
    assert list(found.failures) == ["wrong is 0.167, expected at most 0.1"]


def test_as_many_texts_as_lines_are_expected() -> None:
    with pytest.raises(InvalidArgument, match="texts: 2, expected one for each line"):
        characters(line(1)[None], ["a", "b"], "ab")
