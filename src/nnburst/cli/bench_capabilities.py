"""`nnburst bench capabilities`: measures a device beside the reference executor, for getCapabilities.

Networks of each kind of operands (float32, relaxed float32, 8 bits, float16, int32, bool, 16 bits) run in a
driver of the executor and in one of the reference executor, in turns. The figures are stored, and drivers
that start afterwards report them. Networks of all kinds are built in; the .tflite files of a folder can be
added.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json
from nnburst.hal.environment import SHARED
from nnburst.hal.utils import chosen_executor

if TYPE_CHECKING:
    from nnburst.bench.capabilities import GroupTimes


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "capabilities", help="measure the capabilities that a device reports", description=__doc__
    )
    default = chosen_executor()
    parser.add_argument(
        "--executor", default=default, help="executor to measure (default: %(default)s)"
    )
    parser.add_argument(
        "--device", metavar="NAME", help="name that it is served under (default: the executor's)"
    )
    parser.add_argument(
        "--models",
        type=Path,
        metavar="DIR",
        default=SHARED.read() / "models",
        help="folder of further .tflite files, if it exists (default: %(default)s)",
    )
    parser.add_argument(
        "--list",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a list of further networks, as `bench model --list` takes it (`make mlts` makes one)",
    )
    parser.add_argument(
        "--longest",
        type=at_least_one,
        default=1 << 26,
        help="bytes of the largest file that is used (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=at_least_one,
        default=9,
        help="turns of each network; fewer, but 3, of one that takes long (default: 9)",
    )
    parser.add_argument("--dry-run", action="store_true", help="store nothing")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the networks, print the times, and store the capabilities."""
    from nnburst.bench import capabilities as bench
    from nnburst.bench.model.networks import read_list
    from nnburst.client.launch import launch
    from nnburst.driver.model.device import store_capabilities
    from nnburst.hal.types import PerformanceInfo

    workloads = bench.built_in_workloads()
    workloads += bench.workloads_in(args.models, args.longest)
    for listed in (network.network for path in args.list for network in read_list(path)):
        if len(listed.content) <= args.longest:
            imported = listed.imported
            workloads += bench.workloads_of(listed.name, imported.model, imported.pools)
    found: list[GroupTimes] = []
    with text_for_people(args.json):
        with launch(args.executor) as device, launch("reference") as reference:
            version = device.version_string
            able = [one for one in workloads if all(device.supported_operations(one))]
            with progress("workloads", len(able)) as advance:
                for workload in able:
                    found.append(bench.measure(device, reference, workload, args.rounds))
                    advance(1)
        # Unsupported operations run on the reference executor, so they are as fast there.
        left = {one.group for one in workloads} - {one.group for one in able}
        groups = {**dict.fromkeys(left, PerformanceInfo(1.0, 1.0)), **bench.summary(found)}
        _print(found)
        facts = {"when": time.strftime("%Y-%m-%d"), **_machine()}
        measured = {**facts, "workloads": [_as_json(one) for one in found]}
        file = bench.as_file(groups, version, measured)
        stored = None
        if not args.dry_run:
            stored = str(store_capabilities(args.device or args.executor, file))
            print(f"stored in {stored}")
    ratios = {
        group.value: {"exec_time": info.exec_time, "power_usage": info.power_usage}
        for group, info in groups.items()
    }
    write_json(args.json, {**measured, "capabilities": ratios, "stored": stored})
    return 0


def _print(found: list[GroupTimes]) -> None:
    columns = ("network", "operands", "device ms", "reference ms", "exec time", "power usage")
    rows = [
        (
            one.name,
            one.group.value,
            f"{one.device_ms:.3f}",
            f"{one.reference_ms:.3f}",
            f"{one.exec_time:.3f}",
            f"{one.power_usage:.3f}",
        )
        for one in found
    ]
    table("one thread, medians of the rounds; ratios to the reference executor", columns, rows)


def _machine() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def _as_json(one: GroupTimes) -> dict[str, Any]:
    return {**one._asdict(), "group": one.group.value}
