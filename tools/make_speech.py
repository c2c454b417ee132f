"""Speaks the clip of `nnburst demo wakeword` and writes what src/nnburst/demo ships of it.

    pip install numpy scipy espeakng-loader==0.2.4 && python tools/make_speech.py

espeak-ng synthesises each phrase with one of its own voices; no person was recorded. The same version writes
the same bytes. The phrases have the place of the wake word, and what a network might take for it: another
assistant's name, and a sentence that begins like it.
"""

from __future__ import annotations

import ctypes
import json
import wave
from pathlib import Path
from typing import Any, Final

import espeakng_loader
import numpy as np
import numpy.typing as npt
from scipy.signal import resample_poly

DATA: Final = Path(__file__).resolve().parent.parent / "src/nnburst/demo/data"
PHRASES: Final = (
    "It is quiet in here.",
    "Okay Nabu",
    "turn on the light.",
    "Hey Jarvis.",
    "Okay, not you.",
)
VOICE: Final = b"en-us+robosoft7"
WORDS_PER_MINUTE: Final = 165
RATE: Final = 16_000
LOUDEST: Final = 12_000
SILENCE_BEFORE: Final = 0.4  # seconds
PAUSE: Final = 0.25

#: From espeak-ng's speak_lib.h.
_RETRIEVAL, _RATE_PARAMETER, _CHARACTERS, _UTF8 = 1, 1, 1, 1
_SYNTH_RATE: Final = 22_050

Samples = npt.NDArray[np.float64]


def speak() -> list[Samples]:
    """Each phrase at 16 kHz, without the silence around it."""
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    rate = library.espeak_Initialize(_RETRIEVAL, 0, espeakng_loader.get_data_path().encode(), 0)
    if rate != _SYNTH_RATE or library.espeak_SetVoiceByName(VOICE) != 0:
        raise SystemExit(f"espeak-ng speaks at {rate} Hz, or has no voice {VOICE.decode()}")
    library.espeak_SetParameter(_RATE_PARAMETER, WORDS_PER_MINUTE, 0)
    spoken: list[Samples] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def collect(samples: Any, count: int, _events: object) -> int:  # noqa: ANN401 - ctypes
        if samples and count:
            spoken.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float64))
        return 0

    library.espeak_SetSynthCallback(collect)
    phrases = []
    for phrase in PHRASES:
        spoken.clear()
        text = phrase.encode() + b"\0"
        library.espeak_Synth(text, len(text), 0, _CHARACTERS, 0, _UTF8, None, None)
        library.espeak_Synchronize()
        phrases.append(trimmed(resample_poly(np.concatenate(spoken), 320, 441)))
    return phrases


def trimmed(samples: Samples) -> Samples:
    """Samples from the first to the last that can be heard."""
    (heard,) = np.nonzero(np.abs(samples) > np.abs(samples).max() / 100)
    return samples[heard[0] : heard[-1] + 1]


def main() -> None:
    """Join the phrases and write them, and where each lies."""
    phrases = speak()
    loudest = max(float(np.abs(phrase).max()) for phrase in phrases)
    parts, spans = [np.zeros(int(SILENCE_BEFORE * RATE))], []
    at = len(parts[0])
    for text, samples in zip(PHRASES, phrases, strict=True):
        end = at + len(samples)
        spans.append({"text": text, "start": round(at / RATE, 2), "end": round(end / RATE, 2)})
        parts += [samples / loudest * LOUDEST, np.zeros(int(PAUSE * RATE))]
        at += len(samples) + len(parts[-1])
    clip = np.concatenate(parts).round().astype("<i2")
    with wave.open(str(DATA / "speech.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(clip.tobytes())
    (DATA / "speech.json").write_text(json.dumps(spans, indent=2) + "\n")
    for span in spans:
        print(f"{span['start']:5.2f} to {span['end']:5.2f} s: {span['text']}")
    print(f"{len(clip) / RATE:.2f} s, {(DATA / 'speech.wav').stat().st_size} bytes")


if __name__ == "__main__":
    main()
