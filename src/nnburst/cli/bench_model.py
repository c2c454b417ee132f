"""`nnburst bench model`: what networks give and cost through a driver process, beside the engine in process.

For each .tflite file: outputs compared with those of LiteRT's Interpreter on the same inputs
(photographs and digits for networks that take pictures, and random ones); latency by four routes in turn
in short blocks, with one thread, every engine on the driver's core; preparation in new drivers, cold and
from the compilation cache; and the driver's own durations. `--html` writes a page with
pictures of it.
"""

from __future__ import annotations

import argparse
import os
import platform
import webbrowser
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nnburst.cli.options import Subparsers, at_least_one, zero_or_more
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
)
from nnburst.cli.run_inputs import pixel_range
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument

if TYPE_CHECKING:
    from nnburst.bench.model.report import Measurement
    from nnburst.testing.models.network_file import NetworkFile

#: What the reference engines are called in reports.
_REFERENCES: Final = {
    "litert": "LiteRT's Interpreter in process",
    "litert-ref": "LiteRT's Interpreter in process with its reference kernels",
}


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "model", help="accuracy, latency and preparation of .tflite networks", description=__doc__
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help=".tflite files")
    parser.add_argument("--executor", default="litert", help="of the driver (default: litert)")
    parser.add_argument(
        "--reference",
        choices=tuple(_REFERENCES),
        default="litert",
        help="whose outputs are right: the engine's own kernels, or its reference kernels",
    )
    parser.add_argument(
        "--examples", type=at_least_one, default=200, help="inputs of each data set (default: 200)"
    )
    parser.add_argument(
        "--rounds", type=at_least_one, default=41, help="blocks of each route (default: 41)"
    )
    parser.add_argument(
        "--prepares",
        type=at_least_one,
        default=5,
        help="new drivers for each kind of start (default: 5)",
    )
    parser.add_argument(
        "--seed", type=zero_or_more, default=1, help="of what is random (default: 1)"
    )
    parser.add_argument(
        "--pixel-range",
        type=pixel_range,
        metavar="LOW:HIGH",
        help="real values of black and white (default: what a quantised input can represent, or 0:1)",
    )
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
    parser.add_argument("--html", type=writable_file, metavar="FILE", help="write a page")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print, write; 0 unless `--expect` or `--baseline` say otherwise."""
    cores = sorted(os.sched_getaffinity(0))
    _check(args, cores)
    from nnburst.bench.model.baseline import judge, missed, read_baseline, sentence
    from nnburst.bench.verdict.verdict import exit_status
    from nnburst.testing.models.network_file import NetworkFile

    baseline = {} if args.baseline is None else read_baseline(args.baseline)
    here, there = cores[0], cores[1]
    with text_for_people(args.json):
        networks = [NetworkFile.read(path) for path in args.models]
        measured = [_measure(args, network, here, there) for network in networks]
        found = [dict(one.figures) for one in measured]
        _print(found)
        judged = [judge(network, baseline) for network in found]
        sentences = [sentence(*both) for both in zip(found, judged, strict=True)]
        errors = [line for network in found for line in missed(network, dict(args.expect))]
        for line in (*sentences, *errors):
            print(printable(line))
        report: dict[str, Any] = {
            "about": _about(args, here, there),
            "verdicts": sentences,
            "missed": errors,
            "networks": found,
        }
        if args.html is not None:
            _write_page(args, report, measured)
    write_json(args.json, report)
    if errors:
        return 1
    if args.baseline is None:
        return 0
    return exit_status([one.verdict for one in judged if one is not None])


def _expectation(text: str) -> tuple[str, float]:
    """A key and its bound."""
    key, _, value = text.partition("=")
    if key not in ("top1", "largest", "ratio"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected top1=, largest= or ratio=")
    try:
        return key, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number behind =") from None


def _check(args: argparse.Namespace, cores: list[int]) -> None:
    """Refuse what cannot work before any work is done."""
    if args.open and args.html is None:
        raise InvalidArgument("--open needs --html FILE: the page that is opened")
    if args.html is not None and find_spec("matplotlib") is None:
        raise InvalidArgument("--html needs matplotlib: pip install 'nnburst[cli]'")
    if find_spec("ai_edge_litert") is None:
        raise DeviceUnavailable(
            "bench model needs ai-edge-litert, the reference engine: pip install 'nnburst[litert]'"
        )
    if len(cores) < 2:
        raise DeviceUnavailable("bench model needs two cores: one for each side")


def _about(args: argparse.Namespace, here: int, there: int) -> dict[str, Any]:
    return {
        "executor": args.executor,
        "reference": _REFERENCES[args.reference],
        "nnburst": version("nnburst"),
        "ai-edge-litert": _version("ai-edge-litert"),
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


def _measure(args: argparse.Namespace, network: NetworkFile, here: int, there: int) -> Measurement:
    from nnburst.bench.drivers import pinned
    from nnburst.bench.model import accuracy, data_sets, latency, preparation
    from nnburst.bench.model.report import Measurement
    from nnburst.client.launch import launch

    sets = data_sets.data_sets(network.inputs, args.examples, args.seed, args.pixel_range)
    example = sets[0].examples[0]
    total = sum(len(found.examples) for found in sets)
    with launch(args.executor, cpus={there}) as device:
        with (
            accuracy.by_driver(network, device) as ours,
            progress(f"{network.name}: accuracy", total) as advance,
        ):
            reference = accuracy.by_interpreter(network, args.reference)
            agreements = accuracy.compare(ours, reference, sets, network.outputs, advance)
        with pinned(here), progress(f"{network.name}: latency", args.rounds) as advance:
            times = latency.measure(
                network, device, there, example, args.rounds, lambda: advance(1)
            )
    with progress(f"{network.name}: preparation", 2 * args.prepares) as advance:
        prepared = preparation.measure_preparation(
            network, args.executor, there, example, args.prepares, advance
        )
    remarks = list(times.remarks)
    missing = data_sets.missing_packages(network.inputs)
    if missing:
        remarks.append(f"{network.name}: fewer pictures, not installed: {', '.join(missing)}")
    if prepared["prepare_cached_ms"] is None:
        remarks.append(f"executor {args.executor} took nothing from a compilation cache")
    figures = {
        "network": network.name,
        "file_bytes": len(network.content),
        "operations": len(network.imported.model.main.operations),
        "reference": _REFERENCES[args.reference],
        "accuracy": [found.as_json() for found in agreements],
        "latency": times.as_json(),
        "preparation": prepared,
        "remarks": remarks,
    }
    return Measurement(figures, times)


def _write_page(
    args: argparse.Namespace, report: dict[str, Any], measured: list[Measurement]
) -> None:
    from nnburst.bench.model.report import page

    lead = [*report["verdicts"], *report["missed"]]
    args.html.write_text(page(report["about"], measured, lead, conditions()), encoding="utf-8")
    print(f"wrote {args.html}")
    if args.open and not webbrowser.open(args.html.resolve().as_uri()):
        print("no browser could be started")


def _print(found: list[dict[str, Any]]) -> None:
    _print_accuracy(found)
    _print_latency(found)
    _print_preparation(found)
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
                    agreement["examples"],
                    "" if top is None else f"{top:.2%}",
                    _real(agreement["max_abs_difference"]),
                    _real(agreement["mean_abs_difference"]),
                    steps_in_words(agreement["steps"]),
                ]
            )
    table(
        f"accuracy beside {found[0]['reference']}",
        ["network", "data set", "examples", "same top", "largest", "mean", "steps apart: values"],
        rows,
    )
    sources = {a["data_set"]: a["source"] for network in found for a in network["accuracy"]}
    for name, source in sources.items():
        print(f"  {name}: {source}")
    print()


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
                    microseconds(case["median_ns"]),
                    microseconds(case["p99_ns"]),
                    f"{latency['ratios'][key]:.3f}" if key in latency["ratios"] else "",
                    f"{latency['typical_ratios'][key]:.3f}" if key in latency["ratios"] else "",
                    f"{latency['driver_us']:.0f}" if at == 0 else "",
                    f"{latency['device_us']:.0f}" if at == 0 else "",
                ]
            )
    columns = ["network", "route", "median µs", "p99 µs", "burst / this", "of single medians"]
    table(
        "latency by route: one thread, all in turn",
        [*columns, "driver's own µs", "device's own µs"],
        rows,
    )


def _print_preparation(found: list[dict[str, Any]]) -> None:
    keys = (
        "load_ms",
        "engine_ms",
        "launch_ms",
        "prepare_cold_ms",
        "prepare_cached_ms",
        "first_result_ms",
        "first_result_cached_ms",
    )
    rows = [
        [network["network"], *(_milliseconds(network["preparation"][key]) for key in keys)]
        for network in found
    ]
    columns = ["load", "engine's own", "launch", "cold", "cached", "first result", "first, cached"]
    table("preparation, median ms", ["network", *columns], rows)


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _real(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
