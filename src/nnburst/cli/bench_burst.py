"""`nnburst bench burst`: measures executions by a burst beside a floor and other transports."""

from __future__ import annotations

import argparse
import os
import platform
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import (
    add_json_option,
    microseconds,
    picture_file,
    progress,
    table,
    text_for_people,
    write_json,
)

if TYPE_CHECKING:
    from nnburst.bench.cases import Contestant

#: Seconds that one segment of a periodic caller lasts, by its rate (Hz), and the number of segments.
_SEGMENT: Final = {12_500: 0.1, 5000: 0.1, 1000: 0.25, 100: 0.75}
_SEGMENTS: Final = 16
_IDLE_SECONDS: Final = 3.0
#: The same for each round if there are few rounds.
_IDLE_SECONDS_OF_ROUND: Final = 0.15
#: Upper bound on the rounds of cases that take milliseconds.
_OPENING_ROUNDS: Final = 11


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "burst", help="latency of a burst, its floor and its rivals", description=__doc__
    )
    parser.add_argument(
        "--rounds", type=at_least_one, default=41, help="blocks of each case (default: 41)"
    )
    parser.add_argument("--no-rivals", action="store_true", help="leave the other libraries out")
    parser.add_argument(
        "--no-opening",
        action="store_true",
        help="leave out connecting, preparing and opening a burst",
    )
    parser.add_argument("--no-periodic", action="store_true", help="leave the periodic callers out")
    parser.add_argument(
        "--plot", type=picture_file, metavar="FILE", help="draw the distributions (svg, png, pdf)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure all cases, print the tables, and write the JSON."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("bench burst needs two cores: one for each side")
        return 1
    if args.plot is not None and find_spec("matplotlib") is None:
        print("--plot needs matplotlib: pip install 'nnburst[cli]'")
        return 1
    from nnburst.bench.rounds import stolen_seconds

    here, there = cores[0], cores[1]
    with text_for_people(args.json):
        report: dict[str, Any] = {"machine": _machine(), "cores": [here, there]}
        began, stolen = time.perf_counter(), stolen_seconds()
        cases = _two_cores(args, here, there, report)
        cases += _plans(args, cores, report)
        cases += _one_core(args, here, report)
        if not args.no_opening:
            cases += _opening(args, here, there, report)
        if not args.no_periodic:
            cases += _periodic(here, there, report)
        report["cases"] = cases
        report["stolen_share"] = (stolen_seconds() - stolen) / (time.perf_counter() - began)
        _print(report)
    write_json(args.json, report)
    return 0


def _machine() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def _two_cores(
    args: argparse.Namespace, here: int, there: int, report: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure the cases that spin, and other libraries, in turn, with each side on a core of its own."""
    from nnburst.bench.burst_cases import loop_cases, open_rivals, socket_cases
    from nnburst.bench.cases import (
        FloorSpin,
        Fmq256,
        Looped,
        adding_model,
        burst_cases,
        empty_calls,
        idle_share,
        null_driver,
        open_bound,
        pinned,
    )
    from nnburst.bench.peer import Peer
    from nnburst.bench.plans import simple_plan, steps_in_c
    from nnburst.bench.rounds import plot_distributions, run_rounds

    with ExitStack() as stack:
        peer = stack.enter_context(Peer(there))
        device = stack.enter_context(null_driver(there))
        rivals = [] if args.no_rivals else open_rivals(stack, there)
        compiled = simple_plan(stack, there)
        stack.enter_context(pinned(here))
        spinning, _ = open_bound(stack, device, adding_model(1, 1))
        _, sleeping = open_bound(stack, device, adding_model(1, 1), spin_window=0.0)
        contestants: list[Contestant] = [
            FloorSpin(peer),
            *empty_calls(),
            Fmq256(peer),
            *burst_cases(stack, device),
            Looped("null_1in1out_window_0", sleeping.run),
            compiled,
            *steps_in_c(spinning),
            *socket_cases(stack, device, there),
            *loop_cases(stack, device, there),
            *rivals,
        ]
        with progress("rounds", args.rounds) as advance:
            measured = run_rounds(contestants, args.rounds, lambda: advance(1))
        idle_seconds = min(_IDLE_SECONDS, args.rounds * _IDLE_SECONDS_OF_ROUND)
        report["idle_cpu_share"] = round(idle_share(device, idle_seconds), 5)
    report["ratios"] = _ratios(measured)
    if args.plot is not None:
        shown = [case for case in measured.values() if not case.name.startswith("empty")]
        plot_distributions(shown, args.plot)
    return [case.as_json() for case in measured.values()]


def _ratios(measured: dict[str, Any]) -> dict[str, float]:
    """The report's ratios: medians of the ratios within each round."""
    import numpy as np

    floor, empty, queue, one, many = (
        np.asarray(measured[name].blocks)
        for name in ("floor_spin", "empty_cffi_call", "fmq_256", "null_1in1out", "null_8in4out")
    )
    beside = [
        ("execute", "unix_socket_echo"),
        ("reusable_execution", "unix_socket_echo"),
        ("aidl_burst", "unix_socket_echo"),
        ("execute_arrays", "empty_cffi_call"),
        ("execute_pooled_arrays", "empty_cffi_call"),
        ("burst_function", "empty_cffi_call"),
        ("run_async", "empty_cffi_call"),
        ("run_async", "asyncio_socket_echo"),
    ]
    original = 800 + 2.6 * floor  # ns of the original C++ burst, estimated from this round's floor
    return {
        "null_1in1out / (fmq_256 + 3 empty_cffi_call)": float(np.median(one / (queue + 3 * empty))),
        "null_1in1out / original": float(np.median(one / original)),
        "null_8in4out / null_1in1out": float(np.median(many / one)),
        "fmq_256 / floor_spin": float(np.median(queue / floor)),
        "compiled_1in1out / null_1in1out": measured["compiled_1in1out"].ratio_to(
            measured["null_1in1out"]
        ),
        "two_steps_in_c - two_runs_in_c, ns": measured["two_steps_in_c"].typical_difference_to(
            measured["two_runs_in_c"]
        ),
        "null_1in1out p99 / median": measured["null_1in1out"].tail_ratio(),
        **{f"{a} / {b}": measured[a].typical_ratio_to(measured[b]) for a, b in beside},
    }


def _opening(
    args: argparse.Namespace, here: int, there: int, report: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure the steps before an execution: connecting, preparing, opening a burst."""
    from nnburst.bench.burst_cases import opening_cases
    from nnburst.bench.cases import pinned
    from nnburst.bench.rounds import run_rounds

    with ExitStack() as stack:
        contestants = opening_cases(stack, there)
        stack.enter_context(pinned(here))
        rounds = min(args.rounds, _OPENING_ROUNDS)
        with progress("opening", rounds) as advance:
            measured = run_rounds(contestants, rounds, lambda: advance(1))
    for name in ("connect", "prepare_54KB", "open_burst_and_bind"):
        report["ratios"][f"{name} / fork"] = measured[name].typical_ratio_to(measured["fork"])
    return [case.as_json() for case in measured.values()]


def _plans(
    args: argparse.Namespace, cores: list[int], report: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure plans of two steps on two drivers, with a core for each driver if there are enough."""
    from nnburst.bench.cases import pinned
    from nnburst.bench.plans import pipelines, plans_of_two
    from nnburst.bench.rounds import run_rounds

    here, first, *more = cores
    with ExitStack() as stack:
        drivers = (first, more[0] if more else first)
        contestants = [*plans_of_two(stack, drivers), *pipelines(stack, drivers)]
        stack.enter_context(pinned(here))
        with progress("plans", args.rounds) as advance:
            measured = run_rounds(contestants, args.rounds, lambda: advance(1))
    two, futex = measured["plan_of_two_steps"], measured["futex_two_cores"]
    report["ratios"]["plan_of_two_steps / 2 futex_two_cores"] = two.typical_ratio_to(futex) / 2
    one, many = measured["pipeline_of_one"], measured["pipeline_of_two"]
    report["ratios"]["throughput: pipeline_of_two / pipeline_of_one"] = one.ratio_to(many)
    for name in ("plan_of_two_150KB", "plan_of_two_1MB"):
        report["ratios"][f"{name} / plan_of_two_steps"] = measured[name].typical_ratio_to(two)
    return [case.as_json() for case in measured.values()]


def _one_core(args: argparse.Namespace, core: int, report: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure a burst with both sides on one core, beside a futex round trip on the same core."""
    from nnburst.bench.cases import BareFutex, Looped, adding_model, null_driver, open_bound, pinned
    from nnburst.bench.peer import Peer
    from nnburst.bench.rounds import run_rounds

    with ExitStack() as stack:
        peer = stack.enter_context(Peer(core))
        device = stack.enter_context(null_driver(core))
        stack.enter_context(pinned(core))
        _, bound = open_bound(stack, device, adding_model(1, 1))
        contestants: list[Contestant] = [
            BareFutex(peer),
            Looped("null_1in1out_one_core", bound.run),
        ]
        measured = run_rounds(contestants, args.rounds)
    futex, burst = measured["futex_one_core"], measured["null_1in1out_one_core"]
    report["ratios"]["one core: null_1in1out / futex"] = burst.ratio_to(futex)
    return [case.as_json() for case in measured.values()]


def _periodic(here: int, there: int, report: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure callers of each rate: one driver learns the period, another one always spins."""
    import numpy as np

    from nnburst.bench.cases import periodic_callers, pinned

    rng = random.Random(7)  # noqa: S311 - jitter
    with pinned(None), periodic_callers(there) as callers, pinned(here):
        with progress("periodic callers", _SEGMENTS) as advance:
            for _ in range(_SEGMENTS):
                for caller in callers:
                    caller.run_segment(_SEGMENT[int(caller.rate)], rng)
                advance(1)
        by_name = {caller.name: caller for caller in callers}
        for rate in _SEGMENT:
            learning = by_name[f"periodic_{rate}hz_learning"]
            spinning = by_name[f"periodic_{rate}hz_spinning"]
            pairs = np.asarray(learning.segments) / np.asarray(spinning.segments)
            report["ratios"][f"{rate} Hz: learning / spinning"] = float(np.median(pairs))
            report["ratios"][f"{rate} Hz: cpu share, learning"] = learning.cpu_s / learning.wall_s
    return [caller.as_json() for caller in callers]


def _print(report: dict[str, Any]) -> None:
    columns: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("case", lambda case: case["name"]),
        ("mean", lambda case: microseconds(case["mean_ns"]) if "mean_ns" in case else ""),
        ("median", lambda case: microseconds(case["median_ns"])),
        ("p99", lambda case: microseconds(case["p99_ns"])),
        ("p99.9", lambda case: microseconds(case["p999_ns"])),
        ("stolen", lambda case: f"{case['stolen_share']:.1%}" if "stolen_share" in case else ""),
        ("cpu", lambda case: f"{case['cpu_share']:.1%}" if "cpu_share" in case else ""),
    ]
    rows = [[cell(case) for _, cell in columns] for case in report["cases"]]
    title = (
        "µs of round trips between two processes: means of blocks, percentiles of single exchanges"
    )
    table(title, [name for name, _ in columns], rows)
    ratios = [(name, f"{value:.3f}") for name, value in report["ratios"].items()]
    table("ratios, medians over the rounds", ("ratio", "value"), ratios)
    print(f"an idle pair uses {report['idle_cpu_share']:.2%} of a core")
    print(f"the host took {report['stolen_share']:.1%} of a core meanwhile")
