"""Collects inputs to try networks on: photographs and digits of packages, and random inputs.

The original suite used 1500 images of Open Images. Here the photographs of scikit-image and scikit-learn, and
scikit-learn's digits, replace them. If these packages are not installed, there are only random inputs, and
the data set is named accordingly.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.hal.model import DTYPES, Operand
from nnburst.testing.models.network_file import Range, from_picture, looks_like_photograph

Array = npt.NDArray[Any]
Example = tuple[Array, ...]

#: Photographs in every installation of scikit-image, which would download others.
_SKIMAGE: Final = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "rocket.jpg",
    "camera.png",
    "coins.png",
    "motorcycle_left.png",
    "hubble_deep_field.jpg",
    "retina.jpg",
    "moon.png",
    "brick.png",
    "grass.png",
    "gravel.png",
)
#: Smallest side of a random cut-out, as a share of the photograph's smaller side.
_SMALLEST_CUT: Final = 0.4


@dataclass(frozen=True)
class DataSet:
    """Inputs of one kind.

    Attributes:
        name: "photographs", "digits" or "random".
        source: source of the inputs, for the report.
        examples: for each example, an array for each input of the network.
    """

    name: str
    source: str
    examples: tuple[Example, ...]


def data_sets(
    inputs: Sequence[Operand], count: int, seed: int, pixels: Range | None = None
) -> list[DataSet]:
    """All data sets for a network with these inputs.

    Args:
        inputs: inputs of the network. If it takes a picture, there are sets of pictures, too.
        count: greatest number of examples in each set.
        seed: seed of random inputs.
        pixels: real values of black and white; see `nnburst.testing.models.network_file.from_picture`.
    """
    random = np.random.default_rng(seed)
    found = []
    if len(inputs) == 1 and looks_like_photograph(inputs[0]):
        for name, missing, make in (
            ("photographs", _missing("PIL", "skimage", "sklearn"), _photographs),
            ("digits", _missing("PIL", "sklearn"), _digits),
        ):
            if not missing:
                source, pictures = make(random, count)
                examples = tuple((from_picture(p, inputs[0], pixels),) for p in pictures)
                found.append(DataSet(name, source, examples))
    drawn = tuple(tuple(random_input(o, random) for o in inputs) for _ in range(count))
    return [*found, DataSet("random", f"random inputs, seed {seed}", drawn)]


def missing_packages(inputs: Sequence[Operand]) -> list[str]:
    """Packages that have pictures for a network with these inputs and are not installed."""
    if len(inputs) != 1 or not looks_like_photograph(inputs[0]):
        return []
    names = {"PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn"}
    return [names[module] for module in _missing(*names)]


def random_input(operand: Operand, random: np.random.Generator) -> Array:
    """Random values of an input: real ones normally distributed, int32 ones 0 or 1 (they may be indices)."""
    kind = OperandType(operand.type)
    dtype = DTYPES[kind]
    if dtype.kind == "f":
        return random.standard_normal(operand.dimensions).astype(dtype)
    limits = np.iinfo(dtype)
    small = dtype.itemsize > 2 or kind in (OperandType.BOOL, OperandType.TENSOR_BOOL8)
    low, high = (0, 1) if small else (limits.min, limits.max)
    return random.integers(low, high, operand.dimensions, dtype, endpoint=True)


def _missing(*modules: str) -> list[str]:
    return [name for name in modules if importlib.util.find_spec(name) is None]


def _photographs(random: np.random.Generator, count: int) -> tuple[str, list[Array]]:
    """Photographs cut to squares, then random squares from them."""
    sources = [*_of_skimage(), *_of_sklearn()]
    names = ", ".join(name for name, _ in sources)
    pictures = [_square(picture, 1.0, 0.5, 0.5) for _, picture in sources][:count]
    while len(pictures) < count:
        _, picture = sources[len(pictures) % len(sources)]
        share = random.uniform(_SMALLEST_CUT, 1)
        pictures.append(_square(picture, share, random.uniform(), random.uniform()))
    packages = f"scikit-image {version('scikit-image')}, scikit-learn {version('scikit-learn')}"
    return f"squares out of the photographs of {packages}: {names}", pictures


def _of_skimage() -> Iterator[tuple[str, Array]]:
    from PIL import Image

    folder = Path(import_module("skimage").data_dir)
    for name in _SKIMAGE:
        if (folder / name).is_file():
            with Image.open(folder / name) as image:
                yield Path(name).stem, np.asarray(image.convert("RGB"))


def _of_sklearn() -> Iterator[tuple[str, Array]]:
    found = import_module("sklearn.datasets").load_sample_images()
    for name, picture in zip(found.filenames, found.images, strict=True):
        yield Path(name).stem, np.asarray(picture, np.uint8)


def _square(picture: Array, share: float, down: float, right: float) -> Array:
    """A square of `share` of the smaller side, shifted down and right by shares of the rest."""
    height, width = picture.shape[:2]
    side = max(1, int(min(height, width) * share))
    top, left = int((height - side) * down), int((width - side) * right)
    return np.ascontiguousarray(picture[top : top + side, left : left + side])


def _digits(random: np.random.Generator, count: int) -> tuple[str, list[Array]]:
    images = import_module("sklearn.datasets").load_digits().images
    chosen = random.permutation(len(images))[:count]
    grey = [np.asarray(images[n] * (255 / 16), np.uint8) for n in chosen]
    return f"handwritten digits of scikit-learn {version('scikit-learn')}, enlarged", grey
