"""Computes features for a wake word network of `pymicro-wakeword`, and decides from its answers.

The network takes three feature vectors of 10 ms at once and keeps its memory of earlier ones in its
variables. Fed with every third window it would answer every 30 ms. Three streams, each with variables of
its own and one hop behind the other, make it one execution for each hop of 10 ms; each stream sees the same
inputs as it would alone.
"""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.demo.speech import file_of
from nnburst.hal.errors import NnburstError

#: Hops that the network takes at once, which is how many streams take turns.
STRIDE: Final = 3
_CHANNELS: Final = 40
_INSTALL: Final = "pip install 'nnburst[demo]'"


class WakeWord(NamedTuple):
    """A network and how its author uses it.

    Attributes:
        phrase: the one that it detects.
        network: its .tflite file.
        cutoff: mean probability from which on the phrase counts as spoken.
        window: probabilities of one stream that the mean is taken of.
    """

    phrase: str
    network: Path
    cutoff: float
    window: int


def find_wake_word(name: str = "okay_nabu") -> WakeWord:
    """One of the networks that `pymicro-wakeword` brings along.

    Raises:
        NnburstError: the package is not installed, or has no such network.
    """
    description = file_of("pymicro_wakeword", "models", f"{name}.json", install=_INSTALL)
    said = json.loads(description.read_text(encoding="utf-8"))
    network = file_of("pymicro_wakeword", "models", said["model"], install=_INSTALL)
    micro = said["micro"]
    return WakeWord(
        said["wake_word"], network, micro["probability_cutoff"], micro["sliding_window_size"]
    )


class Features:
    """Sound to quantised feature vectors: 40 bands of a window of 30 ms, every 10 ms."""

    def __init__(self, scale: float, zero_point: int) -> None:
        """Quantise for an int8 input of this scale and zero point.

        Raises:
            NnburstError: `pymicro-features` is not installed.
        """
        try:
            from pymicro_features import MicroFrontend
        except ImportError as error:
            raise NnburstError(f"{error}; to get it: {_INSTALL}") from None
        self._frontend = MicroFrontend()
        self._scale = scale
        self._zero_point = zero_point
        self._values = np.empty(_CHANNELS)
        self.latest: npt.NDArray[np.int8] = np.full((STRIDE, _CHANNELS), zero_point, np.int8)

    def hear(self, hop: bytes) -> bool:
        """Take 10 ms of sound, 160 samples of int16; whether `latest` has a new last row.

        The first two hops have no window, which do not fill a window yet.
        """
        found = self._frontend.process_samples(hop).features
        if not found:
            return False
        values, latest = self._values, self.latest
        values[:] = found
        values /= self._scale
        values += self._zero_point
        np.rint(values, out=values)
        np.clip(values, -128, 127, out=values)
        latest[:-1] = latest[1:]
        latest[-1] = values
        return True


class Decision:
    """Probabilities to detections: the mean over a sliding window against the cutoff."""

    def __init__(self, word: WakeWord) -> None:
        """Start with an empty window, in which nothing is detected."""
        self._cutoff = word.cutoff
        self._window: deque[float] = deque(maxlen=word.window * STRIDE)
        self._heard = False

    @property
    def mean(self) -> float:
        """Over the window; 0 until it is full."""
        full = len(self._window) == self._window.maxlen
        return sum(self._window) / len(self._window) if full else 0.0

    def hear(self, probability: float) -> bool:
        """Take the probability of one hop; whether the phrase has been spoken just now.

        Once for each time: the mean has to fall below half of the cutoff in between.
        """
        self._window.append(probability)
        mean = self.mean
        if self._heard:
            self._heard = mean > self._cutoff / 2
            return False
        self._heard = mean > self._cutoff
        return self._heard
