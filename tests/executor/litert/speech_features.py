"""Mel-frequency cepstral coefficients of a clip of speech, the input of a keyword network."""

from __future__ import annotations

import numpy as np

from executor.litert.networks import Array
from nnburst.demo.speech import RATE, shipped_clip

#: A frame of 40 ms every 20 ms, 49 of them in a second; 40 mel bands, of which 10 coefficients are kept.
FRAME, STEP, FRAMES = RATE // 25, RATE // 50, 49
BANDS, KEPT = 40, 10


def spoken_seconds() -> list[Array]:
    """Coefficients (49, 10) of each second of the shipped clip, a new one every tenth of a second."""
    samples = shipped_clip().samples / 32768
    starts = range(0, len(samples) - RATE + 1, RATE // 10)
    return [coefficients(samples[start : start + RATE]) for start in starts]


def coefficients(second: Array) -> Array:
    """Coefficients (49, 10) of a second of sound."""
    frames = np.stack([second[n * STEP : n * STEP + FRAME] for n in range(FRAMES)])
    power = np.abs(np.fft.rfft(frames * np.hanning(FRAME), 1024)) ** 2
    loudness = np.log(power @ mel_bands(power.shape[1]).T + 1e-6)
    angles = np.pi / BANDS * np.outer(np.arange(KEPT), np.arange(BANDS) + 0.5)
    return np.asarray(loudness @ np.cos(angles).T * np.sqrt(2 / BANDS), np.float32)


def mel_bands(bins: int) -> Array:
    """Triangles (40, bins) that lie evenly on the mel scale from 20 Hz to 4 kHz."""
    low, high = (2595 * np.log10(1 + f / 700) for f in (20, 4000))
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    found = np.linspace(0, RATE / 2, bins)
    rising = (found - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - found) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling))
