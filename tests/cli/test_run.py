"""`nnburst run` as it is typed: inputs from files, outputs to files, states, and what it refuses."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import wave
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.running import Peer
from nnburst.cli import main
from nnburst.hal.utils import driver_environment
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS


def write(folder: Path, name: str) -> Path:
    """A network as a file."""
    path = folder / "network.tflite"
    path.write_bytes(NETWORKS[name]())
    return path


def doubling(folder: Path, kind: str, shape: tuple[int, ...], **quantization: Any) -> Path:
    """x + x, the result quantised twice as wide."""
    b = TfliteBuilder()
    x = b.input(kind, shape, **quantization)
    doubled = dict(quantization)
    if doubled:
        doubled["scale"] *= 2
    b.operator("ADD", [x, x], [b.output(kind, shape, **doubled)], "AddOptions")
    path = folder / "doubling.tflite"
    path.write_bytes(b.finish())
    return path


def saved(folder: Path, values: Any, name: str = "x.npy") -> Path:
    path = folder / name
    np.save(path, values)
    return path


def executed(path: Path, *words: object) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """The JSON of a run, and its only output."""
    figures, output = path.with_suffix(".json"), path.with_suffix(".out.npy")
    words = ("run", path, *words, "--json", figures, "--output", output)
    assert main([str(word) for word in words]) == 0
    return json.loads(figures.read_text()), np.load(output)


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in ("run", *words)]) == 1
    return capsys.readouterr().err


@pytest.mark.every_day("burst")
@pytest.mark.parametrize("via", ["burst", "execute"])
def test_output_is_what_litert_computes(via: str, tmp_path: Path) -> None:
    path = write(tmp_path, "CONV_2D-same-UINT8")
    [operand] = [nnburst.load(path).model.main.operands[0]]
    values = np.random.default_rng(1).integers(0, 256, operand.dimensions, np.uint8)
    report, found = executed(path, "--input", saved(tmp_path, values), "--via", via)
    [expected] = Peer(path.read_bytes(), fast=True).run([values])
    np.testing.assert_array_equal(found, expected)
    assert report["via"] == via
    assert report["outputs"][0]["shape"] == list(expected.shape)


def test_real_numbers_are_quantised_for_a_quantised_input(tmp_path: Path) -> None:
    path = doubling(tmp_path, "INT8", (1, 4), scale=0.5, zero_point=3)
    values = np.array([[0, 1, -1.3, 1000]])
    report, found = executed(path, "--input", saved(tmp_path, values))
    np.testing.assert_array_equal(found, [[3, 5, 0, 127]])
    assert (report["outputs"][0]["min"], report["outputs"][0]["max"]) == (-3, 124)


def test_missing_extents_of_one_are_added(tmp_path: Path) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4, 1))
    _, found = executed(path, "--input", saved(tmp_path, np.arange(4.0)))
    np.testing.assert_array_equal(found, np.arange(0, 8, 2, np.float32).reshape(1, 4, 1))


def test_picture_is_resized_and_its_pixels_are_the_stored_values(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (extra 'cli')")
    path = doubling(tmp_path, "INT8", (1, 2, 2, 3), scale=1 / 128, zero_point=0)
    colours = np.array([[[0, 50, 255], [1, 2, 3]], [[9, 8, 7], [128, 127, 200]]], np.uint8)
    large = tmp_path / "picture.png"
    image.fromarray(colours.repeat(2, 0).repeat(2, 1)).resize((2, 2), 0).save(large)
    _, found = executed(path, "--input", large)
    np.testing.assert_array_equal(found[0], colours.astype(int) - 128)


def test_pixel_range_sets_the_values_of_black_and_white(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (extra 'cli')")
    path = doubling(tmp_path, "FLOAT32", (1, 1, 2, 1))
    picture = tmp_path / "picture.png"
    image.fromarray(np.array([[0, 255]], np.uint8)).save(picture)
    _, found = executed(path, "--input", picture, "--pixel-range=-1:1")
    np.testing.assert_allclose(found.reshape(-1), [-2, 2])
    _, found = executed(path, "--input", picture)
    np.testing.assert_allclose(found.reshape(-1), [0, 2])


def sound(path: Path, samples: Any, width: int, channels: int = 1) -> Path:
    """A .wav file of integer samples."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(16000)
        content = np.asarray(samples)
        if width == 3:
            file.writeframes(b"".join(int(s).to_bytes(3, "little", signed=True) for s in content))
        else:
            file.writeframes(content.astype({1: "u1", 2: "<i2", 4: "<i4"}[width]).tobytes())
    return path


