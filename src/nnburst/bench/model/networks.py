"""Describes the networks to measure, and evaluates their outputs.

A list file is a JSON array with an object for each network; the keys are the fields of `ListedNetwork`, and
paths are relative to the file. Inputs and outputs lie in .npy files whose first axis is the example or the
frame. An evaluator compares outputs with the truth or with golden sequences, as the original suite does, and
returns figures by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.bench.model.accuracy import Compute
from nnburst.bench.model.data_sets import DataSet, Example
from nnburst.bench.network.networks import onnx_session
from nnburst.demo.sound import (
    NOISE_STATES,
    Frames,
    NoiseWindows,
    build_voice_network,
    find_noise_networks,
    find_voice_network,
    noise_hops,
    spoken_frames,
    voice_golden,
    voice_hops,
    with_noise,
)
from nnburst.demo.speech import shipped_clip
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.testing.models.network_file import NetworkFile, Range, real_values, stored

# -- evaluators ------------------------------------------------------------------------------------
Array = npt.NDArray[Any]

#: Number of classes for `top_k`, and the accepted shortfall of the first class from the expected share.
_TOPS: Final = 5
_TOP1_SLACK: Final = 0.05
#: Largest accepted errors: of an utterance's phones per frame, and of synthesised speech.
_PHONE_ERRORS: Final = 0.05
_MEL_CEPSTRUM: Final = 4.0
_LOG_PITCH: Final = 0.01
#: Numbers of values in a frame of synthesised speech: amplitudes, aperiodicities, log F0, voicing.
_AMPLITUDES: Final = 40
_APERIODICITIES: Final = 7
_SPEECH_FRAME: Final = _AMPLITUDES + _APERIODICITIES + 2
#: Number of frames around the borders of speech that do not count, and the accepted share of wrong decisions.
_BORDER: Final = 2
_WRONG_DECISIONS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of an evaluator.

    Attributes:
        evaluator: name of the evaluator.
        figures: figures by name.
        failures: deviations in words; empty if all is as expected.
    """

    evaluator: str
    figures: Mapping[str, float]
    failures: Sequence[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        finite = {k: v if np.isfinite(v) else None for k, v in self.figures.items()}
        return {"evaluator": self.evaluator, "figures": finite, "failures": list(self.failures)}


class Outputs(NamedTuple):
    """An output of one utterance as real values, frames first.

    Attributes:
        found: output of the network.
        golden: expected output.
    """

    found: Array
    golden: Array


def top_k(scores: Array, labels: Array, expected_top1: float | None = None) -> Findings:
    """Compute the shares of examples whose class is among the 1 to 5 most likely ones.

    Args:
        scores: scores, shape (examples, classes).
        labels: the right class of each example.
        expected_top1: expected share of the first class; 5 points less is a failure.
    """
    count, classes = scores.shape
    if labels.shape != (count,) or labels.min(initial=0) < 0 or labels.max(initial=0) >= classes:
        raise InvalidArgument(
            f"labels: {labels.shape} from {labels.min(initial=0)} to {labels.max(initial=0)}, expected"
            f" {count} classes below {classes}"
        )
    order = np.argsort(-scores, axis=1, kind="stable")[:, :_TOPS]
    right = order == labels[:, None]
    figures = {
        f"top{k}": float(right[:, :k].any(axis=1).mean()) for k in range(1, order.shape[1] + 1)
    }
    failures = []
    if expected_top1 is not None and figures["top1"] < expected_top1 - _TOP1_SLACK:
        failures.append(
            f"top1 is {figures['top1']:.4g}, expected at least {expected_top1:g} - {_TOP1_SLACK:g}"
        )
    return Findings("top_k", figures, failures)


def differences(
    name: str,
    pairs: Sequence[Outputs],
    mean: float = 0.0,
    deviation: float = 1.0,
    largest: float | None = None,
) -> Findings:
    """Compute the mean squared and the largest absolute difference from the golden outputs.

    DEVIATES: the original takes the largest signed difference, which ignores negative ones.

    Args:
        name: name of the evaluator.
        pairs: the outputs.
        mean: stored mean of normalised outputs.
        deviation: stored deviation; `output * deviation + mean` is the real value.
        largest: a larger difference is a failure.
    """
    errors = [
        np.abs(_real(pair.found, mean, deviation) - _real(pair.golden, mean, deviation)).reshape(-1)
        for pair in pairs
    ]
    every = np.concatenate([*errors, np.zeros(0)])
    every = np.where(np.isnan(every), np.inf, every)
    figures = {
        "mean_squared": float(np.mean(every**2)) if every.size else 0.0,
        "largest": float(every.max(initial=0.0)),
    }
    failures = []
    if largest is not None and not figures["largest"] <= largest:
        failures.append(f"largest is {figures['largest']:.3g}, expected at most {largest:g}")
    return Findings(name, figures, failures)


def phone_error_rate(pairs: Sequence[Outputs]) -> Findings:
    """Count the edits between the most likely phones of each utterance and the golden ones, per frame."""
    rates = [
        _edits(pair.found.argmax(-1).reshape(-1), pair.golden.argmax(-1).reshape(-1))
        / max(len(pair.golden), 1)
        for pair in pairs
    ]
    worst = max(rates, default=0.0)
    failures = []
    if worst > _PHONE_ERRORS:
        failures.append(f"worst_rate is {worst:.3g}, expected at most {_PHONE_ERRORS:g}")
    return Findings("phone_error_rate", {"worst_rate": worst}, failures)


def characters(
    scores: Array, texts: Sequence[str], alphabet: str, most_wrong: float | None = None
) -> Findings:
    """Count the edits between recognised lines of text and the right ones, per character of these.

    Each frame gives its most likely class; repetitions count once, and class 0 is not a character.

    Args:
        scores: scores, shape (lines, frames, classes).
        texts: the right lines.
        alphabet: the characters of the classes from 1 on; further classes are spaces.
        most_wrong: a higher rate is a failure.
    """
    if scores.ndim != 3 or len(scores) != len(texts):
        raise InvalidArgument(f"texts: {len(texts)}, expected one for each line of {scores.shape}")
    wrong = exact = 0
    for line, text in zip(scores.argmax(-1), texts, strict=True):
        kept = line[(line != 0) & (line != np.concatenate([[-1], line[:-1]]))]
        read = "".join(alphabet[n - 1] if n <= len(alphabet) else " " for n in kept)
        wrong += _edits(*(np.array([ord(c) for c in one], np.int64) for one in (read, text)))
        exact += read == text
    rate = wrong / max(sum(map(len, texts)), 1)
    failures = []
    if most_wrong is not None and not rate <= most_wrong:
        failures.append(f"wrong is {rate:.3g}, expected at most {most_wrong:g}")
    return Findings("characters", {"wrong": rate, "lines": exact / max(len(texts), 1)}, failures)


def mel_cep_log_f0(pairs: Sequence[Outputs], mean: float = 0.0, deviation: float = 1.0) -> Findings:
    """Compute the errors of spectrum and melody of synthesised speech, for the worst utterance."""
    spectrum, pitch = [0.0], [0.0]
    for pair in pairs:
        found, golden = (_real(one, mean, deviation).reshape(-1, _SPEECH_FRAME) for one in pair)
        spectrum.append(_root_mean_square((found - golden)[:, 1:_AMPLITUDES]))
        voiced = (found[:, -1] > 0) & (golden[:, -1] > 0)
        pitch.append(_root_mean_square((found - golden)[voiced, _AMPLITUDES + _APERIODICITIES]))
    figures = {"mel_cepstrum": max(spectrum), "log_f0": max(pitch)}
    failures = [
        f"{name} is {figures[name]:.3g}, expected at most {most:g}"
        for name, most in (("mel_cepstrum", _MEL_CEPSTRUM), ("log_f0", _LOG_PITCH))
        if not figures[name] <= most
    ]
    return Findings("mel_cep_log_f0", figures, failures)


def segments(probabilities: Array, spoken: Array) -> Findings:
    """Count a speech detector's wrong decisions, away from the borders of spoken segments.

    Args:
        probabilities: probability of each frame.
        spoken: whether each frame is speech.
    """
    if probabilities.reshape(-1).shape != spoken.shape:
        raise InvalidArgument(
            f"segments: {probabilities.size} probabilities, expected one for each of"
            f" {spoken.size} frames"
        )
    wrong = (probabilities.reshape(-1) > 0.5) != spoken
    for border in np.flatnonzero(spoken[1:] != spoken[:-1]) + 1:
        wrong[max(0, border - _BORDER) : border + _BORDER] = False
    share = float(wrong.mean()) if wrong.size else 0.0
    failures = []
    if share > _WRONG_DECISIONS:
        failures.append(f"wrong_decisions is {share:.3g}, expected at most {_WRONG_DECISIONS:g}")
    return Findings("segments", {"wrong_decisions": share}, failures)


def _real(values: Array, mean: float, deviation: float) -> Array:
    real: Array = values.astype(np.float64) * deviation + mean
    return real


def _root_mean_square(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors**2))) if errors.size else 0.0


