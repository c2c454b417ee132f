"""`nnburst bench network`: measures networks beside their engine and onnxruntime in process.

Every contestant computes on the same core with one thread, on the same input. All run in turn in short
blocks, and ratios are medians of the ratios within a round: of the blocks' means, and of the medians of
single executions, which do not change if other programs take time slices. "Undisturbed" is the tenth
percentile of all single executions. `litert` is LiteRT's C library, called from C, on the file itself: the
cost of an execution without a driver. For an .onnx file it runs the lowered network, and onnxruntime runs
the file itself.

With --as-graph .onnx files run as one operation on an onnxruntime driver, beside onnxruntime's C library in
this process, on bound buffers and called from C.
"""

from __future__ import annotations

import argparse
import os
import platform
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nnburst.cli.options import Subparsers, add_network_options, at_least_one, options_for
from nnburst.cli.output import (
    add_json_option,
    microseconds,
    progress,
    table,
    text_for_people,
    write_json,
)
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.regular_file import read_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nnburst.bench.network.networks import EngineSubject
    from nnburst.bench.peer import Peer
    from nnburst.client.device import Device

    Column = tuple[str, Callable[[dict[str, Any]], object]]
    #: Measures a network in a driver and returns its figures; the callback is called after each round.
    Measure = Callable[[Device, Callable[[], None]], dict[str, Any]]