@pytest.mark.every_day("1-samples0", "3-samples2")
@pytest.mark.parametrize(
    ("width", "samples"),
    [
        (1, [128, 192, 0]),
        (2, [0, 2**14, -(2**15)]),
        (3, [0, 2**22, -(2**23)]),
        (4, [0, 2**30, -(2**31)]),
    ],
)
def test_sound_of_any_width_goes_from_minus_one_to_one(
    width: int, samples: list[int], tmp_path: Path
) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    _, found = executed(path, "--input", sound(tmp_path / "x.wav", samples, width))
    np.testing.assert_array_equal(found, [[0, 1, -2, 0]])


def test_channels_of_a_sound_are_averaged_and_what_is_too_long_is_cut(tmp_path: Path) -> None:
    path = doubling(tmp_path, "FLOAT32", (2,))
    stereo = sound(tmp_path / "x.wav", [2**14, 0, 0, -(2**14), 1, 1], 2, channels=2)
    _, found = executed(path, "--input", stereo)
    np.testing.assert_array_equal(found, [0.5, -0.5])


@pytest.mark.every_day("2-1", "4-5")
@pytest.mark.parametrize(("width", "missing"), [(2, 1), (2, 2), (2, 3), (3, 1), (4, 5)])
def test_sound_that_is_cut_off_ends_with_its_last_whole_frame(
    width: int, missing: int, tmp_path: Path
) -> None:
    path = doubling(tmp_path, "FLOAT32", (3,))
    half = 1 << (8 * width - 2)
    stereo = sound(tmp_path / "x.wav", [half] * 4, width, channels=2)
    stereo.write_bytes(stereo.read_bytes()[:-missing])
    _, found = executed(path, "--input", stereo)
    np.testing.assert_array_equal(found, [1, 0, 0])


def test_sound_without_any_bytes_ends_too_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doubling(tmp_path, "FLOAT32", (3,))
    empty = tmp_path / "x.wav"
    empty.touch()
    assert main(["run", str(path), "--input", str(empty)]) == 1
    assert f"--input {empty}: is not PCM sound: it ends too early;" in capsys.readouterr().err


@pytest.mark.every_day("burst")
@pytest.mark.parametrize("via", ["burst", "execute"])
def test_states_go_from_one_execution_to_the_next(via: str, tmp_path: Path) -> None:
    path = write(tmp_path, "SVDF-FLOAT32")
    values = np.random.default_rng(3).standard_normal((2, 3)).astype(np.float32)
    words = ("--input", saved(tmp_path, values), "--via", via, "--executor", "reference")
    report, found = executed(path, *words, "--repeat", 3)
    peer = Peer(path.read_bytes())
    for _ in range(3):
        [expected] = peer.run([values])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert [output["name"] for output in report["outputs"]] != ["state"]
    assert len(report["outputs"]) == 1


def test_durations_are_printed_and_the_drivers_own_when_asked_for(tmp_path: Path) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    given = saved(tmp_path, np.ones((1, 4), np.float32))
    report, _ = executed(path, "--input", given, "--repeat", 5, "--measure")
    assert report["executions"] == 5
    assert 0 < report["median_ns"] <= report["p99_ns"]
    assert report["device_us"] <= report["driver_us"] <= report["p99_ns"] / 1000 + 1
    unmeasured, _ = executed(path, "--input", given)
    assert "driver_us" not in unmeasured


def test_classes_get_their_names_from_the_file_of_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 3))
    labels = tmp_path / "labels.txt"
    labels.write_text("yes\nno\nperhaps\n")
    given = saved(tmp_path, np.array([[1, 3, 2]], np.float32))
    report, _ = executed(path, "--input", given, "--labels", labels, "--top", 2)
    assert report["outputs"][0]["top"] == [
        {"index": 1, "label": "no", "score": 6},
        {"index": 2, "label": "perhaps", "score": 4},
    ]
    assert "perhaps" in capsys.readouterr().out


def test_labels_that_a_network_carries_are_found(tmp_path: Path) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 3))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("others.txt", "a\nb\n")
        archive.writestr("labels.txt", "yes\nno\nperhaps\n")
    path.write_bytes(path.read_bytes() + packed.getvalue())
    given = saved(tmp_path, np.array([[1, 3, 2]], np.float32))
    report, _ = executed(path, "--input", given)
    assert [top["label"] for top in report["outputs"][0]["top"]] == ["no", "perhaps", "yes"]


