"""`nnburst run`: executes a .tflite or .onnx network in a driver on files, and prints or saves its outputs.

Inputs are .npy arrays (stored values as they are; real numbers are quantised), pictures (resized) or
.wav sounds (the first window, -1 to 1), one for each input of the network. Classes get their names
from the file itself if it carries a list of labels, or from `--labels`.
"""

from __future__ import annotations

import argparse
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from nnburst.cli.options import (
    Subparsers,
    above_zero,
    add_network_options,
    at_least_one,
    load_options,
)
from nnburst.cli.output import (
    add_json_option,
    microseconds,
    table,
    text_for_people,
    writable_file,
    write_json,
    writing,
)
from nnburst.cli.run_inputs import add_pixel_range_option, read_inputs
from nnburst.client.arguments import ExecutionResult
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.model import Operand
from nnburst.hal.utils import AUTO
from nnburst.hal.whole_graph import engine_of
from nnburst.testing.models.network_file import NetworkFile, real_values

if TYPE_CHECKING:
    from nnburst.client.device import Device
    from nnburst.importer.imported_model import ImportedModel


Array = npt.NDArray[Any]

#: Bytes of a list of labels inside a .tflite file; larger ones are not taken for labels.
_LABELS_BYTES: Final = 1 << 20

#: Largest distance from 1 of the sum of a thousand probabilities that were rounded to 8 bits.
_ROUNDED: Final = 0.1
#: Number of classes that are printed.
_TOP: Final = 5

#: Errors of reading the archive in a file; most files have none, some have a damaged one.
_NO_LABELS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,  # encrypted, or packed in a way that zipfile does not support
)


