"""Records when a periodic caller calls a driver that runs, and how its calls are met.

    python tools/record_rhythm.py [--rate HZ] [--seconds S] [--runs N] [--name NAME] [--json FILE]

Each run prints its median call, the share of calls that found the driver awake, what client and driver
used of a core between them, and what the host stole meanwhile. With `--json` the times between calls, in
microseconds, are added to FILE under "NAME N"; tests/csrc/gaps.json holds such recordings for the test of
the policy without a clock.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from nnburst.bench.cases import adding_model, null_driver, open_bound, pinned, process_cpu
from nnburst.bench.rounds import stolen_seconds
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.device import Device

#: Nanoseconds within which only a driver that is awake answers: to wake one takes more.
_AWAKE: Final = 12_000
#: Of a run: the driver finds the rhythm in it.
_SETTLING: Final = 0.1


def main() -> None:
    """Record and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=1000.0, help="calls a second")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument(
        "--jitter", type=float, default=0.0, help="of the caller, share of a period"
    )
    parser.add_argument("--name", default="recorded")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the gaps to this file")
    args = parser.parse_args()
    found = {}
    with null_driver(1) as device, pinned(0), ExitStack() as stack:
        _, bound = open_bound(stack, device, adding_model(1, 1))
        for number in range(1, args.runs + 1):
            gaps = _run(bound, device, args.rate, args.seconds, args.jitter)
            found[f"{args.name} {number}"] = {"rate": args.rate, "gaps_us": gaps}
    if args.json is not None:
        known = json.loads(args.json.read_text()) if args.json.exists() else {}
        args.json.write_text(json.dumps(known | found, separators=(",", ":")) + "\n")


def _run(
    bound: BoundRequest, device: Device, rate: float, seconds: float, jitter: float
) -> list[int]:
    """Call for some seconds, print how that went; microseconds between the calls."""
    calls, rng = int(rate * seconds), random.Random(1)  # noqa: S311 - a caller of a benchmark
    began, took = [], []
    stolen, wall = stolen_seconds(), time.perf_counter()
    cpu = time.process_time() + process_cpu(device.pid)
    due = time.perf_counter()
    for _ in range(calls):
        due += (1 + rng.uniform(-jitter, jitter)) / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        start = time.perf_counter_ns()
        bound.run()
        took.append(time.perf_counter_ns() - start)
        began.append(start)
    wall = time.perf_counter() - wall
    cpu = time.process_time() + process_cpu(device.pid) - cpu
    stolen = stolen_seconds() - stolen
    settled = np.array(took[int(_SETTLING * calls) :])
    gaps = np.diff(began) // 1000
    print(
        f"{rate:g} Hz: median {np.median(settled) / 1000:.1f} µs,"
        f" {100 * np.mean(settled < _AWAKE):.1f} % met awake,"
        f" {100 * cpu / wall:.1f} % of a core, {100 * stolen / wall:.1f} % stolen,"
        f" gaps {np.percentile(gaps, 1):.0f} to {np.percentile(gaps, 99):.0f} µs"
    )
    return [int(gap) for gap in gaps]


if __name__ == "__main__":
    main()
