"""A clip of speech, and sounds as hops of 10 ms.

`tools/make_speech.py` wrote the clip with a speech synthesiser.
"""

from __future__ import annotations

import json
import wave
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.errors import InvalidArgument

#: Samples in a second, and in a hop of 10 ms.
RATE: Final = 16_000
HOP: Final = 160
HOP_SECONDS: Final = HOP / RATE


class Phrase(NamedTuple):
    """What is spoken, and when (seconds from the beginning)."""

    text: str
    start: float
    end: float


class Clip(NamedTuple):
    """A sound.

    Attributes:
        samples: int16 at 16 kHz, one channel.
        phrases: what is spoken, if that is known.
    """

    samples: npt.NDArray[np.int16]
    phrases: tuple[Phrase, ...] = ()

    def hops(self) -> Iterator[bytes]:
        """The sound in hops of 10 ms, as a microphone hands it out; a rest that is shorter is left out."""
        for start in range(0, len(self.samples) - HOP + 1, HOP):
            yield self.samples[start : start + HOP].tobytes()


def shipped_clip() -> Clip:
    """The clip that comes with the package: five phrases, one of them "Okay Nabu"."""
    folder = files(__package__) / "data"
    phrases = json.loads((folder / "speech.json").read_text(encoding="utf-8"))
    with as_file(folder / "speech.wav") as path:
        return Clip(read_clip(path).samples, tuple(Phrase(**phrase) for phrase in phrases))


def read_clip(path: Path) -> Clip:
    """A sound of the user's own: a .wav file at 16 kHz, 16 bits, one channel.

    Raises:
        InvalidArgument: it is something else.
        OSError: it cannot be read.
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
