"""The held-out images: a quarter of scikit-learn's digits, not seen in training."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Split(NamedTuple):
    """Images and what they show.

    Attributes:
        images: uint8, shape (count, 8, 8), values 0 (paper) to 16 (ink).
        labels: uint8, shape (count,), the digits 0 to 9.
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]


def load_split() -> Split:
    """Load the images that the package ships."""
    arrays = load_arrays("split")
    return Split(arrays["images"], arrays["labels"])


def load_arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of `data/NAME.npz`, which ships with the package."""
    with as_file(files(__package__) / "data" / f"{name}.npz") as path, np.load(path) as arrays:
        return dict(arrays)
