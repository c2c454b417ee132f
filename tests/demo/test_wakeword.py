"""Features, decisions, and where the network comes from."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from nnburst import NnburstError
from nnburst.demo import speech
from nnburst.demo.speech import STRIDE, Decision, Features, WakeWord, find_wake_word, shipped_clip

WORD = WakeWord("Hello", Path("hello.tflite"), cutoff=0.75, window=2)
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("pymicro_wakeword") is None,
    reason="pymicro-wakeword is not installed (pip install 'nnburst[demo]')",
)


def times_heard(probabilities: list[float]) -> list[int]:
    decision = Decision(WORD)
    return [at for at, value in enumerate(probabilities) if decision.hear(value)]


def test_window_must_be_full_before_anything_is_heard() -> None:
    length = WORD.window * STRIDE
    assert times_heard([1.0] * length) == [length - 1]
    assert times_heard([1.0] * (length - 1)) == []


def test_phrase_is_heard_once_until_the_mean_has_fallen() -> None:
    once = [0.0] * 6 + [1.0] * 10 + [0.7] * 10
    assert len(times_heard(once)) == 1
    assert len(times_heard([*once, *[0.0] * 6, *[1.0] * 6])) == 2


def test_single_sure_answers_are_not_enough() -> None:
    assert times_heard([0.0, 1.0, 0.0] * 20) == []


def test_mean_at_the_cutoff_is_not_above_it() -> None:
    assert times_heard([WORD.cutoff] * 20) == []


@needs_package
def test_features_are_the_packages_own_quantised() -> None:
    from pymicro_features import MicroFrontend

    scale, zero_point = 0.10196078568696976, -128
    features, frontend = Features(scale, zero_point), MicroFrontend()
    vectors: list[np.ndarray] = []
    for hop in list(shipped_clip().hops())[:100]:
        found = frontend.process_samples(hop).features
        assert features.hear(hop) == bool(found)
        if found:
            real = np.round(np.array(found) / scale + zero_point)
            vectors.append(np.clip(real, -128, 127).astype(np.int8))
            expected = np.array(vectors[-STRIDE:])
            np.testing.assert_array_equal(features.latest[-len(expected) :], expected)
    assert len(vectors) == 98


@needs_package
def test_network_comes_with_its_authors_parameters() -> None:
    word = find_wake_word()
    assert word.phrase == "Okay Nabu"
    assert word.network.is_file()
    assert 0.5 < word.cutoff < 1
    assert word.window > 1


def test_missing_packages_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "find_spec", lambda _: None)
    with pytest.raises(NnburstError, match=r"pip install 'nnburst\[demo\]'"):
        find_wake_word()
    monkeypatch.setitem(sys.modules, "pymicro_features", None)
    with pytest.raises(NnburstError, match=r"pip install 'nnburst\[demo\]'"):
        Features(1.0, 0)


@needs_package
def test_unknown_network_is_refused() -> None:
    with pytest.raises(NnburstError, match=r"models/hello\.json is not there"):
        find_wake_word("hello")
