"""Measures networks on a driver of the executor openvino beside OpenVINO in this process, on the same graph.

    python -m nnburst.bench.network.openvino NETWORK… [--rounds 41] [--json FILE]

Both sides compute with one thread on the driver's core, in turn, on the same input: the burst is called from
Python, OpenVINO's C library from C on bound memory. A ratio is the median of the ratios within a round.
"Undisturbed" is the tenth percentile of executions, for a machine that is busy with other work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

import nnburst
from nnburst.bench.cases import Contestant, Looped, pinned
from nnburst.bench.network.networks import InProcess, aligned, random_values, warm_up_of
from nnburst.bench.rounds import run_rounds
from nnburst.client.device import Device
from nnburst.executor.base import Argument, PrepareOptions
from nnburst.executor.built_in import openvino
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.importer.load import load


def measure(path: Path, device: Device, core: int, rounds: int) -> dict[str, Any]:
    """Measure one network; times are in nanoseconds.

    Args:
        path: a .tflite or .onnx file that is imported by operations.
        device: a driver of the executor openvino on `core`.
        core: core to compute on.
        rounds: number of rounds of blocks.

    Raises:
        NnburstError: the network cannot be imported, or OpenVINO does not run all of it.
    """
    network = load(path)
    if not all(device.supported_operations(network)):
        raise GeneralFailure(f"{path.stem}: OpenVINO runs only a part of it, expected all")
    options = PrepareOptions(num_threads=1)
    random = np.random.default_rng(1)
    with (
        closing(openvino().prepare(network.model, network.pools, options)) as same,
        device.prepare(network, num_threads=1) as prepared,
        prepared.open_burst() as burst,
        ExitStack() as closed,
    ):
        bound = burst.bind()
        for array in bound.inputs:
            array[...] = random_values(array, random)
        bound.run()
        taken = [aligned(np.zeros_like(array)) for array in bound.outputs]
        execution = same.bind(
            [Argument(aligned(array).data, array.shape) for array in bound.inputs],
            [
                Argument(room.data, array.shape)
                for room, array in zip(taken, bound.outputs, strict=True)
            ],
        )
        closed.callback(execution.close)
        outcome = execution.run()
        if outcome.status != ErrorStatus.NONE:
            raise GeneralFailure(f"OpenVINO in process: {outcome.message}")
        different = any(
            room.tobytes() != array.tobytes()
            for room, array in zip(taken, bound.outputs, strict=True)
        )
        warm_up = warm_up_of(bound.run)
        pair: list[Contestant] = [
            Looped("burst", bound.run, warm_up),
            InProcess("openvino", execution, core, warm_up),
        ]
        measured = run_rounds(pair, rounds)
    ours, theirs = measured["burst"], measured["openvino"]
    return {
        "network": path.stem,
        "different": different,
        "ratio": ours.typical_ratio_to(theirs),
        "more_ns": ours.typical_difference_to(theirs),
        "undisturbed": {"burst_ns": ours.undisturbed_ns, "openvino_ns": theirs.undisturbed_ns},
        "cases": [case.as_json() for case in measured.values()],
    }


def main(arguments: Sequence[str]) -> int:
    """Print a line for each network; 1 if one cannot be measured."""
    parser = argparse.ArgumentParser(description="Bursts beside OpenVINO in process.")
    parser.add_argument("networks", nargs="+", type=Path, help=".tflite and .onnx files")
    parser.add_argument("--rounds", type=int, default=41, help="blocks of each (default: 41)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    args = parser.parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0))
    here, there = cores[0], cores[-1]
    found, failures = [], {}
    for path in args.networks:
        try:
            with nnburst.launch("openvino", cpus={there}) as device, pinned(here):
                figures = measure(path, device, there, args.rounds)
        except (NnburstError, OSError) as error:
            failures[str(path)] = f"{type(error).__name__}: {error}"
            sys.stdout.write(f"{path} failed: {failures[str(path)]}\n")
            continue
        found.append(figures)
        undisturbed = figures["undisturbed"].values()
        burst, engine = (time / 1e3 for time in undisturbed)
        sys.stdout.write(
            f"{path.stem}: {figures['ratio']:.3f} of OpenVINO's time, {figures['more_ns'] / 1e3:+.1f} µs;"
            f" undisturbed {burst:.1f} and {engine:.1f} µs;"
            f" {'different' if figures['different'] else 'the same'} bits\n"
        )
        sys.stdout.flush()
    if args.json:
        args.json.write_text(json.dumps({"networks": found, "failures": failures}))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
