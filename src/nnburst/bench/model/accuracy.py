"""Compares a driver's outputs with those of the reference engine, as a whole and layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from nnburst.bench.model.data_sets import DataSet, Example
from nnburst.bench.network.networks import absolute_differences, onnx_input_types, onnx_session
from nnburst.client.burst.interface import Burst
from nnburst.client.device import Device
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import DeviceUnavailable
from nnburst.hal.model import QUANTIZED_RANGES, Model, Operand
from nnburst.testing.models.litert import interpreter
from nnburst.testing.models.network_file import NetworkFile, real_values

Array = npt.NDArray[Any]
Compute = Callable[[Example], list[Array]]

#: The reference engines by name: LiteRT's Interpreter with its default kernels, and with its reference
#: kernels.
ENGINES: Final = {"litert": True, "litert-ref": False}

#: Differences in steps up to which each is listed by itself.
_NEAR: Final = 3


@dataclass
class Agreement:
    """The agreement of two engines on one data set.

    Attributes:
        data_set: name of the data set.
        source: source of the data set.
        examples: number of examples.
        same_top: number of examples with the same most likely class in every output.
        classes: whether an output is a vector, so that it has a most likely class.
        largest: largest difference of two real values.
        mean: mean difference of two real values.
        device: device that computed the outputs; "" for the measured driver.
        steps: number of quantised values by their difference in steps; empty without quantised outputs.
        elements: number of compared values.
    """

    data_set: str
    source: str
    examples: int = 0
    same_top: int = 0
    classes: bool = False
    largest: float = 0.0
    mean: float = 0.0
    device: str = ""
    steps: Counter[int] = field(default_factory=Counter)
    elements: int = 0

    def add(
        self, ours: Sequence[Array], theirs: Sequence[Array], operands: Sequence[Operand]
    ) -> None:
        """Compare the outputs of one example."""
        same = True
        for mine, other, operand in zip(ours, theirs, operands, strict=True):
            expected = other.reshape(mine.shape)
            difference = absolute_differences(
                real_values(mine, operand), real_values(expected, operand)
            )
            total = self.mean * self.elements + float(difference.sum())
            self.elements += mine.size
            self.mean = total / max(self.elements, 1)
            self.largest = max(self.largest, float(difference.max(initial=0.0)))
            if OperandType(operand.type) in QUANTIZED_RANGES:
                apart = np.abs(mine.astype(np.int64) - expected.astype(np.int64))
                values, counts = np.unique(apart, return_counts=True)
                self.steps.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
            if mine.size > 1 and max(mine.shape) == mine.size:
                self.classes = True
                same &= int(mine.argmax()) == int(expected.argmax())
        self.examples += 1
        self.same_top += same

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {
            "data_set": self.data_set,
            "source": self.source,
            "device": self.device,
            "examples": self.examples,
            "top1_agreement": self.same_top / max(self.examples, 1) if self.classes else None,
            "max_abs_difference": self.largest if np.isfinite(self.largest) else None,
            "mean_abs_difference": self.mean if np.isfinite(self.mean) else None,
            "elements": self.elements,
            "steps": {str(step): self.steps[step] for step in sorted(self.steps)},
        }


def steps_in_words(steps: Mapping[str, int]) -> str:
    """Format the counts of quantised values by their difference in steps; large differences are added up.

    Args:
        steps: the counts, as in `Agreement.as_json`.
    """
    near = [f"{step}: {count}" for step, count in steps.items() if int(step) <= _NEAR]
    far = {int(step): count for step, count in steps.items() if int(step) > _NEAR}
    if far:
        near.append(f"{_NEAR + 1} to {max(far)}: {sum(far.values())}")
    return ", ".join(near)


def compare(
    ours: Compute,
    reference: Compute,
    sets: Sequence[DataSet],
    operands: Sequence[Operand],
    progress: Callable[[int], None] = lambda _: None,
    device: str = "",
) -> list[Agreement]:
    """Compare two engines on every example of some data sets."""
    found = []
    for data_set in sets:
        agreement = Agreement(data_set.name, data_set.source, device=device)
        for example in data_set.examples:
            agreement.add(ours(example), reference(example), operands)
            progress(1)
        found.append(agreement)
    return found


def by_interpreter(network: NetworkFile, engine: str) -> Compute:
    """Run the file itself by LiteRT's Interpreter in this process; states are reset for each example.

    Args:
        network: the network.
        engine: a name of `ENGINES`.
    """
    made = interpreter(network.content, fast=ENGINES[engine])
    inputs = [(d["index"], tuple(d["shape"])) for d in made.get_input_details()]
    outputs = [d["index"] for d in made.get_output_details()]

    def compute(example: Example) -> list[Array]:
        if network.imported.states:
            made.reset_all_variables()
        for (index, shape), values in zip(inputs, example, strict=True):
            wanted = made.get_tensor(index).dtype
            made.set_tensor(index, values.reshape(shape).astype(wanted))
        made.invoke()
        return [np.asarray(made.get_tensor(index)) for index in outputs]

    return compute


def by_onnxruntime(network: NetworkFile) -> Compute:
    """Run the .onnx file itself by onnxruntime in this process; states are reset for each example.

    Raises:
        DeviceUnavailable: onnxruntime is not installed.
    """
    if find_spec("onnxruntime") is None:
        raise DeviceUnavailable(
            f"{network.name}: the reference of an .onnx file is onnxruntime: pip install"
            " 'nnburst[onnxruntime]'"
        )
    session = onnx_session(network.content)
    initial = {
        network.imported.input_names[state.input_index]: state.initial
        for state in network.imported.states
    }
    fixed: dict[str, npt.ArrayLike] = {**initial, **network.constants}
    shapes = dict(zip(network.input_names, (o.dimensions for o in network.inputs), strict=True))
    names = [info.name for info in session.get_outputs()]
    wanted = [name for name in network.output_names if name in names]
    types = onnx_input_types(session)
    constant = {name: np.asarray(value, types[name]) for name, value in fixed.items()}

    def compute(example: Example) -> list[Array]:
        feed = dict(constant)
        for name, values in zip(network.input_names, example, strict=True):
            feed[name] = values.reshape(shapes[name]).astype(types[name], copy=False)
        return [np.asarray(values) for values in session.run(wanted, feed)]

    return compute


def reference_of(network: NetworkFile, engine: str) -> Compute:
    """A function that runs the file's own engine in this process.

    Args:
        network: the network.
        engine: a name of `ENGINES`, for .tflite files.

    Raises:
        DeviceUnavailable: the engine is not installed.
    """
    return by_interpreter(network, engine) if network.is_tflite else by_onnxruntime(network)


class Stepwise:
    """Executes the imported model over a burst.

    Attributes:
        reset: restores the initial states.
    """

    def __init__(self, burst: Burst) -> None:
        """Bind to `burst`, which was opened with the network's states and stays the caller's."""
        self._stateful = burst.bind()
        self.reset = self._stateful.reset

    def frame(self, example: Example) -> list[Array]:
        """The outputs of one execution; states keep their values."""
        for place, values in zip(self._stateful.inputs, example, strict=True):
            place[...] = values
        return [values.copy() for values in self._stateful.run(timeout=60.0).outputs]

    def compute(self, example: Example) -> list[Array]:
        """The outputs of one execution from the initial states."""
        self.reset()
        return self.frame(example)


@contextmanager
def by_driver(network: NetworkFile, device: Device) -> Iterator[Stepwise]:
    """A function that executes the imported model over a burst."""
    with (
        device.prepare(network.imported) as prepared,
        prepared.open_burst(states=network.imported.states) as burst,
    ):
        yield Stepwise(burst)


# -- Two devices, operation by operation: the first whose outputs differ ---------------------------
# Each operation's output becomes an output of the model, so both devices return intermediate results. Then a
# # device cannot fuse operations: if nothing differs here but the network's own outputs do, fusion is the
# # likely cause.


#: Largest accepted differences: of real numbers as a fraction of the output's range, of integers in steps.
_SHARE: Final = 1e-3
_STEPS: Final = 1
#: Operations whose first output is scratch memory with arbitrary content.
_SCRATCH: Final = frozenset({OperationType.LSTM})


@dataclass(frozen=True, slots=True)
class LayerAccuracy:
    """The comparison of an operation's output on two devices.

    Attributes:
        name: number and kind of the operation, and the operator that it comes from.
        output: number of the output.
        largest: largest difference, in steps or as a fraction of the output's range.
        differs: whether that is more than the accepted difference.
    """

    name: str
    output: int
    largest: float
    differs: bool


def inside(model: Model) -> tuple[Model, list[tuple[int, int, int]]]:
    """Make a model whose temporaries are outputs, after its own outputs.

    Returns:
        The model; and for each output of known shape, in the order of operations, the operation's index, the
        number of the output, and its position among the model's outputs.
    """
    main = model.main
    outputs = list(main.output_indexes)
    operands = list(main.operands)
    places = []
    for number, operation in enumerate(main.operations):
        for at, index in enumerate(operation.outputs):
            if at == 0 and operation.type in _SCRATCH:
                continue
            operand = operands[index]
            if not operand.dimensions or 0 in operand.dimensions:
                continue
            if index not in outputs:
                lifetime = OperandLifeTime.SUBGRAPH_OUTPUT
                operands[index] = structs.replace(operand, lifetime=lifetime)
                outputs.append(index)
            places.append((number, at, outputs.index(index)))
    opened = structs.replace(main, operands=tuple(operands), output_indexes=tuple(outputs))
    return structs.replace(model, main=opened), places


def compare_layers(
    network: NetworkFile, one: Device, other: Device, example: Example
) -> list[LayerAccuracy]:
    """Compare every operation of a network on two devices, in order.

    Raises:
        NnburstError: a device refuses the model with temporaries as outputs.
    """
    model, places = inside(network.imported.model)
    imported = replace(network.imported, model=model)
    found = []
    for device in (one, other):
        with device.prepare(imported) as prepared:
            found.append(prepared.execute(network.with_states(example), timeout=60.0).outputs)
    main = model.main
    layers = []
    for number, at, place in places:
        operand = main.operands[main.output_indexes[place]]
        largest = _distance(found[0][place], found[1][place], operand)
        most = _STEPS if OperandType(operand.type) in QUANTIZED_RANGES else _SHARE
        name = f"{number} {_kind(main.operations[number].type)}"
        origin = network.imported.operators[number : number + 1]
        label = f"{name} ({origin[0]})" if origin and origin[0] != name else name
        layers.append(LayerAccuracy(label, at, largest, not largest <= most))
    return layers


def first_difference(layers: Sequence[LayerAccuracy]) -> LayerAccuracy | None:
    """The first operation that differs; None if all agree."""
    return next((layer for layer in layers if layer.differs), None)


def _kind(code: int) -> str:
    try:
        return OperationType(code).name
    except ValueError:
        return f"operation {code}"


def _distance(one: Array, other: Array, operand: Operand) -> float:
    second = other.astype(np.float64)
    largest = float(absolute_differences(one, other).max(initial=0.0))
    if OperandType(operand.type) in QUANTIZED_RANGES or largest == 0.0:
        return largest
    finite = second[np.isfinite(second)]
    reach = max(float(np.ptp(finite)), float(np.abs(finite).max()), 1e-9) if finite.size else 1.0
    return largest / reach
