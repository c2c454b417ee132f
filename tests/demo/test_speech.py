"""The shipped clip, clips of a user's own, and hops of 10 ms."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from nnburst import InvalidArgument
from nnburst.demo.speech import HOP, RATE, Clip, read_clip, shipped_clip


def write(path: Path, samples: bytes, rate: int = RATE, width: int = 2, channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples)
    return path


def test_shipped_clip_is_small_and_has_its_phrases_one_after_the_other() -> None:
    clip = shipped_clip()
    assert clip.samples.nbytes < 200_000
    times = [time for phrase in clip.phrases for time in (phrase.start, phrase.end)]
    assert times == sorted(times)
    assert times[-1] < len(clip.samples) / RATE
    assert sum("okay nabu" in phrase.text.lower() for phrase in clip.phrases) == 1


def test_shipped_clip_is_loud_where_something_is_said_and_silent_between() -> None:
    clip = shipped_clip()
    spoken = np.zeros(len(clip.samples), bool)
    for phrase in clip.phrases:
        part = slice(int((phrase.start - 0.01) * RATE), int((phrase.end + 0.01) * RATE))
        spoken[part] = True
        assert np.abs(clip.samples[part]).max() > 5000
    assert np.abs(clip.samples[~spoken]).max() == 0


def test_hops_are_the_clip_in_pieces_of_10_ms() -> None:
    samples = np.arange(3 * HOP + 7, dtype=np.int16)
    hops = list(Clip(samples).hops())
    assert [len(hop) for hop in hops] == [320, 320, 320]
    assert b"".join(hops) == samples[: 3 * HOP].tobytes()
    assert list(Clip(samples[:5]).hops()) == []


def test_recording_of_the_users_own_is_read(tmp_path: Path) -> None:
    samples = np.arange(-500, 500, dtype="<i2")
    clip = read_clip(write(tmp_path / "own.wav", samples.tobytes()))
    np.testing.assert_array_equal(clip.samples, samples)
    assert clip.phrases == ()


@pytest.mark.parametrize("wrong", [{"rate": 44100}, {"width": 1}, {"channels": 2}])
def test_other_formats_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    path = write(tmp_path / "other.wav", bytes(8), **wrong)
    with pytest.raises(InvalidArgument, match="expected 16000, 16, 1"):
        read_clip(path)


@pytest.mark.parametrize(
    "content", [b"", b"RIFF", b"not a sound at all, but long enough to be one"]
)
def test_what_is_not_a_sound_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"not a \.wav file"):
        read_clip(path)
