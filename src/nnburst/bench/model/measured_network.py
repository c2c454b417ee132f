"""A network with what belongs to it: where it comes from, its truth, its golden sequences.

A list file is a JSON array of objects, one for each network; its keys are the fields of `Entry`, and paths
are relative to it. Inputs and outputs lie in .npy files whose first axis is the example or the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.bench.model.accuracy import Compute
from nnburst.bench.model.data_sets import DataSet, Example
from nnburst.bench.model.evaluators import (
    Findings,
    Outputs,
    differences,
    mel_cep_log_f0,
    phone_error_rate,
    segments,
    top_k,
)
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.testing.models.network_file import NetworkFile
from nnburst.testing.models.pictures import Range, real_values, stored

Array = npt.NDArray[Any]
Evaluator = Literal["sequences", "phone_error_rate", "mel_cep_log_f0"]


class Truth(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Inputs whose answers are known.

    Attributes:
        inputs: .npy files, one for each input of the network.
        labels: a text file with the class of each example, as a number or by its name.
        classes: a text file with the name of each class.
        values: .npy files of expected real values, one for each output, instead of labels.
        expected_top1: fails 5 points below it.
        largest: fails if a value is further off.
    """

    inputs: tuple[str, ...]
    labels: str = ""
    classes: str = ""
    values: tuple[str, ...] = ()
    expected_top1: float | None = None
    largest: float | None = None


class Recorded(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An utterance: .npy files of inputs and of golden outputs, and which frames are spoken."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    spoken: str = ""


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A network of a list file.

    Attributes:
        file: .tflite or .onnx.
        name: of it; by default of the file.
        group: of networks that belong together.
        shapes: dimensions of inputs that an .onnx file leaves open.
        constants: values of its inputs that never change.
        states: inputs of it that take what an output gave.
        pixel_range: real values of black and white.
        truth: inputs whose answers are known.
        sequences: golden ones; states are reset before each of them.
        evaluator: of the sequences.
        mean: stored mean of outputs that are normalised.
        deviation: and their deviation.
        largest: of `sequences`: fails if a value is further off.
        relaxed: compute float32 as float16 if the device likes.
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


_decode: Final = msgspec.json.Decoder(list[Entry]).decode


@dataclass(frozen=True)
class Utterance:
    """Frames that are executed one after the other from the initial states.

    Attributes:
        inputs: of the network, without states: frames first.
        outputs: golden ones, likewise.
        spoken: whether something is, for each frame; None if that is of no matter.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    spoken: Array | None = None


@dataclass(frozen=True)
class MeasuredNetwork:
    """What `bench model` does with one network.

    Attributes:
        network: which.
        group: of networks that belong together.
        pixels: real values of black and white.
        entry: what is expected of it; None if nothing is.
        folder: that the entry's paths are relative to.
        utterances: golden sequences.
        reference: makes the authors' engine in this process, if it is not the file's own.
        fitting: makes any example one that the network can be given.
    """

    network: NetworkFile
    group: str = ""
    pixels: Range | None = None
    entry: Entry | None = None
    folder: Path = field(default_factory=Path)
    utterances: tuple[Utterance, ...] = ()
    reference: Callable[[], Compute] | None = None
    fitting: Callable[[Example], Example] | None = None

    def fitted(self, found: DataSet) -> DataSet:
        """A data set of examples that the network can be given."""
        if self.fitting is None:
            return found
        return replace(found, examples=tuple(self.fitting(one) for one in found.examples))

    def evaluate(self, frame: Compute, reset: Callable[[], None]) -> list[Findings]:
        """Compare with the truth and with golden sequences.

        Args:
            frame: computes once and keeps the states.
            reset: goes back to the initial ones.

        Raises:
            InvalidArgument: a file does not fit the network.
            OSError: it cannot be read.
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
        names = _lines(self.folder / truth.classes) if truth.classes else []
        labels = _lines(self.folder / truth.labels)
        numbers = [names.index(label) if label in names else _number(label) for label in labels]
        return top_k(outputs[0].reshape(len(rows), -1), np.array(numbers), truth.expected_top1)

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
    """The networks of a list file.

    Raises:
        InvalidArgument: it is not such a list, or a network of it cannot be used.
        OSError: a file cannot be read.
    """
    try:
        entries = _decode(path.read_bytes())
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"--list {path}: {error}") from None
    return [_workload(entry, path.parent) for entry in entries]


def _workload(entry: Entry, folder: Path) -> MeasuredNetwork:
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
    """The array of a .npy file.

    Raises:
        InvalidArgument: it is something else.
        OSError: it cannot be read.
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
    """Each array as frames of an input; real numbers for a quantised one are quantised."""
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
