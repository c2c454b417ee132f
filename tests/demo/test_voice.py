"""Frames, segments, the model's parts, and golden outputs of the sound networks."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from nnburst import InvalidArgument
from nnburst.demo.sound import (
    NOISE_DELAY,
    NOISE_HOP,
    VOICE_HOP,
    Frames,
    NoiseWindows,
    Segment,
    build_voice_network,
    find_voice_network,
    noise_golden,
    noise_hops,
    segments,
    signal_to_noise,
    spoken_frames,
    voice_golden,
    voice_hops,
    with_noise,
)
from nnburst.demo.speech import Phrase, shipped_clip
from nnburst.hal.enums import OperationType

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("silero_vad") is None,
    reason="silero-vad is not installed (pip install --no-deps silero-vad==6.2.3)",
)


def test_frame_has_the_end_of_the_hop_before_and_its_own_end_mirrored() -> None:
    samples = np.arange(2 * VOICE_HOP, dtype=np.int16)
    frames = Frames()
    first, second = (frames.frame(hop).reshape(-1) * 32768 for hop in voice_hops(samples))
    np.testing.assert_array_equal(first[:64], np.zeros(64))
    np.testing.assert_array_equal(first[64:576], samples[:512])
    np.testing.assert_array_equal(second[:576], samples[448:])
    np.testing.assert_array_equal(second[576:], samples[1022:958:-1])


def test_rest_that_is_shorter_than_a_hop_is_left_out() -> None:
    assert [len(hop) for hop in voice_hops(np.zeros(1300, np.int16))] == [512, 512]


def test_segments_are_frames_above_the_threshold_without_a_gap() -> None:
    assert segments([]) == []
    assert segments([0.5, 0.2]) == []
    found = segments([0.9, 0.6, 0.1, 0.51])
    assert found == [Segment(0.0, pytest.approx(0.064)), Segment(pytest.approx(0.096), 0.128)]


def test_frame_is_spoken_if_its_middle_is() -> None:
    found = spoken_frames([Phrase("", 0.017, 0.05)], 3)
    assert found.tolist() == [False, True, False]


@needs_package
def test_voice_network_has_sixteen_operations_with_an_lstm_and_two_states() -> None:
    network = build_voice_network(find_voice_network().read_bytes())
    kinds = [OperationType(operation.type) for operation in network.model.main.operations]
    assert len(kinds) == 16
    assert kinds.count(OperationType.LSTM) == 1
    assert [state.input_index for state in network.states] == [1, 2]
    assert all(not state.initial.any() for state in network.states)


@needs_package
def test_other_weights_are_refused_by_the_tensors_name_and_shape() -> None:
    other = find_voice_network().with_name("silero_vad_16k_op15.onnx").read_bytes()
    with pytest.raises(InvalidArgument, match=r"silero-vad: tensor '.*' has the shape"):
        build_voice_network(other)


def test_golden_outputs_have_a_number_for_each_hop_of_the_clip() -> None:
    samples = shipped_clip().samples
    golden = voice_golden()
    assert len(golden.probabilities) == len(samples) // VOICE_HOP
    assert sum(golden.probabilities) == pytest.approx(133.3164, abs=1e-4)
    assert len(noise_golden().levels) == len(samples) // NOISE_HOP


def test_windows_whose_mask_and_samples_change_nothing_add_up_to_the_sound_four_times() -> None:
    samples = (1000 * np.sin(np.arange(2000))).astype(np.int16)
    windows = NoiseWindows()
    found = []
    for hop in noise_hops(samples):
        assert windows.magnitudes(hop).shape == (1, 1, 257)
        found.append(windows.hop(windows.masked(np.ones((1, 1, 257), np.float32))))
    left = np.concatenate(found)[NOISE_DELAY:]
    np.testing.assert_allclose(left, 4 * samples[: len(left)] / 32768, atol=1e-6)


def test_hiss_is_always_the_same_and_as_loud_as_was_asked_for() -> None:
    clean = shipped_clip().samples
    noisy = with_noise(clean, 10.0)
    np.testing.assert_array_equal(noisy, with_noise(clean, 10.0))
    assert signal_to_noise(clean, noisy) == pytest.approx(10, abs=0.1)
    assert signal_to_noise(clean, 3 * noisy.astype(float)) == pytest.approx(10, abs=0.1)