#: The package that runs networks and the extra that installs it: by operations, and as whole graphs.
_ENGINES: Final = (("ai_edge_litert", "litert"), ("onnxruntime", "onnxruntime"))


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "network", help="networks beside LiteRT and onnxruntime in process", description=__doc__
    )
    parser.add_argument(
        "networks",
        nargs="*",
        type=Path,
        help=".tflite and .onnx files; one ADD is always run, but not with --as-graph",
    )
    add_network_options(parser)
    parser.add_argument(
        "--rounds", type=at_least_one, default=41, help="blocks of each case (default: 41)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the networks, print the tables, and write the JSON."""
    if args.as_graph and not args.networks:
        raise InvalidArgument("networks: none is given, expected .onnx files with --as-graph")
    package, extra = _ENGINES[bool(args.as_graph)]
    if find_spec(package) is None:
        print(f"bench network needs {package}: pip install 'nnburst[{extra}]'")
        return 1
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("bench network needs two cores: one for each side")
        return 1
    failures: dict[str, str] = {}
    with text_for_people(args.json):
        if args.as_graph:
            found = _measure_graphs(args, (cores[0], cores[1]), failures)
            _print_graphs(found)
        else:
            found = _measure_networks(args, (cores[0], cores[1]), failures)
            _print(found)
        for name, failure in failures.items():
            print(f"{name} failed: {failure}")
    machine = {"kernel": platform.release(), "machine": platform.machine(), "cores": os.cpu_count()}
    write_json(args.json, {"machine": machine, "networks": found, "failures": failures})
    return 1 if failures else 0


def _measure_each(
    measures: Mapping[str, Measure],
    executor: str,
    cores: tuple[int, int],
    rounds: int,
    failures: dict[str, str],
) -> list[dict[str, Any]]:
    """Measure one network after another, each with a new driver, so that a crash does not end the others.

    Args:
        measures: the function that measures each network, by the network's name.
        executor: the drivers' executor.
        cores: the core of this process and that of the drivers.
        rounds: number of rounds for each network.
        failures: gets an error text for each network that cannot be measured, by the network's name.
    """
    from nnburst.bench.cases import pinned
    from nnburst.client.launch import launch

    here, there = cores
    found = []
    with progress("networks", rounds * len(measures)) as advance:
        for name, measure in measures.items():
            try:
                with launch(executor, cpus={there}) as device, pinned(here):
                    found.append(measure(device, lambda: advance(1)))
            except (NnburstError, OSError) as error:
                failures[name] = f"{type(error).__name__}: {error}"
    return found


def _measure_networks(
    args: argparse.Namespace, cores: tuple[int, int], failures: dict[str, str]
) -> list[dict[str, Any]]:
    """Measure the networks by operations, and a network of one ADD."""
    from nnburst.bench.network.networks import ONE_ADD, EngineSubject
    from nnburst.bench.peer import Peer

    opening: dict[str, Callable[[], EngineSubject]] = {ONE_ADD: EngineSubject.one_add}
    for path in args.networks:
        opening[str(path)] = partial(_open, path, args)
    with Peer(cores[1]) as peer:
        measures = {
            name: partial(_measure, subject, peer, cores[1], args.rounds)
            for name, subject in opening.items()
        }
        return _measure_each(measures, "litert", cores, args.rounds, failures)


def _open(path: Path, args: argparse.Namespace) -> EngineSubject:
    from nnburst.bench.network.networks import EngineSubject

    return EngineSubject.of_file(path, **options_for(path, args) | {"as_graph": False})


def _measure(
    opened: Callable[[], EngineSubject],
    peer: Peer,
    core: int,
    rounds: int,
    device: Device,
    advance: Callable[[], None],
) -> dict[str, Any]:
    """One network's figures; times in nanoseconds."""
    import numpy as np

    from nnburst.bench.cases import FloorSpin
    from nnburst.bench.network.networks import lineup
    from nnburst.bench.rounds import run_rounds

    subject = opened()
    with lineup(subject, device, core, np.random.default_rng(1)) as cases:
        measured = run_rounds([FloorSpin(peer), *cases.contestants], rounds, advance)
    burst, litert = measured[cases.burst.name], measured[cases.litert.name]
    lowered = measured[cases.lowered.name]
    others = {"litert": litert, "litert, as lowered": lowered}
    if cases.onnxruntime is not None:
        others["onnxruntime"] = measured[cases.onnxruntime.name]
    more = np.asarray(burst.blocks) - np.asarray(litert.blocks)
    return {
        "network": subject.name,
        "ratios": {name: burst.ratio_to(other) for name, other in others.items()},
        "typical_ratios": {name: burst.typical_ratio_to(other) for name, other in others.items()},
        "more_ns": float(np.median(more)),
        "typical_more_ns": burst.typical_difference_to(litert),
        "undisturbed": {
            "burst_ns": burst.undisturbed_ns,
            "litert_ns": litert.undisturbed_ns,
            "beyond_ns": burst.undisturbed_beyond(litert),
        },
        "differences": cases.differences,
        "remarks": cases.remarks,
        "cases": [case.as_json() for case in measured.values()],
    }


def _measure_graphs(
    args: argparse.Namespace, cores: tuple[int, int], failures: dict[str, str]
) -> list[dict[str, Any]]:
    """Measure the networks as whole graphs."""
    measures = {str(path): partial(_measure_graph, path, cores[1], args) for path in args.networks}
    return _measure_each(measures, "onnxruntime", cores, args.rounds, failures)


def _measure_graph(
    path: Path,
    core: int,
    args: argparse.Namespace,
    device: Device,
    advance: Callable[[], None],
) -> dict[str, Any]:
    """One graph's figures; times in nanoseconds."""
    import numpy as np

    from nnburst.bench.network.onnx import InProcessGraph, graph_lineup
    from nnburst.bench.rounds import run_rounds

    content = read_regular_file(path)
    engine = InProcessGraph(content)
    values = engine.values(np.random.default_rng(1), dict(args.shape), dict(args.constant))
    with graph_lineup(content, engine.names, device, core, values) as lineup:
        pair = [lineup.burst, lineup.bound]
        measured = run_rounds(pair, args.rounds, advance)
    burst, bound = (measured[case.name] for case in pair)
    return {
        "network": path.stem,
        "different": lineup.different,
        "ratio": burst.typical_ratio_to(bound),
        "beyond_ns": burst.typical_beyond(bound),
        "cases": [case.as_json() for case in measured.values()],
    }


def _print_graphs(found: list[dict[str, Any]]) -> None:
    columns: list[Column] = [
        ("network", lambda n: n["network"]),
        ("burst µs", lambda n: microseconds(n["cases"][0]["median_ns"])),
        ("onnxruntime µs", lambda n: microseconds(n["cases"][1]["median_ns"])),
        ("/ onnxruntime", lambda n: f"{n['ratio']:.3f}"),
        ("- 1.01 onnxruntime µs", lambda n: microseconds(n["beyond_ns"])),
        ("result", lambda n: "different" if n["different"] else "the same bits"),
    ]
    title = "whole graphs, one thread, the same core and input: medians"
    _table(title, columns, found)


def _print(found: list[dict[str, Any]]) -> None:
    columns: list[Column] = [
        ("network", lambda n: n["network"]),
        ("burst µs", lambda n: _median(n, "burst")),
        ("litert µs", lambda n: _median(n, "litert")),
        ("onnxruntime µs", lambda n: _median(n, "onnxruntime")),
        ("floor µs", lambda n: _median(n, "floor_spin")),
    ]
    title = "one thread, the same core and input, medians over the rounds"
    _table(title, columns, found)
    for word, kind, more in (
        ("of the blocks' means", "ratios", "more_ns"),
        ("of the medians of single executions", "typical_ratios", "typical_more_ns"),
    ):
        _table(f"burst, compared: medians of the ratios {word}", _ratios(kind, more), found)
    _table("undisturbed: tenth percentiles of single executions", _UNDISTURBED, found)
    for remark in dict.fromkeys(remark for network in found for remark in network["remarks"]):
        print(remark)


_UNDISTURBED: Final[list[Column]] = [
    ("network", lambda n: n["network"]),
    ("burst µs", lambda n: microseconds(n["undisturbed"]["burst_ns"])),
    ("litert µs", lambda n: microseconds(n["undisturbed"]["litert_ns"])),
    ("/ litert", lambda n: f"{n['undisturbed']['burst_ns'] / n['undisturbed']['litert_ns']:.3f}"),
    ("- 1.01 litert µs", lambda n: microseconds(n["undisturbed"]["beyond_ns"])),
]


def _ratios(kind: str, more: str) -> list[Column]:
    return [
        ("network", lambda n: n["network"]),
        ("- litert µs", lambda n: microseconds(n[more])),
        ("/ litert", lambda n: _ratio(n[kind], "litert")),
        ("/ litert, as lowered", lambda n: _ratio(n[kind], "litert, as lowered")),
        ("/ onnxruntime", lambda n: _ratio(n[kind], "onnxruntime")),
    ]


def _table(title: str, columns: Sequence[Column], found: list[dict[str, Any]]) -> None:
    rows = [[cell(network) for _, cell in columns] for network in found]
    table(title, [name for name, _ in columns], rows)


def _median(network: dict[str, Any], name: str) -> str:
    for case in network["cases"]:
        if case["name"] in (name, f"{network['network']}: {name}"):
            return microseconds(case["mean_ns"])
    return ""


def _ratio(ratios: dict[str, float], name: str) -> str:
    return f"{ratios[name]:.3f}" if name in ratios else ""
