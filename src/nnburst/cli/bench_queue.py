"""`nnburst bench queue`: measures message queues between Python programs beside a floor and others.

Each program has a core of its own. One sends 256 bytes, the other answers with 64. Cases that spin:
`queue_bound` uses ends that are bound to arrays, `queue_arrays` write and read, `queue_messages` send and
receive of bytes; `fmq_256` is the same ring from C to C, `floor_spin` two stores to one word. Cases that
sleep: `queue_sleeping` never spins, `queue_await` waits in an event loop; a futex and an echo over a socket
stand beside them. Streams go one way, as single records, batches of 64 or claims in place, beside copies of
1 MiB. Exchanges of 8 bytes to 1 MiB stand beside the four copies that each takes. Installed libraries take
part: cloudtoid-interprocess, kickmsg, iceoryx2, faster-fifo. All run in turns; ratios are taken within a
round. The last part has one writer and one to four readers: the writer writes as fast as it can, or every 2,
5 and 20 ms with a jitter of a tenth.
"""

from __future__ import annotations

import argparse
import os
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
from nnburst.hal.errors import InvalidArgument

if TYPE_CHECKING:
    from nnburst.bench.cases import Contestant
    from nnburst.bench.queues import Pair, PairPeer, Stream

_OWN: Final = ("queue_bound", "queue_arrays", "queue_messages")
#: Prefixes of the cases that belong to no other library.
_APART: Final = ("queue_", "floor_spin", "fmq_256", "futex", "asyncio")
#: Upper bounds on the bytes and messages of one stream, and the places of the ring for plain copies.
_STREAM_BYTES: Final = 16 << 20
_STREAM_MOST: Final = 10_000
_COPIES: Final = 8
_PARTS: Final = ("pairs", "sizes", "streams", "readers", "periods")
#: Numbers of readers of one writer, records in its stream, and seconds between two periodic writes.
_READERS: Final = (1, 2, 4)
_STREAMED: Final = 300_000
_PERIODS: Final = (0.002, 0.005, 0.02)
#: Bytes that the exchanges of one size move in a round.
_EXCHANGED: Final = 8 << 20


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "queue", help="a message queue between two programs, and its rivals", description=__doc__
    )
    parser.add_argument(
        "--rounds", type=at_least_one, default=41, help="blocks of each case (default: 41)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=_PARTS,
        default=list(_PARTS),
        metavar="PART",
        help=f"parts to measure, of {', '.join(_PARTS)} (default: all)",
    )
    parser.add_argument(
        "--seconds",
        type=at_least_one,
        default=5,
        help="how long each period is measured (default: 5)",
    )
    parser.add_argument(
        "--plot", type=picture_file, metavar="FILE", help="draw the distributions (svg, png, pdf)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the chosen parts, print the tables, and write the JSON."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("bench queue needs two cores: one for each program")
        return 1
    if args.plot is not None and "pairs" not in args.only:
        raise InvalidArgument(
            f"--plot: {args.plot}, but pairs are not measured, expected them in --only"
        )
    if args.plot is not None and find_spec("matplotlib") is None:
        print("--plot needs matplotlib: pip install 'nnburst[cli]'")
        return 1
    with text_for_people(args.json):
        report = _measure(args, cores[0], cores[1])
        _print(report)
    write_json(args.json, report)
    return 0


def _measure(args: argparse.Namespace, here: int, there: int) -> dict[str, Any]:
    from nnburst.bench.cases import pinned
    from nnburst.bench.queues import PairPeer, period_to, stream_to

    report: dict[str, Any] = {"cores": [here, there]}
    with pinned(here), PairPeer(there) as other:
        if "pairs" in args.only:
            report |= _pairs(args, other, there)
        if "sizes" in args.only:
            report["sizes"] = _sizes(other.sizes(), args.rounds)
        if "streams" in args.only:
            report["streams"] = _streams(other.streams(), args.rounds)
    rest = sorted(os.sched_getaffinity(0) - {here})
    with pinned(here):
        if "readers" in args.only:
            report["readers"] = [stream_to(count, _STREAMED, rest) for count in _READERS]
        if "periods" in args.only:
            with progress("periods", len(_PERIODS) * len(_READERS)) as advance:
                report["periods"] = []
                for period in _PERIODS:
                    for count in _READERS:
                        events = int(args.seconds / period)
                        report["periods"].append(period_to(count, period, events, rest))
                        advance(1)
    return report


def _pairs(args: argparse.Namespace, other: PairPeer, there: int) -> dict[str, Any]:
    from nnburst.bench.burst_cases import awaited_echo
    from nnburst.bench.cases import BareFutex, FloorSpin, Fmq256
    from nnburst.bench.peer import Peer
    from nnburst.bench.rounds import plot_distributions, run_rounds

    with ExitStack() as stack:
        peer = stack.enter_context(Peer(there))
        echo = awaited_echo(stack, there)
        contestants: list[Contestant] = [
            FloorSpin(peer),
            Fmq256(peer),
            *other.pairs(),
            BareFutex(peer, "futex_two_cores"),
            *other.sleepers(),
            echo,
        ]
        with progress("rounds", args.rounds) as advance:
            measured = run_rounds(contestants, args.rounds, lambda: advance(1))
    if args.plot is not None:
        plot_distributions(list(measured.values()), args.plot)
    rivals = [case for name, case in measured.items() if not name.startswith(_APART)]
    best = min(rivals, key=lambda case: case.mean_ns, default=None)
    ratios = {
        "queue_bound / fmq_256": measured["queue_bound"].ratio_to(measured["fmq_256"]),
        "queue_sleeping / futex_two_cores": measured["queue_sleeping"].typical_ratio_to(
            measured["futex_two_cores"]
        ),
        "queue_await / asyncio_socket_echo": measured["queue_await"].typical_ratio_to(
            measured["asyncio_socket_echo"]
        ),
    }
    for name in _OWN:
        ratios[f"{name} p99 / median"] = measured[name].tail_ratio()
        rival = measured.get("cloudtoid_arrays") if name == "queue_arrays" else best
        if rival is not None:
            ratios[f"{name} / {rival.name}"] = measured[name].ratio_to(rival)
    return {
        "best_rival": None if best is None else best.name,
        "ratios": ratios,
        "cases": [case.as_json() for case in measured.values()],
    }


def _sizes(pairs: list[Pair], rounds: int) -> list[dict[str, Any]]:
    """Measure exchanges of each size, and four copies of as many bytes after each exchange."""
    import numpy as np

    found: dict[int, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for pair in pairs:
            size = int(pair.name.rpartition("_")[2])
            count = min(max(_EXCHANGED // size, 4), 2000)
            there, back = np.ones(size, np.uint8), np.ones(size, np.uint8)
            exchange, began = pair.block(count), time.perf_counter_ns()
            for _ in range(2 * count):
                back[:] = there
                there[:] = back
            copies = (time.perf_counter_ns() - began) / count
            found.setdefault(size, []).append((exchange, copies))
    return [
        {
            "bytes": size,
            "exchange_ns": float(np.median([exchange for exchange, _ in pairs_of])),
            "four_copies_ns": float(np.median([copies for _, copies in pairs_of])),
            "ratio": float(np.median([exchange / copies for exchange, copies in pairs_of])),
        }
        for size, pairs_of in found.items()
    ]


def _streams(streams: list[Stream], rounds: int) -> list[dict[str, Any]]:
    """Measure messages a second of each stream, in turns, and copies of 1 MiB within one process."""
    import numpy as np

    counts = {stream.name: max(_STREAM_BYTES // stream.bytes, 1) for stream in streams}
    counts = {name: min(count, _STREAM_MOST) for name, count in counts.items()}
    found: dict[str, list[float]] = {stream.name: [] for stream in streams}
    source, ring, copies = np.ones(1 << 20, np.uint8), np.ones((_COPIES, 1 << 20), np.uint8), []
    for _ in range(rounds):
        for stream in streams:
            found[stream.name].append(stream.per_second(counts[stream.name]))
        began = time.perf_counter()
        for place in ring:  # one place after another, as claims do
            place[:] = source
        copies.append(_COPIES / (time.perf_counter() - began))
    found["copy_1048576"] = copies
    return [
        {
            "name": name,
            "per_second": float(np.median(rates)),
            "gigabytes_per_second": float(np.median(rates)) * int(name.rpartition("_")[2]) / 1e9,
        }
        for name, rates in found.items()
    ]


def _print(report: dict[str, Any]) -> None:
    columns: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("case", lambda case: case["name"]),
        ("mean µs", lambda case: microseconds(case["mean_ns"])),
        ("median µs", lambda case: microseconds(case["median_ns"])),
        ("p99 µs", lambda case: microseconds(case["p99_ns"])),
        ("per second", lambda case: f"{case['per_second']:.0f}"),
        ("stolen", lambda case: f"{case['stolen_share']:.1%}"),
    ]
    if "cases" in report:
        rows = [[cell(case) for _, cell in columns] for case in report["cases"]]
        title = "256 bytes there, 64 back: means of blocks; percentiles of single exchanges"
        table(title, [name for name, _ in columns], rows)
        ratios = [(name, f"{value:.3f}") for name, value in report["ratios"].items()]
        table("ratios, medians over the rounds", ("ratio", "value"), ratios)
    sizes = [
        (
            each["bytes"],
            *map(microseconds, (each["exchange_ns"], each["four_copies_ns"])),
            f"{each['ratio']:.2f}",
        )
        for each in report.get("sizes", ())
    ]
    if sizes:
        table("exchanges by size", ("bytes", "exchange µs", "four copies µs", "ratio"), sizes)
    streams = [
        (found["name"], f"{found['per_second']:.0f}", f"{found['gigabytes_per_second']:.2f}")
        for found in report.get("streams", ())
    ]
    if streams:
        table("streams, medians over the rounds", ("stream", "messages a second", "GB/s"), streams)
    _print_readers(report)


def _print_readers(report: dict[str, Any]) -> None:
    streams = [
        (
            each["readers"],
            f"{each['written_per_second']:.0f}",
            f"{min(each['read_per_second']):.0f}",
            max(each["missed"]),
        )
        for each in report.get("readers", ())
    ]
    if streams:
        title = "one writer as fast as it can, 24 bytes"
        table(
            title, ("readers", "written a second", "read by the slowest", "missed by it"), streams
        )
    periods = [
        (
            each["period_ms"],
            each["readers"],
            microseconds(max(one["median_ns"] for one in each["each"])),
            microseconds(max(one["p99_ns"] for one in each["each"])),
            f"{max(one['core_share'] for one in each['each']):.1%}",
            f"{max(one['stolen_share'] for one in each['each']):.1%}",
        )
        for each in report.get("periods", ())
    ]
    if periods:
        head = ("period ms", "readers", "median µs", "p99 µs", "of a core", "no core")
        table("read after a write, the slowest of the readers", head, periods)
