"""Cuts speech into hops, and detects a wake word in them with a network of `pymicro-wakeword`.

The network takes three feature vectors of 10 ms at once and keeps earlier ones in its variables. With every
third window as input it would answer every 30 ms. Three streams, each with its own variables and one hop
after the other, give one execution for each hop of 10 ms; each stream gets the same inputs as it would alone.

`tools/make_speech.py` wrote the clip with a speech synthesiser. `file_of` finds the files of
other demos, too.
"""

from __future__ import annotations

import json
import wave
from collections import deque
from collections.abc import Iterator
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.errors import InvalidArgument, NnburstError

#: Number of samples in a second, and in a hop of 10 ms.
RATE: Final = 16_000
HOP: Final = 160
HOP_SECONDS: Final = HOP / RATE


class Phrase(NamedTuple):
    """A spoken phrase, and its time (seconds from the beginning)."""

    text: str
    start: float
    end: float


class Clip(NamedTuple):
    """A sound.

    Attributes:
        samples: int16 at 16 kHz, one channel.
        phrases: the spoken ones, if they are known.
    """

    samples: npt.NDArray[np.int16]
    phrases: tuple[Phrase, ...] = ()

    def hops(self) -> Iterator[bytes]:
        """The sound in hops of 10 ms, as from a microphone; a shorter rest is left out."""
        for start in range(0, len(self.samples) - HOP + 1, HOP):
            yield self.samples[start : start + HOP].tobytes()


def shipped_clip() -> Clip:
    """Load the clip that the package ships: five phrases, one of them "Okay Nabu"."""
    folder = files(__package__) / "data"
    phrases = json.loads((folder / "speech.json").read_text(encoding="utf-8"))
    with as_file(folder / "speech.wav") as path:
        return Clip(read_clip(path).samples, tuple(Phrase(**phrase) for phrase in phrases))


def read_clip(path: Path) -> Clip:
    """Read a .wav file at 16 kHz, 16 bits, one channel.

    Raises:
        InvalidArgument: the file is not such a sound.
        OSError: the file cannot be read.
    """
    try:
        with wave.open(str(path), "rb") as file:
            found = file.getframerate(), 8 * file.getsampwidth(), file.getnchannels()
            content = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise InvalidArgument(f"{path} is not a .wav file: {error}") from None
    if found != (RATE, 16, 1):
        raise InvalidArgument(
            f"{path} has {found[0]} Hz, {found[1]} bits, {found[2]} channels, expected {RATE}, 16, 1"
        )
    return Clip(np.frombuffer(content[: len(content) // 2 * 2], "<i2").astype(np.int16))


def file_of(package: str, *parts: str, install: str) -> Path:
    """Find a file of an installed package, without importing the package.

    Args:
        package: name of the package for import.
        parts: folders and file name below the package.
        install: how to install it, for the message.

    Raises:
        NnburstError: the file is missing; the message names the package to install.
    """
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # of a package around it
        spec = None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    raise NnburstError(f"{'/'.join((package, *parts))} is not there; to get it: {install}")


#: Number of hops that the network takes at once, and so of streams that take turns.
STRIDE: Final = 3
_CHANNELS: Final = 40
_INSTALL: Final = "pip install 'nnburst[demo]'"


class WakeWord(NamedTuple):
    """A wake word network and its author's parameters.

    Attributes:
        phrase: the phrase that it detects.
        network: the .tflite file.
        cutoff: least mean probability at which the phrase counts as spoken.
        window: number of one stream's probabilities in the mean.
    """

    phrase: str
    network: Path
    cutoff: float
    window: int


def find_wake_word(name: str = "okay_nabu") -> WakeWord:
    """Find one of the networks in the package `pymicro-wakeword`.

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
    """Converts sound to quantised feature vectors: 40 bands of a window of 30 ms, every 10 ms."""

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
        """Take 10 ms of sound, 160 samples of int16; return whether `latest` has a new last row.

        The first two hops give no row, since they do not fill a window yet.
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
    """Detects the phrase: compares the mean of probabilities over a sliding window with the cutoff."""

    def __init__(self, word: WakeWord) -> None:
        """Start with an empty window."""
        self._cutoff = word.cutoff
        self._window: deque[float] = deque(maxlen=word.window * STRIDE)
        self._heard = False

    @property
    def mean(self) -> float:
        """The mean over the window; 0 until it is full."""
        full = len(self._window) == self._window.maxlen
        return sum(self._window) / len(self._window) if full else 0.0

    def hear(self, probability: float) -> bool:
        """Take the probability of one hop; return whether the phrase was detected now.

        Each phrase is detected once: the mean must fall below half of the cutoff before the next detection.
        """
        self._window.append(probability)
        mean = self.mean
        if self._heard:
            self._heard = mean > self._cutoff / 2
            return False
        self._heard = mean > self._cutoff
        return self._heard
