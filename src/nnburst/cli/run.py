"""`nnburst run`: execute a .tflite or .onnx network in a driver on files; print or save what it gives.

Inputs are .npy arrays (stored values as they are; real numbers are quantised), pictures (resized) or
.wav sounds (the first window, -1 to 1), one for each input of the network. Classes get their names
from the file itself if it carries a list of labels, or from `--labels`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from nnburst.cli.network_options import add_network_options, load_options
from nnburst.cli.options import Subparsers, above_zero, at_least_one
from nnburst.cli.output import (
    add_json_option,
    microseconds,
    table,
    text_for_people,
    writable_file,
    write_json,
)
from nnburst.cli.run_inputs import add_pixel_range_option, read_inputs
from nnburst.cli.run_outputs import (
    check_labels,
    check_output_count,
    packed_labels,
    read_labels,
    save,
    show,
    summary,
)
from nnburst.hal.errors import InvalidArgument

if TYPE_CHECKING:
    from nnburst.client.device import Device
    from nnburst.client.memory.arguments import ExecutionResult
    from nnburst.testing.models.network_file import NetworkFile


def prepare_parser(subparsers: Subparsers) -> None:
    """Add `nnburst run`."""
    parser = subparsers.add_parser(
        "run", help="execute a .tflite or .onnx network on files", description=__doc__
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
        "--executor", help="executor of the driver that is launched (default: litert if installed)"
    )
    where.add_argument("--connect", metavar="NAME", help="use a driver that is running")
    parser.add_argument(
        "--via", choices=("burst", "execute"), default="burst", help="route (default: burst)"
    )
    parser.add_argument("--labels", type=Path, metavar="FILE", help="names of classes, one a line")
    parser.add_argument(
        "--top", type=at_least_one, default=5, help="number of classes to print (default: 5)"
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
    """Read, execute, show, write."""
    from nnburst.testing.models.network_file import NetworkFile

    for name in ("repeat", "top"):
        if getattr(args, name) < 1:
            raise InvalidArgument(f"--{name} is {getattr(args, name)}, expected 1 or more")
    network = NetworkFile.read(args.model, **load_options(args))
    inputs = read_inputs(args.input, network.input_names, network.inputs, args.pixel_range)
    check_output_count(args.output, network.output_names)
    labels = [] if args.labels is None else [read_labels(args.labels)]
    if labels:
        check_labels(args.labels, labels[0], network.outputs)
    with text_for_people(args.json):
        report, results = _execute(args, network, inputs)
        outputs = network.without_states(results)
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


def _open_device(args: argparse.Namespace) -> Device:
    from nnburst.client.connect import connect
    from nnburst.client.launch import launch

    if args.connect is not None:
        return connect(args.connect)
    default = "litert" if find_spec("ai_edge_litert") is not None else "reference"
    return launch(args.executor or default, extensions=args.extension)


def _execute(
    args: argparse.Namespace, network: NetworkFile, inputs: Sequence[Any]
) -> tuple[dict[str, Any], list[Any]]:
    """Execute as often as asked for; what is known of it, and all outputs of the last time."""
    from nnburst.cli.run_routes import open_route

    durations: list[int] = []
    timings: list[Any] = []
    with _open_device(args) as device, device.prepare(network.imported) as prepared:
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
    import numpy as np

    median, p99 = np.percentile(durations, [50, 99])
    found: dict[str, Any] = {
        "first_ns": durations[0],
        "median_ns": float(median),
        "p99_ns": float(p99),
    }
    measured = [timing for timing in timings if timing.measured]
    if measured:
        found["driver_us"] = float(np.median([timing.time_in_driver for timing in measured]))
        found["device_us"] = float(np.median([timing.time_on_device for timing in measured]))
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
