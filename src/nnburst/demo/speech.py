"""Cuts a clip of speech into hops, and finds the files of other demos in installed packages.

`tools/make_speech.py` wrote the clip with a speech synthesiser.
"""

from __future__ import annotations

import json
import wave
from collections.abc import Iterator
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.errors import InvalidArgument, NnburstError

#: Samples in a second, and in a hop of 10 ms.
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


def file_of(package: str, *parts: str, install: str) -> Path:
    """A file that an installed package brings along; the package is not imported.

    Args:
        package: name to import it by.
        parts: folders and name below it.
        install: how a user gets it.

    Raises:
        NnburstError: it is missing; the message names the package to install.
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