def read_labels(path: Path) -> list[str]:
    """Read the names of classes from a text file, one on each line.

    Raises:
        InvalidArgument: the file is not text.
        OSError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"--labels {path}: not UTF-8 text: {error}") from None


def packed_labels(model: Path) -> list[list[str]]:
    """Lists of labels that a .tflite file carries with it (as files of a zip archive at its end)."""
    try:
        with zipfile.ZipFile(model) as archive:
            found = []
            for member in archive.infolist():
                if member.filename.endswith(".txt") and member.file_size <= _LABELS_BYTES:
                    with archive.open(member) as file:
                        text = file.read(_LABELS_BYTES)
                    found.append(text.decode("utf-8", "backslashreplace").splitlines())
            return found
    except _NO_LABELS:
        return []


def check_labels(path: Path, labels: Sequence[str], operands: Sequence[Operand]) -> None:
    """Check that an output has as many elements as there are labels.

    Raises:
        InvalidArgument: no output has as many.
    """
    sizes = [math.prod(operand.dimensions) for operand in operands]
    if len(labels) not in sizes and all(sizes):
        raise InvalidArgument(
            f"--labels {path}: {len(labels)} lines, the outputs have {sizes} elements"
        )


def are_probabilities(real: Array) -> bool:
    """Whether values look like the outputs of a SOFTMAX: none is below 0, and they add up to nearly 1."""
    return bool(real.min() >= 0 and abs(real.sum() - 1) < _ROUNDED)


def summary(
    name: str, values: Array, operand: Operand, labels: Sequence[Sequence[str]], count: int | None
) -> dict[str, Any]:
    """An output as `--json` writes it.

    Args:
        name: the output's name.
        values: the stored values.
        operand: the output's operand.
        labels: lists of class names; the list with as many names as the output has elements is used.
        count: classes to list if the output is a vector; None lists five if it is known to hold scores of
            classes: by its labels, or since its values are probabilities.
    """
    real = real_values(values, operand)
    told: dict[str, Any] = {"name": name, "dtype": str(values.dtype), "shape": list(values.shape)}
    if values.size:
        told |= {"min": _number(real.min()), "max": _number(real.max())}
        told["mean"] = _number(real.mean())
    if values.size > 1 and max(values.shape) == values.size:
        names = next((found for found in labels if len(found) == values.size), None)
        if count is None and names is None and not are_probabilities(real):
            return told
        order = np.argsort(-real.reshape(-1), kind="stable")[: _TOP if count is None else count]
        told["top"] = [
            {
                "index": int(index),
                "label": names[index] if names else "",
                "score": _number(real.reshape(-1)[index]),
            }
            for index in order
        ]
    return told


def _number(value: float) -> float | None:
    """The value as a float; None if JSON cannot express it."""
    return float(value) if math.isfinite(value) else None


def show(summaries: Sequence[dict[str, Any]]) -> None:
    """Print the outputs."""
    columns = ["output", "dtype", "shape", "min", "max", "mean"]
    table(
        "outputs (real values)",
        columns,
        [
            [
                told["name"],
                told["dtype"],
                "x".join(map(str, told["shape"])),
                *(_text(told.get(key)) for key in ("min", "max", "mean")),
            ]
            for told in summaries
        ],
    )
    for told in summaries:
        if "top" in told:
            rows = [[top["index"], top["label"], _text(top["score"])] for top in told["top"]]
            table(f"{told['name']}: most likely", ["class", "label", "score"], rows)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def save(paths: Sequence[Path], outputs: Sequence[Array]) -> None:
    """Write each output to its file, if there are files.

    Raises:
        OSError: a file cannot be written.
    """
    if not paths:
        return
    for path, values in zip(paths, outputs, strict=True):
        with writing(path), path.open("wb") as file:
            np.save(file, values, allow_pickle=False)


def check_output_count(paths: Sequence[Path], names: Sequence[str]) -> None:
    """Check that there is one file for each output, if there are files.

    Raises:
        InvalidArgument: the numbers differ.
    """
    if paths and len(paths) != len(names):
        raise InvalidArgument(
            f"--output: {len(paths)} given, the model has {len(names)}: {', '.join(names)}"
        )


# -- Running ---------------------------------------------------------------------------------------


def prepare_parser(subparsers: Subparsers) -> None:
    """Add `nnburst run`."""
    parser = subparsers.add_parser(
        "run",
        help="execute a .tflite or .onnx network on files",
        description="`nnburst run`: execute a .tflite or .onnx network in a driver on files; print "
        "or save what it gives.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help=".tflite or .onnx file")
    add_network_options(parser)
    parser.add_argument(
        "--input",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help=".npy, picture or .wav, once for each input of the network",
    )
    parser.add_argument(
        "--output",
        type=writable_file,
        action="append",
        default=[],
        metavar="FILE",
        help=".npy file, once for each output of the network (default: a summary only)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--executor",
        help="executor of the driver that is launched (default: auto, the best that is installed; for a"
        " whole graph the engine that runs it)",
    )
    where.add_argument("--connect", metavar="NAME", help="use a driver that is running")
    parser.add_argument(
        "--via", choices=("burst", "execute"), default="burst", help="route (default: burst)"
    )
    parser.add_argument("--labels", type=Path, metavar="FILE", help="names of classes, one a line")
    parser.add_argument(
        "--top",
        type=at_least_one,
        help="number of classes to print (default: 5 if an output has labels or probabilities, else none)",
    )
    add_pixel_range_option(parser)
    parser.add_argument(
        "--repeat", type=at_least_one, default=1, help="number of executions (default: 1)"
    )
    parser.add_argument(
        "--measure", action="store_true", help="also print the driver's own durations"
    )
    parser.add_argument(
        "--timeout", type=above_zero, default=30.0, help="seconds of one execution (default: 30)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Read the inputs, execute the network, and show and save its outputs."""
    network = NetworkFile.read(args.model, **load_options(args))
    inputs = read_inputs(args.input, network.input_names, network.inputs, args.pixel_range)
    check_output_count(args.output, network.output_names)
    labels = [] if args.labels is None else [read_labels(args.labels)]
    if labels:
        check_labels(args.labels, labels[0], network.outputs)
    with text_for_people(args.json):
        report, outputs = _execute(args, network, inputs)
        report["outputs"] = [
            summary(name, values, operand, labels or packed_labels(args.model), args.top)
            for name, values, operand in zip(
                network.output_names, outputs, network.outputs, strict=True
            )
        ]
        show(report["outputs"])
        _show_times(report)
        save(args.output, outputs)
    write_json(args.json, report)
    return 0


def _open_device(args: argparse.Namespace, imported: ImportedModel) -> Device:
    from nnburst.client.connect import connect
    from nnburst.client.launch import launch

    if args.connect is not None:
        return connect(args.connect)
    return launch(args.executor or engine_of(imported.model) or AUTO, extensions=args.extension)