def _edits(one: Array, other: Array) -> int:
    """The least number of insertions, deletions and replacements between two sequences (Levenshtein)."""
    last = np.arange(len(other) + 1)
    for number, item in enumerate(one, 1):
        now = np.minimum(last[1:] + 1, last[:-1] + (other != item))
        row = np.concatenate([[number], now])
        # An insertion costs one more than the entry to the left.
        steps = np.arange(len(row))
        last = np.minimum.accumulate(row - steps) + steps
    return int(last[-1])


# -- networks --------------------------------------------------------------------------------------

Evaluator = Literal["sequences", "phone_error_rate", "mel_cep_log_f0"]


class Truth(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Inputs with known answers.

    Attributes:
        inputs: .npy files, one for each input of the network.
        labels: a text file with the class of each example, by number or name.
        classes: a text file with the name of each class.
        output: name of the output with the scores; by default the first.
        by_frame: whether scores are those of many frames, classes last, whose means count.
        texts: a text file with the line of text that each example shows, instead of labels.
        alphabet: a text file of one line with the characters of the classes from 1 on.
        values: .npy files of expected real values, one for each output, instead of labels.
        expected_top1: expected share of the first class; 5 points less is a failure.
        largest: a larger difference, or a larger share of wrong characters, is a failure.
    """

    inputs: tuple[str, ...]
    labels: str = ""
    classes: str = ""
    output: str = ""
    by_frame: bool = False
    texts: str = ""
    alphabet: str = ""
    values: tuple[str, ...] = ()
    expected_top1: float | None = None
    largest: float | None = None


class Recorded(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An utterance: .npy files of inputs, of golden outputs, and of the frames that are speech."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    spoken: str = ""


class ListedNetwork(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A network of a list file.

    Attributes:
        file: a .tflite or .onnx file.
        name: name of the network; by default of the file.
        group: name of a group of networks that belong together.
        shapes: dimensions of inputs that an .onnx file leaves open.
        constants: values of inputs that never change.
        states: inputs that take an output of the execution before.
        pixel_range: real values of black and white.
        truth: inputs with known answers.
        sequences: golden sequences; states are reset before each.
        evaluator: name of the evaluator of the sequences.
        mean: stored mean of normalised outputs.
        deviation: stored deviation of normalised outputs.
        largest: a larger difference in `sequences` is a failure.
        relaxed: whether the device may compute float32 as float16.
        comparable: note on comparable figures, for the report.
    """

    file: str
    name: str = ""
    group: str = ""
    shapes: dict[str, tuple[int, ...]] = {}
    constants: dict[str, float] = {}
    states: dict[str, str] = {}
    pixel_range: tuple[float, float] | None = None
    truth: tuple[Truth, ...] = ()
    sequences: tuple[Recorded, ...] = ()
    evaluator: Evaluator = "sequences"
    mean: float = 0.0
    deviation: float = 1.0
    largest: float | None = None
    relaxed: bool = False
    comparable: str = ""


_decode: Final = msgspec.json.Decoder(list[ListedNetwork]).decode


@dataclass(frozen=True)
class Utterance:
    """Frames that are executed one after another, from the initial states.

    Attributes:
        inputs: inputs of the network without states, frames first.
        outputs: golden outputs, frames first.
        spoken: whether each frame is speech; None if not applicable.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    spoken: Array | None = None


@dataclass(frozen=True)
class MeasuredNetwork:
    """A network for `bench model`, with its references.

    Attributes:
        network: the network.
        group: name of a group of networks that belong together.
        pixels: real values of black and white.
        entry: expectations of a list file; None without any.
        folder: folder that the entry's paths are relative to.
        utterances: golden sequences.
        reference: makes the authors' engine in this process, if it is not the file's own.
        fitting: changes an example so that it is valid for the network.
    """

    network: NetworkFile
    group: str = ""
    pixels: Range | None = None
    entry: ListedNetwork | None = None
    folder: Path = field(default_factory=Path)
    utterances: tuple[Utterance, ...] = ()
    reference: Callable[[], Compute] | None = None
    fitting: Callable[[Example], Example] | None = None

    def fitted(self, found: DataSet) -> DataSet:
        """The data set with examples that are valid for the network."""
        if self.fitting is None:
            return found
        return replace(found, examples=tuple(self.fitting(one) for one in found.examples))

    def evaluate(self, frame: Compute, reset: Callable[[], None]) -> list[Findings]:
        """Compare the outputs with the truth and with golden sequences.

        Args:
            frame: computes once and keeps the states.
            reset: restores the initial states.

        Raises:
            InvalidArgument: a file does not fit the network.
            OSError: a file cannot be read.
        """
        truths = self.entry.truth if self.entry is not None else ()
        found = [self._beside_truth(truth, frame, reset) for truth in truths]
        if self.utterances:
            found += self._beside_golden(frame, reset)
        return found

    def _beside_truth(self, truth: Truth, frame: Compute, reset: Callable[[], None]) -> Findings:
        examples = _frames(
            [self._read(name) for name in truth.inputs], self.network.inputs, truth.inputs
        )
        rows: list[list[Array]] = []
        for example in zip(*examples, strict=True):
            reset()
            rows.append(self._real(frame(example)))
        outputs = [np.stack([row[at] for row in rows]) for at in range(len(self.network.outputs))]
        if truth.values:
            expected = [self._read(name) for name in truth.values]
            pairs = [
                Outputs(mine, right.reshape(mine.shape))
                for mine, right in zip(outputs, expected, strict=True)
            ]
            return differences("values", pairs, largest=truth.largest)
        names = self.network.output_names
        if truth.output and truth.output not in names:
            raise InvalidArgument(f"output: {truth.output!r}, the network has {list(names)}")
        scores = outputs[names.index(truth.output) if truth.output else 0]
        if truth.texts:
            (alphabet,) = _lines(self.folder / truth.alphabet)
            frames = scores.reshape(len(rows), -1, scores.shape[-1])
            return characters(frames, _lines(self.folder / truth.texts), alphabet, truth.largest)
        if truth.by_frame:
            scores = scores.reshape(len(rows), -1, scores.shape[-1]).mean(axis=1)
        return top_k(scores.reshape(len(rows), -1), self._labels(truth), truth.expected_top1)

    def _labels(self, truth: Truth) -> Array:
        names = _lines(self.folder / truth.classes) if truth.classes else []
        labels = _lines(self.folder / truth.labels)
        return np.array([names.index(n) if n in names else _number(n) for n in labels])

    def _beside_golden(self, frame: Compute, reset: Callable[[], None]) -> list[Findings]:
        mean, deviation, largest = 0.0, 1.0, None
        evaluator: Evaluator = "sequences"
        if self.entry is not None:
            mean, deviation, largest = self.entry.mean, self.entry.deviation, self.entry.largest
            evaluator = self.entry.evaluator
        pairs: list[Outputs] = []
        found: list[Findings] = []
        for utterance in self.utterances:
            reset()
            rows = [self._real(frame(one)) for one in zip(*utterance.inputs, strict=True)]
            outputs = [np.stack([row[at] for row in rows]) for at in range(len(utterance.outputs))]
            pairs += [
                Outputs(mine, golden.reshape(mine.shape))
                for mine, golden in zip(outputs, utterance.outputs, strict=True)
            ]
            if utterance.spoken is not None:
                found.append(segments(outputs[0], utterance.spoken))
        if evaluator == "phone_error_rate":
            return [phone_error_rate(pairs), *found]
        if evaluator == "mel_cep_log_f0":
            return [mel_cep_log_f0(pairs, mean, deviation), *found]
        return [differences("sequences", pairs, mean, deviation, largest), *found]

    def _real(self, outputs: list[Array]) -> list[Array]:
        return [
            real_values(values, operand)
            for values, operand in zip(outputs, self.network.outputs, strict=True)
        ]

    def _read(self, name: str) -> Array:
        return read_array(self.folder / name)


def read_list(path: Path) -> list[MeasuredNetwork]:
    """Read the networks of a list file.

    Raises:
        InvalidArgument: the file is not such a list, or a network of it cannot be used.
        OSError: a file cannot be read.
    """
    try:
        entries = _decode(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"--list {path}: {error}") from None
    return [_workload(entry, path.parent) for entry in entries]


def _workload(entry: ListedNetwork, folder: Path) -> MeasuredNetwork:
    onnx: Mapping[str, Any] = {
        "shapes": entry.shapes, "constants": entry.constants, "states": entry.states
    }  # fmt: skip
    given = {name: value for name, value in onnx.items() if value}
    network = NetworkFile.read(folder / entry.file, **given)
    if entry.name:
        network = replace(network, name=entry.name)
    if entry.relaxed:
        network = network.relaxed()
    utterances = tuple(
        Utterance(
            tuple(
                _frames([read_array(folder / n) for n in one.inputs], network.inputs, one.inputs)
            ),
            tuple(read_array(folder / n) for n in one.outputs),
            read_array(folder / one.spoken).astype(bool) if one.spoken else None,
        )
        for one in entry.sequences
    )
    return MeasuredNetwork(network, entry.group, entry.pixel_range, entry, folder, utterances)


def read_array(path: Path) -> Array:
    """Read the array of a .npy file.

    Raises:
        InvalidArgument: the file is not a valid .npy file.
        OSError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            found: Array = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidArgument(f"{path} is not a .npy file of numbers: {error}") from None
    return found


def _frames(
    arrays: list[Array], operands: tuple[Operand, ...], names: tuple[str, ...]
) -> list[Array]:
    """Convert each array to frames of an input; real numbers for a quantised input are quantised."""
    if len(arrays) != len(operands):
        raise InvalidArgument(f"inputs: {len(arrays)} files, the network has {len(operands)}")
    found = []
    for array, operand, name in zip(arrays, operands, names, strict=True):
        try:
            shaped = array.reshape(len(array), *operand.dimensions)
        except (ValueError, TypeError):
            raise InvalidArgument(
                f"{name} has the shape {array.shape}, expected frames of {operand.dimensions}"
            ) from None
        found.append(stored(shaped, operand) if array.dtype.kind == "f" else shaped)
    if len({len(array) for array in found}) > 1:
        raise InvalidArgument(f"{', '.join(names)}: not the same number of frames")
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def _number(label: str) -> int:
    try:
        return int(label)
    except ValueError:
        raise InvalidArgument(f"label {label!r}, expected a number or a name of classes") from None


# -- The networks of the sound demos ---------------------------------------------------------------


#: Largest difference allowed between engines, which add in different orders.
_TOLERANCE: Final = 1e-4
#: Number of samples at the end of the voice network's input that its file computes itself.
_MIRRORED: Final = 64


def _voice() -> list[MeasuredNetwork]:
    """The workload of silero-vad on the shipped clip, with golden probabilities and spoken segments."""
    path = find_voice_network()
    content = path.read_bytes()
    imported = build_voice_network(content)
    network = NetworkFile.of("voice", content, imported, build_voice_network)
    clip, frames = shipped_clip(), Frames()
    inputs = np.stack([frames.frame(hop) for hop in voice_hops(clip.samples)])
    golden = np.array(voice_golden().probabilities)
    utterance = Utterance((inputs,), (golden,), spoken_frames(clip.phrases, len(golden)))
    entry = ListedNetwork(str(path), group="sound", largest=_TOLERANCE)
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
    """Mirror the end of a frame, as the network's file does."""
    frame = example[0].copy()
    frame[..., -_MIRRORED:, :] = frame[..., -_MIRRORED - 2 : -2 * _MIRRORED - 2 : -1, :]
    return (frame,)


def _voice_reference(content: bytes) -> Compute:
    """A function that runs the authors' file from the initial states."""
    session = onnx_session(content)
    nothing = np.zeros((1, 1, 128), np.float32)

    def compute(example: Example) -> list[Array]:
        frame = example[0].reshape(1, -1)[:, :-_MIRRORED]
        (probability, *_) = session.run(None, {"input": frame, "h": nothing, "c": nothing})
        return [np.asarray(probability)]

    return compute


def _noise() -> list[MeasuredNetwork]:
    """The workloads of DTLN's two networks on the shipped clip with a hiss; golden outputs are the files'."""
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
    entry = ListedNetwork(str(path), group="sound", states=states, largest=_TOLERANCE)
    return MeasuredNetwork(network, "sound", entry=entry, utterances=(utterance,))


class _Stateful:
    """Runs a file of one input, one output and one state by onnxruntime."""

    def __init__(self, content: bytes, states: dict[str, str]) -> None:
        self._session = onnx_session(content)
        ((self._state, _),) = states.items()
        ((self._input),) = [i.name for i in self._session.get_inputs() if i.name not in states]
        self._left = np.zeros((1, 2, 128, 2), np.float32)

    def frame(self, values: Array) -> Array:
        """Compute one frame; return the output, which comes before the state in these files."""
        given = {self._input: values, self._state: self._left}
        output, self._left = self._session.run(None, given)
        return np.asarray(output)


#: Built-in workloads, which need no list file, by name.
SOUNDS: Final[dict[str, Callable[[], list[MeasuredNetwork]]]] = {"voice": _voice, "noise": _noise}
