"""The networks of `nnburst demo voice` and `nnburst demo noise`, with golden sequences, as workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.bench.model.accuracy import Compute
from nnburst.bench.model.data_sets import Example
from nnburst.bench.model.measured_network import Entry, MeasuredNetwork, Utterance
from nnburst.bench.network.networks import onnx_session
from nnburst.demo.noise import (
    NOISE_STATES,
    NoiseWindows,
    find_noise_networks,
    noise_hops,
    with_noise,
)
from nnburst.demo.speech import shipped_clip
from nnburst.demo.voice import (
    Frames,
    build_voice_network,
    find_voice_network,
    spoken_frames,
    voice_golden,
    voice_hops,
)
from nnburst.testing.models.network_file import NetworkFile

Array = npt.NDArray[Any]

#: What engines may differ by: they add in another order.
_TOLERANCE: Final = 1e-4
#: Samples at the end of the voice network's input that its file makes itself.
_MIRRORED: Final = 64


def _voice() -> list[MeasuredNetwork]:
    """silero-vad on the shipped clip, with golden probabilities, and what is spoken."""
    path = find_voice_network()
    content = path.read_bytes()
    imported = build_voice_network(content)
    network = NetworkFile.of("voice", content, imported, build_voice_network)
    clip, frames = shipped_clip(), Frames()
    inputs = np.stack([frames.frame(hop) for hop in voice_hops(clip.samples)])
    golden = np.array(voice_golden().probabilities)
    utterance = Utterance((inputs,), (golden,), spoken_frames(clip.phrases, len(golden)))
    entry = Entry(str(path), group="sound", largest=_TOLERANCE)
    reference = partial(_voice_reference, content)
    return [
        MeasuredNetwork(
            network,
            "sound",
            entry=entry,
            utterances=(utterance,),
            reference=reference,
            fitting=_with_mirror,
        )
    ]


def _with_mirror(example: Example) -> Example:
    """A frame whose end is what its file makes of the rest."""
    frame = example[0].copy()
    frame[..., -_MIRRORED:, :] = frame[..., -_MIRRORED - 2 : -2 * _MIRRORED - 2 : -1, :]
    return (frame,)


def _voice_reference(content: bytes) -> Compute:
    """The authors' file, from the initial states each time."""
    session = onnx_session(content)
    nothing = np.zeros((1, 1, 128), np.float32)

    def compute(example: Example) -> list[Array]:
        frame = example[0].reshape(1, -1)[:, :-_MIRRORED]
        (probability, *_) = session.run(None, {"input": frame, "h": nothing, "c": nothing})
        return [np.asarray(probability)]

    return compute


def _noise() -> list[MeasuredNetwork]:
    """Both networks of DTLN on the shipped clip with a hiss; golden outputs are the files' own."""
    hops = list(noise_hops(with_noise(shipped_clip().samples)))
    windows = NoiseWindows()
    magnitudes, masks, masked, samples = [], [], [], []
    paths = find_noise_networks()
    mask, sound = (
        _Stateful(path.read_bytes(), states)
        for path, (_, states) in zip(paths, NOISE_STATES, strict=True)
    )
    for hop in hops:
        magnitudes.append(windows.magnitudes(hop))
        masks.append(mask.frame(magnitudes[-1]))
        masked.append(windows.masked(masks[-1]))
        samples.append(sound.frame(masked[-1]))
    rows = ((magnitudes, masks), (masked, samples))
    return [
        _of_noise(name, path, dict(states), given, golden)
        for name, path, (_, states), (given, golden) in zip(
            ("noise_mask", "noise_samples"), paths, NOISE_STATES, rows, strict=True
        )
    ]


def _of_noise(
    name: str, path: Path, states: dict[str, str], given: Sequence[Array], golden: Sequence[Array]
) -> MeasuredNetwork:
    read = NetworkFile.read(path, states=states)
    network = NetworkFile.of(name, read.content, read.imported, read.reading)
    utterance = Utterance((np.stack(given),), (np.stack(golden),))
    entry = Entry(str(path), group="sound", states=states, largest=_TOLERANCE)
    return MeasuredNetwork(network, "sound", entry=entry, utterances=(utterance,))


class _Stateful:
    """A file of one input, one output and one state, by onnxruntime."""

    def __init__(self, content: bytes, states: dict[str, str]) -> None:
        self._session = onnx_session(content)
        ((self._state, _),) = states.items()
        ((self._input),) = [i.name for i in self._session.get_inputs() if i.name not in states]
        self._left = np.zeros((1, 2, 128, 2), np.float32)

    def frame(self, values: Array) -> Array:
        """The output, which comes before the state in these files."""
        given = {self._input: values, self._state: self._left}
        output, self._left = self._session.run(None, given)
        return np.asarray(output)


#: Workloads that need no list file, by name.
SOUNDS: Final[dict[str, Callable[[], list[MeasuredNetwork]]]] = {"voice": _voice, "noise": _noise}
