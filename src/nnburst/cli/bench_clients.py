"""`nnburst bench clients`: measures many clients of one service, each alone and all together.

Every client is a process with a burst of its own. In a closed loop it sends its next request as soon as it
has a result. In an open loop requests arrive by a Poisson process, whether or not the one before is answered,
and their latency counts from the arrival; those that still wait at the end are left out. An open loop is
compared with a simulated queue: the same requests, served in order by as many servers as there are cores,
each as fast as an execution of one client alone. Fairness is Jain's index: of answers in a closed loop, of
mean latencies in an open one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nnburst
from nnburst.cli.options import Subparsers, above_zero, at_least_one
from nnburst.cli.output import (
    add_json_option,
    microseconds,
    progress,
    table,
    text_for_people,
    write_json,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from nnburst.bench.clients.load import Load

_LOOPS: Final = ("closed", "open")
_WAITING: Final = ("spinning", "sleeping")
#: Cores that a load may run on.
_CORES: Final = ("all", "one")
#: No client sends more requests a second; the times at which all of them arrive lie in its memory.
_MOST_A_SECOND: Final = 1e6


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "clients", help="throughput, latency and fairness of many clients", description=__doc__
    )
    parser.add_argument(
        "--clients",
        type=_counts,
        default=(1, 4, 16, 64),
        metavar="N,…",
        help="numbers of clients, measured one after the other (default: 1,4,16,64)",
    )
    parser.add_argument(
        "--network",
        type=Path,
        help="a network for LiteRT; without one the null executor answers one ADD",
    )
    parser.add_argument(
        "--rate",
        type=_rate,
        default=50.0,
        help="requests a second of each client of an open loop, at most 1e6 (default: %(default)g)",
    )
    parser.add_argument(
        "--seconds",
        type=above_zero,
        default=2.0,
        help="seconds of each load (default: %(default)g)",
    )
    parser.add_argument("--loop", choices=_LOOPS, help="only this kind of loop")
    parser.add_argument("--waiting", choices=_WAITING, help="only this way of waiting")
    parser.add_argument("--on", choices=_CORES, help="only on all cores, or only on one")
    add_json_option(parser)


def _counts(text: str) -> tuple[int, ...]:
    """Parse numbers of clients, comma-separated (type of an option)."""
    counts = tuple(at_least_one(word) for word in text.split(","))
    if max(counts) > 256:  # a service's limit
        raise argparse.ArgumentTypeError(f"{text!r}, expected at most 256 clients")
    return counts


def _rate(text: str) -> float:
    """Parse requests a second (type of an option)."""
    rate = above_zero(text)
    if rate > _MOST_A_SECOND:
        raise argparse.ArgumentTypeError(f"{text!r}, expected at most {_MOST_A_SECOND:g}")
    return rate


def run(args: argparse.Namespace) -> int:
    """Run the loads, print the table, and write the JSON."""
    if args.network is not None and find_spec("ai_edge_litert") is None:
        print("bench clients --network needs ai-edge-litert: pip install 'nnburst[litert]'")
        return 1
    if args.network is not None:
        # Refuses a file that is no network before the first process starts.
        nnburst.load(args.network)
    with text_for_people(args.json):
        found = _measure_all(args)
        _print(found)
    write_json(args.json, {"network": str(args.network or ""), "cases": found})
    return 0


def _measure_all(args: argparse.Namespace) -> list[dict[str, Any]]:
    from nnburst.bench.clients.scenario import ClientShare, run_load, service

    every = tuple(sorted(os.sched_getaffinity(0)))
    sets = [every[:1] if word == "one" else every for word in _wanted(args.on, _CORES)]
    kinds = len(_wanted(args.loop, _LOOPS)) * len(_wanted(args.waiting, _WAITING))
    found = []
    with progress("loads", len(sets) * kinds * len(args.clients)) as advance:
        for cores in dict.fromkeys(sets):
            with service("null" if args.network is None else "litert", cores) as address:
                alone: dict[str, npt.NDArray[np.int64]] = {}
                for load in _loads(args, address, cores):
                    if load.rate and load.waiting not in alone:
                        alone[load.waiting] = _alone(load)
                    services = alone[load.waiting] if load.rate else None
                    found.append(ClientShare.of(run_load(load), services).as_json())
                    advance(1)
    return found


def _wanted(choice: str | None, choices: tuple[str, ...]) -> tuple[str, ...]:
    return choices if choice is None else (choice,)


def _loads(args: argparse.Namespace, address: str, cores: tuple[int, ...]) -> Iterator[Load]:
    """The loads that the command line asks for, each to run on `cores`."""
    from nnburst.bench.clients.load import Load

    for loop in _wanted(args.loop, _LOOPS):
        for waiting in _wanted(args.waiting, _WAITING):
            for clients in args.clients:
                yield Load(
                    address=address,
                    clients=clients,
                    rate=args.rate if loop == "open" else 0.0,
                    spins=waiting == "spinning",
                    cores=cores,
                    seconds=args.seconds,
                    network="" if args.network is None else str(args.network),
                )


def _alone(load: Load) -> npt.NDArray[np.int64]:
    """Nanoseconds of each execution when the service has a single client."""
    from dataclasses import replace

    from nnburst.bench.clients.scenario import run_load

    [trips] = run_load(replace(load, clients=1)).trips
    executions: npt.NDArray[np.int64] = trips[:, 2] - trips[:, 1]
    return executions


def _print(found: list[dict[str, Any]]) -> None:
    columns: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("clients", lambda case: case["clients"]),
        ("loop", lambda case: case["loop"]),
        ("waiting", lambda case: case["waiting"]),
        ("cores", lambda case: case["cores"]),
        ("per second", lambda case: f"{case['per_second']:.0f}"),
        ("median µs", lambda case: microseconds(case["median_ns"])),
        ("p99 µs", lambda case: microseconds(case["p99_ns"])),
        ("queue p99 µs", lambda case: _micro(case, "queue_p99_ns")),
        ("p99 / queue", lambda case: case.get("p99 / queue", "")),
        ("fairness", lambda case: f"{case['fairness']:.3f}"),
        ("cpu", lambda case: f"{case['client_cpu_share'] + case['worker_cpu_share']:.0%}"),
        ("cpu µs each", lambda case: microseconds(case["cpu_ns_per_request"])),
        ("waits each", lambda case: f"{case['waits_per_request']:.2f}"),
        ("client MB", lambda case: _megabytes(case["client_bytes"])),
        ("worker MB", lambda case: _megabytes(case["worker_bytes"])),
        ("stolen", lambda case: f"{case['stolen_share']:.1%}"),
    ]
    rows = [[cell(case) for _, cell in columns] for case in found]
    table("clients of one service, all at once", [name for name, _ in columns], rows)


def _micro(case: dict[str, Any], key: str) -> str:
    return microseconds(case[key]) if key in case else ""


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.1f}"