def _execute(
    args: argparse.Namespace, network: NetworkFile, inputs: Sequence[Any]
) -> tuple[dict[str, Any], list[Any]]:
    """Execute as often as the options ask; return the measurements, and all outputs of the last execution."""
    durations: list[int] = []
    timings: list[Any] = []
    with (
        _open_device(args, network.imported) as device,
        device.prepare(network.imported) as prepared,
    ):
        report = {
            "model": str(args.model),
            "device": {"name": device.name, "version": device.version_string},
            "via": args.via,
            "inputs": [str(path) for path in args.input],
            "executions": args.repeat,
        }
        with open_route(
            args.via,
            prepared,
            network,
            inputs,
            measure=args.measure,
            timeout=args.timeout,
        ) as execute:
            for _ in range(args.repeat):
                start = perf_counter_ns()
                result: ExecutionResult = execute()
                durations.append(perf_counter_ns() - start)
                timings.append(result.timing)
            outputs = [values.copy() for values in result.outputs]
    return report | _times(durations, timings), outputs


def _times(durations: Sequence[int], timings: Sequence[Any]) -> dict[str, Any]:
    median, p99 = np.percentile(durations, [50, 99])
    found: dict[str, Any] = {
        "first_ns": durations[0],
        "median_ns": float(median),
        "p99_ns": float(p99),
    }
    measured = [timing for timing in timings if timing.measured]
    if measured:
        found["driver_us"] = float(np.median([timing.time_in_driver for timing in measured]))
    on_device = [t.time_on_device for t in measured if t.time_on_device != NO_TIMING]
    if on_device:
        found["device_us"] = float(np.median(on_device))
    return found


def _show_times(report: dict[str, Any]) -> None:
    keys = {"first_ns": "first", "median_ns": "median", "p99_ns": "99 %"}
    if report["executions"] == 1:
        keys = {"first_ns": "first"}
    rows = [[name, microseconds(report[key])] for key, name in keys.items()]
    for key, name in (("driver_us", "in the driver"), ("device_us", "on the device")):
        if key in report:
            rows.append([f"{name}, median", f"{report[key]:.0f}"])
    table(
        f"by {report['via']} on {report['device']['name']}, {report['executions']} times",
        ["execution", "µs"],
        rows,
    )


# -- Routes ----------------------------------------------------------------------------------------


class RunRoute(Protocol):
    """A way to execute a network, with its inputs in place."""

    def __call__(self) -> ExecutionResult:
        """Execute once; each state keeps its value from the execution before."""


@contextmanager
def open_route(
    via: str,
    prepared: PreparedModel,
    network: NetworkFile,
    inputs: Sequence[Array],
    *,
    measure: bool,
    timeout: float,
) -> Iterator[RunRoute]:
    """Open the route over which `prepared` is executed.

    Args:
        via: "burst" or "execute".
        prepared: the network on a device.
        network: the network.
        inputs: one for each input that is not a state.
        measure: whether the driver times every execution.
        timeout: seconds after which an execution ends with `MissedDeadline`.
    """
    if via == "execute":
        yield _OverSocket(prepared, network, inputs, measure, timeout)
        return
    with prepared.open_burst(states=network.imported.states) as burst:
        if not all(each.known for each in (*prepared.inputs, *prepared.outputs)):
            given = [*inputs]
            yield lambda: burst.execute(given, measure=measure, timeout=timeout)
            return
        bound = burst.bind(measure=measure)
        for place, value in zip(bound.inputs, inputs, strict=True):
            place[...] = value
        yield lambda: bound.run(timeout)


class _OverSocket:
    """Executes over the socket; a state's output is its next input."""

    def __init__(
        self,
        prepared: PreparedModel,
        network: NetworkFile,
        inputs: Sequence[Array],
        measure: bool,
        timeout: float,
    ) -> None:
        self._prepared = prepared
        self._network = network
        self._states = network.imported.states
        self._measure = measure
        self._timeout = timeout
        self._inputs = network.with_states(inputs)

    def __call__(self) -> ExecutionResult:
        result = self._prepared.execute(self._inputs, measure=self._measure, timeout=self._timeout)
        for state in self._states:
            self._inputs[state.input_index] = result.outputs[state.output_index]
        outputs = self._network.without_states(result.outputs)
        return ExecutionResult(outputs, result.output_shapes, result.timing)
