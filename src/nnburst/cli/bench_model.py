"""`nnburst bench model`: measures accuracy and latency of networks beside their engine in process.

For each network the command compares outputs with those of its file's own engine (LiteRT's Interpreter, or
onnxruntime) on the same inputs (photographs and digits for networks that take pictures, and random ones),
and with the truth and golden sequences if a list file or a workload has some. It measures latency by several
routes, in turn in short blocks, with one thread and every engine on the driver's core; preparation in new
drivers, cold, to a compilation cache and from it; and the driver's own durations. `--html` writes a page
with charts, `--csv` a row for each route. `--layers` instead compares two devices operation by operation and
names the first operation that differs.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import webbrowser
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nnburst.cli.options import (
    Subparsers,
    add_network_options,
    at_least_one,
    not_negative,
    options_for,
    refuse_options,
    zero_or_more,
)
from nnburst.cli.output import (
    add_json_option,
    conditions,
    microseconds,
    printable,
    progress,
    table,
    text_for_people,
    writable_file,
    write_json,
    writing,
)
from nnburst.cli.run_inputs import add_pixel_range_option
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.utils import chosen_executor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nnburst.bench.model.accuracy import Compute
    from nnburst.bench.model.data_sets import DataSet
    from nnburst.bench.model.latency import Participant
    from nnburst.bench.model.networks import MeasuredNetwork
    from nnburst.bench.model.report import Measurement
    from nnburst.client.device import Device
    from nnburst.testing.models.network_file import NetworkFile


def print_tables(found: list[dict[str, Any]]) -> None:
    """Print accuracy, truth, latency, preparation and remarks of all networks."""
    _print_accuracy(found)
    _print_truth(found)
    _print_latency(found)
    _print_preparation(found)
    for network in found:
        if network["comparable"]:
            print(printable(f"{network['network']} may be compared with {network['comparable']}"))
    for remark in dict.fromkeys(remark for network in found for remark in network["remarks"]):
        print(remark)


def _print_accuracy(found: list[dict[str, Any]]) -> None:
    from nnburst.bench.model.accuracy import steps_in_words

    rows = []
    for network in found:
        for at, agreement in enumerate(network["accuracy"]):
            top = agreement["top1_agreement"]
            rows.append(
                [
                    network["network"] if at == 0 else "",
                    agreement["data_set"],
                    agreement["device"],
                    agreement["examples"],
                    "" if top is None else f"{top:.2%}",
                    _real(agreement["max_abs_difference"]),
                    _real(agreement["mean_abs_difference"]),
                    steps_in_words(agreement["steps"]),
                ]
            )
    table(
        f"accuracy beside {found[0]['reference']}",
        [
            "network",
            "data set",
            "device",
            "examples",
            "same top",
            "largest",
            "mean",
            "steps apart: values",
        ],
        rows,
    )
    sources = {a["data_set"]: a["source"] for network in found for a in network["accuracy"]}
    for name, source in sources.items():
        print(f"  {name}: {source}")
    print()


def _print_truth(found: list[dict[str, Any]]) -> None:
    rows = [
        [
            network["network"],
            one["device"],
            one["evaluator"],
            ", ".join(f"{name} {_real(value)}" for name, value in one["figures"].items()),
            "; ".join(one["failures"]) or "as expected",
        ]
        for network in found
        for one in network["ground_truth"]
    ]
    if rows:
        columns = ["network", "device", "evaluator", "figures", ""]
        table("beside the truth and golden outputs", columns, rows)


def _print_latency(found: list[dict[str, Any]]) -> None:
    rows = []
    for network in found:
        latency = network["latency"]
        for at, case in enumerate(latency["cases"]):
            key = f"burst / {case['name']}"
            rows.append(
                [
                    network["network"] if at == 0 else "",
                    case["name"],
                    microseconds(network["histograms"][case["name"]]["mean_ns"]),
                    microseconds(network["histograms"][case["name"]]["sigma_ns"]),
                    microseconds(case["median_ns"]),
                    microseconds(case["p99_ns"]),
                    f"{latency['ratios'][key]:.3f}" if key in latency["ratios"] else "",
                    f"{latency['typical_ratios'][key]:.3f}" if key in latency["ratios"] else "",
                    f"{latency['driver_us']:.0f}" if at == 0 else "",
                    f"{latency['device_us']:.0f}" if at == 0 else "",
                ]
            )
    columns = [
        *("network", "route", "mean µs", "σ µs", "median µs", "p99 µs"),
        *("burst / this", "of single medians"),
    ]
    table(
        "latency by route: one thread, all in turn",
        [*columns, "driver's own µs", "device's own µs"],
        rows,
    )


def _print_preparation(found: list[dict[str, Any]]) -> None:
    columns = {
        "load_ms": "load",
        "engine_ms": "engine's own",
        "launch_ms": "launch",
        "prepare_cold_ms": "cold",
        "prepare_to_cache_ms": "to cache",
        "prepare_cached_ms": "cached",
        "first_result_ms": "first result",
        "first_result_cached_ms": "first, cached",
        "first_run_ms": "first run",
        "second_run_ms": "second run",
    }
    rows = [
        [network["network"], *(_milliseconds(network["preparation"][key]) for key in columns)]
        for network in found
    ]
    table("preparation, median ms", ["network", *columns.values()], rows)


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _real(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


# -- Measuring and reporting -----------------------------------------------------------------------


#: Names of the reference engines in reports.
_REFERENCES: Final = {
    "litert": "LiteRT's Interpreter in process",
    "litert-ref": "LiteRT's Interpreter in process with its reference kernels",
}


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "model",
        help="accuracy, latency and preparation of networks",
        description="`nnburst bench model`: what networks give and cost through a driver process, "
        "beside the engine in process.",
    )
    parser.add_argument(
        "models", nargs="*", type=Path, metavar="MODEL", help=".tflite and .onnx files"
    )
    _add_sources(parser)
    parser.add_argument(
        "--executor",
        default=chosen_executor(),
        help="executor of the driver (default: %(default)s, the best that is installed)",
    )
    parser.add_argument(
        "--reference",
        choices=tuple(_REFERENCES),
        default="litert",
        help="whose outputs are right: the engine's own kernels, or its reference kernels",
    )
    parser.add_argument(
        "--examples", type=at_least_one, default=200, help="inputs of each data set (default: 200)"
    )
    _add_durations(parser)
    parser.add_argument(
        "--prepares",
        type=zero_or_more,
        default=5,
        help="new drivers for each kind of start; 0 measures no preparation (default: 5)",
    )
    parser.add_argument(
        "--seed", type=zero_or_more, default=1, help="seed of random inputs (default: 1)"
    )
    add_pixel_range_option(parser)
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="OLD.json",
        help="judge ratios to the engine in process beside an older --json: exit status 0 if the same or"
        " better, 1 if worse, 2 if too noisy",
    )
    parser.add_argument(
        "--expect",
        type=_expectation,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="top1 (least agreement), largest (difference at most) or ratio (to the engine at most);"
        " exit status 1 if missed",
    )
    parser.add_argument("--csv", type=writable_file, metavar="FILE", help="write a table")
    parser.add_argument("--html", type=writable_file, metavar="FILE", help="write a page")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_json_option(parser)


def _add_durations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rounds",
        type=at_least_one,
        default=41,
        help="least number of blocks of each route (default: 41)",
    )
    parser.add_argument(
        "--seconds",
        type=not_negative,
        default=0.0,
        metavar="S",
        help="least seconds for the rounds of a network (default: 0)",
    )
    parser.add_argument(
        "--warm-up",
        type=not_negative,
        default=0.3,
        metavar="S",
        help="seconds of warm-up, up to ten times as long while routes become faster (default: 0.3)",
    )


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--list",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a JSON list of networks with their truth and golden sequences (docs/benchmarks.md)",
    )
    parser.add_argument(
        "--workload",
        choices=("voice", "noise"),
        action="append",
        default=[],
        help="the networks of that demo with their golden sequences; may be repeated",
    )
    add_network_options(parser)
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="NAME",
        help="also measure an executor, or a driver that runs; may be repeated",
    )
    parser.add_argument(
        "--relaxed",
        action="store_true",
        help="also measure the same network with float32 computed as float16, if the device does so",
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="compare the executor with the first --device (default: reference) operation by operation",
    )


def run(args: argparse.Namespace) -> int:
    """Measure the networks and write the reports; 0 unless an `--expect` or the `--baseline` is missed."""
    cores = sorted(os.sched_getaffinity(0))
    _check(args, cores)
    from nnburst.bench.model.report import judge, missed, read_baseline, sentence, write_csv
    from nnburst.bench.verdict import exit_status

    if args.layers:
        return _show_layers(args, cores[1])
    baseline = {} if args.baseline is None else read_baseline(args.baseline)
    here, there = cores[0], cores[1]
    with text_for_people(args.json), ExitStack() as stack:
        workloads = _workloads(args)
        others = {name: stack.enter_context(_open(name, there)) for name in args.device}
        measured = [_measure(args, workload, others, here, there) for workload in workloads]
        judged = [judge(one.figures, baseline) for one in measured]
        measured = [one.judged(by) for one, by in zip(measured, judged, strict=True)]
        found = [dict(one.figures) for one in measured]
        print_tables(found)
        sentences = [sentence(*both) for both in zip(found, judged, strict=True)]
        if args.baseline is not None:
            new = [one["network"] for one, by in zip(found, judged, strict=True) if by is None]
            sentences += [f"{name}: no verdict, {args.baseline} does not have it" for name in new]
        errors = [line for network in found for line in missed(network, dict(args.expect))]
        errors += [line for network in found for line in _wrong(network)]
        for line in (*sentences, *errors):
            print(printable(line))
        report: dict[str, Any] = {
            "about": _about(args, here, there),
            "verdicts": sentences,
            "missed": errors,
            "networks": found,
        }
        if args.csv is not None:
            write_csv(args.csv, report["about"], found)
        if args.html is not None:
            _write_page(args, report, measured)
    write_json(args.json, report)
    if errors:
        return 1
    if args.baseline is None:
        return 0
    return exit_status([one.verdict for one in judged if one is not None])


def _expectation(text: str) -> tuple[str, float]:
    """Parse a figure's key and its bound (type of `--expect`)."""
    key, _, value = text.partition("=")
    if key not in ("top1", "largest", "ratio"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected top1=, largest= or ratio=")
    try:
        bound = float(value)
    except ValueError:
        bound = math.nan
    if math.isnan(bound):
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number behind =")
    return key, bound


def _check(args: argparse.Namespace, cores: list[int]) -> None:
    """Refuse options that cannot work, before any work is done."""
    if args.layers:
        _refuse_beside_layers(args)
    if args.open and args.html is None:
        raise InvalidArgument("--open needs --html FILE: the page that is opened")
    if args.html is not None and find_spec("matplotlib") is None:
        raise InvalidArgument("--html needs matplotlib: pip install 'nnburst[cli]'")
    if find_spec("ai_edge_litert") is None:
        raise DeviceUnavailable(
            "bench model needs ai-edge-litert, the reference engine: pip install 'nnburst[litert]'"
        )
    if not (args.models or args.list or args.workload):
        raise InvalidArgument("MODEL: none is given, expected one, --list or --workload")
    if len(cores) < 2:
        raise DeviceUnavailable("bench model needs two cores: one for each side")


def _refuse_beside_layers(args: argparse.Namespace) -> None:
    """Refuse the options of measurements, since `--layers` measures nothing."""
    given = {
        "--relaxed": args.relaxed,
        "--baseline": args.baseline is not None,
        "--expect": bool(args.expect),
        "--csv": args.csv is not None,
        "--html": args.html is not None,
    }
    refuse_options(given, "given with --layers, expected only without")


def _about(args: argparse.Namespace, here: int, there: int) -> dict[str, Any]:
    from nnburst.runtime.part_timer import processor_model

    return {
        "executor": args.executor,
        "reference": _REFERENCES[args.reference],
        "nnburst": version("nnburst"),
        "ai-edge-litert": _version("ai-edge-litert"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor_model(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "core of the client": here,
        "core of the driver and of engines in process": there,
        "seed": args.seed,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _workloads(args: argparse.Namespace) -> list[MeasuredNetwork]:
    """The networks that the command line names."""
    from nnburst.bench.model.networks import SOUNDS, MeasuredNetwork, read_list
    from nnburst.testing.models.network_file import NetworkFile

    found = []
    for path in args.models:
        network = NetworkFile.read(path, **options_for(path, args))
        found.append(MeasuredNetwork(network, pixels=args.pixel_range))
    found += [workload for path in args.list for workload in read_list(path)]
    found += [workload for name in args.workload for workload in SOUNDS[name]()]
    if not found:
        raise InvalidArgument(f"--list: no network in {', '.join(map(str, args.list))}")
    return found


def _open(name: str, core: int) -> Device:
    """Connect to a running driver of this name, or launch the executor of this name on `core`."""
    from nnburst.client.connect import connect
    from nnburst.client.launch import launch
    from nnburst.driver.executors import find_executor

    if "/" not in name:
        try:
            find_executor(name)
        except DeviceUnavailable:
            return connect(name)
        return launch(name, cpus={core})
    return connect(name)


def _measure(
    args: argparse.Namespace,
    workload: MeasuredNetwork,
    others: Mapping[str, Device],
    here: int,
    there: int,
) -> Measurement:
    from nnburst.bench.cases import pinned
    from nnburst.bench.model import accuracy, data_sets, latency
    from nnburst.bench.model.latency import Participant
    from nnburst.bench.model.report import Measurement, histograms
    from nnburst.client.launch import launch

    network = workload.network
    pixels = workload.pixels or args.pixel_range
    sets = [
        workload.fitted(found)
        for found in data_sets.data_sets(network.inputs, args.examples, args.seed, pixels)
    ]
    example = sets[0].examples[0]
    engine = workload.reference or partial(accuracy.reference_of, network, args.reference)
    reference = engine()
    with launch(args.executor, cpus={there}) as device:
        beside = {name: Participant(network, other) for name, other in others.items()}
        if args.relaxed:
            beside["relaxed"] = Participant(network.relaxed(), device)
        everyone = {"": Participant(network, device), **beside}
        agreements, findings = _compare(workload, everyone, reference, sets)
        with pinned(here), progress(f"{network.name}: latency", args.rounds) as advance:
            times = latency.measure(
                network,
                device,
                there,
                example,
                args.rounds,
                lambda: advance(1),
                executor=args.executor,
                reference=None if network.is_tflite else reference,
                others=beside,
                warm_up_s=args.warm_up,
                seconds=args.seconds,
            )
    with progress(f"{network.name}: preparation", 3 * args.prepares) as advance:
        prepared = latency.measure_preparation(
            network, args.executor, there, example, args.prepares, advance, engine=engine
        )
    figures = {
        "network": network.name,
        "group": workload.group,
        "file_bytes": len(network.content),
        "operations": len(network.imported.model.main.operations),
        "reference": _REFERENCES[args.reference] if network.is_tflite else latency.ONNXRUNTIME,
        "accuracy": agreements,
        "ground_truth": findings,
        "latency": times.as_json(),
        "histograms": histograms(times.cases),
        "preparation": prepared,
        "comparable": workload.entry.comparable if workload.entry is not None else "",
        "remarks": [*times.remarks, *_remarks(args, network, prepared)],
    }
    return Measurement(figures, times)


def _compare(
    workload: MeasuredNetwork,
    participants: Mapping[str, Participant],
    reference: Compute,
    sets: Sequence[DataSet],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Compare each participant with the reference on all sets, and with the truth that the workload knows."""
    from nnburst.bench.model.accuracy import by_driver, compare

    network = workload.network
    total = sum(len(found.examples) for found in sets)
    agreements, findings = [], []
    for name, one in participants.items():
        with (
            by_driver(one.network, one.device) as ours,
            progress(f"{network.name}: accuracy {name}".rstrip(), total) as advance,
        ):
            agreements += compare(ours.compute, reference, sets, network.outputs, advance, name)
            findings += [
                {"device": name, **found.as_json()}
                for found in workload.evaluate(ours.frame, ours.reset)
            ]
    return [found.as_json() for found in agreements], findings


def _remarks(
    args: argparse.Namespace, network: NetworkFile, prepared: Mapping[str, float | None]
) -> Iterator[str]:
    """Remarks that explain why figures are missing."""
    from nnburst.bench.model.data_sets import missing_packages

    missing = missing_packages(network.inputs)
    if missing:
        yield f"{network.name}: fewer pictures, not installed: {', '.join(missing)}"
    if prepared["prepare_cached_ms"] is None and args.prepares:
        yield f"executor {args.executor} took nothing from a compilation cache"


def _wrong(network: Mapping[str, Any]) -> Iterator[str]:
    """The failures that an evaluator found, in words."""
    for found in network["ground_truth"]:
        on = f" on {found['device']}" if found["device"] else ""
        for failure in found["failures"]:
            yield f"{network['network']}{on}: {found['evaluator']}: {failure}"


def _show_layers(args: argparse.Namespace, core: int) -> int:
    """Compare two devices operation by operation; 1 if one differs."""
    from nnburst.bench.model.accuracy import compare_layers, first_difference
    from nnburst.bench.model.data_sets import data_sets

    other = args.device[0] if args.device else "reference"
    report, differs = [], False
    with (
        text_for_people(args.json),
        _open(args.executor, core) as one,
        _open(other, core) as two,
    ):
        for workload in _workloads(args):
            network = workload.network
            sets = data_sets(network.inputs, 1, args.seed, workload.pixels or args.pixel_range)
            layers = compare_layers(network, one, two, sets[0].examples[0])
            first = first_difference(layers)
            table(
                f"{network.name}: {args.executor} and {other}",
                ["operation", "output", "largest difference", ""],
                [
                    [one.name, one.output, f"{one.largest:.3g}", "differs" if one.differs else ""]
                    for one in layers
                ],
            )
            differs |= first is not None
            where = f"first differs in {first.name}" if first else "agrees in every operation"
            print(printable(f"{network.name}: {args.executor} {where}, compared with {other}"))
            rows = [asdict(layer) for layer in layers]
            report.append({"network": network.name, "layers": rows, "first": first and first.name})
    write_json(args.json, {"devices": [args.executor, other], "networks": report})
    return 1 if differs else 0


def _write_page(
    args: argparse.Namespace, report: dict[str, Any], measured: list[Measurement]
) -> None:
    from nnburst.bench.model.report import page

    lead = [*report["verdicts"], *report["missed"]]
    with writing(args.html):
        args.html.write_text(page(report["about"], measured, lead, conditions()), encoding="utf-8")
    print(f"wrote {args.html}")
    if args.open and not webbrowser.open(args.html.resolve().as_uri()):
        print("no browser could be started")