def test_numbers_that_json_cannot_say_are_left_out(tmp_path: Path) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 2))
    given = saved(tmp_path, np.array([[np.inf, 1]], np.float32))
    report, _ = executed(path, "--input", given)
    assert report["outputs"][0]["max"] is None


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.zeros((1, 5), np.float32), "has shape (1, 5)"),
        (np.zeros((1, 4), np.int64), "has dtype int64"),
        (np.zeros((1, 4), np.complex64), "has dtype complex64"),
        (np.full((1, 4), np.nan), "not finite"),
    ],
)
def test_array_that_does_not_fit_is_refused(
    values: Any, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doubling(tmp_path, "INT8", (1, 4), scale=0.5, zero_point=3)
    given = saved(tmp_path, values)
    told = refusal(capsys, path, "--input", given)
    assert f"--input {given}: " in told
    assert why in told


@pytest.mark.parametrize("name", ["x.npy", "x.wav", "x.png"])
def test_file_of_another_format_than_its_suffix_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 2, 2, 3))
    given = tmp_path / name
    given.write_bytes(b"nothing of the kind")
    assert f"--input {given}: is not " in refusal(capsys, path, "--input", given)


@pytest.mark.parametrize(
    "content",
    [b"PK\3\4xxxx"]
    + [
        b"\x93NUMPY\1\0" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
        for header in (
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }",
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000000000000,), }",
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,",
            b"[" * 9000,
        )
    ],
    ids=["archive", "too large", "larger than any", "cut off", "nested"],
)
def test_hostile_array_is_refused(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    given = tmp_path / "x.npy"
    given.write_bytes(content)
    assert "is not a .npy file of numbers" in refusal(capsys, path, "--input", given)


def test_pickled_objects_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    given = saved(tmp_path, np.array([object()]))
    assert "is not a .npy file of numbers" in refusal(capsys, path, "--input", given)


def test_picture_for_an_input_that_takes_no_picture_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    given = tmp_path / "x.png"
    given.write_bytes(b"")
    assert "is taken for a picture" in refusal(capsys, path, "--input", given)


def test_input_that_does_not_exist_is_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    assert "No such file" in refusal(capsys, path, "--input", tmp_path / "nonexist")


def test_inputs_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    assert "--input: 0 given, the model has 1" in refusal(capsys, path)


def test_outputs_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    given = saved(tmp_path, np.ones((1, 4), np.float32))
    words = [word for n in "ab" for word in ("--output", tmp_path / n)]
    assert "--output: 2 given, the model has 1" in refusal(capsys, path, "--input", given, *words)


def test_labels_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    labels = tmp_path / "labels.txt"
    labels.write_text("one\n")
    given = saved(tmp_path, np.ones((1, 4), np.float32))
    told = refusal(capsys, path, "--input", given, "--labels", labels)
    assert "1 lines, the outputs have [4] elements" in told


@pytest.mark.parametrize("word", ["--repeat", "--top"])
def test_counts_below_one_are_refused(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "any"), word, "0"])
    assert ended.value.code == 2
    assert f"argument {word}: '0', expected a number of 1 or more" in capsys.readouterr().err


def test_driver_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doubling(tmp_path, "FLOAT32", (1, 4))
    given = saved(tmp_path, np.ones((1, 4), np.float32))
    told = refusal(capsys, path, "--input", given, "--connect", tmp_path / "nobody.sock")
    assert "nobody.sock" in told


def test_driver_that_is_running_executes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    serve = [sys.executable, "-m", "nnburst", "serve", "lab", "--executor", "reference"]
    served = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=driver_environment())
    try:
        assert served.stdout is not None
        assert served.stdout.readline().startswith("reference listens at ")
        path = doubling(tmp_path, "FLOAT32", (1, 4))
        given = saved(tmp_path, np.ones((1, 4), np.float32))
        report, found = executed(path, "--input", given, "--connect", "lab")
    finally:
        served.kill()
        served.communicate(timeout=10)
    assert found.tolist() == [[2, 2, 2, 2]]
    assert report["device"]["name"] == "lab"


@pytest.mark.parametrize("text", ["1", "1:0", "a:b", "0:inf"])
def test_invalid_pixel_range_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "any.tflite", f"--pixel-range={text}"])
    assert ended.value.code == 2
    assert "LOW:HIGH" in capsys.readouterr().err


@pytest.mark.shared
def test_real_network_names_its_class(shared_dir: Path, tmp_path: Path) -> None:
    path = shared_dir / "models" / "mobilenet_v1_0.25_128_uint8.tflite"
    values = np.random.default_rng(5).integers(0, 256, (1, 128, 128, 3), np.uint8)
    target = tmp_path / "run.json"
    words = ["run", str(path), "--input", str(saved(tmp_path, values)), "--json", str(target)]
    assert main(words) == 0
    [expected] = Peer(path.read_bytes(), fast=True).run([values])
    [output] = json.loads(target.read_text())["outputs"]
    assert output["top"][0]["index"] == int(expected.argmax())
    assert output["top"][0]["label"]
