"""`nnburst devices`: lists the drivers of this user that answer.

The times are those that drivers report: ratios to the reference executor on this machine; lower is better,
and they are 1 until `nnburst bench capabilities` has measured them. The cache files are those of one
compilation: model files and data files. The threads are those that can run at once.
A driver that crashed leaves its socket behind. `--check` lists it as not running; this is not a failure,
because the next driver of that name replaces the socket.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from nnburst.cli.options import Subparsers
from nnburst.cli.output import add_json_option, table, write_json
from nnburst.client.connect import check_health, connect, devices
from nnburst.control.address import SUFFIX, directory
from nnburst.hal.enums import OperandType
from nnburst.hal.types import lookup

if TYPE_CHECKING:
    from nnburst.client.connect import DeviceInfo


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser("devices", help="list drivers that run", description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="use each as a client would; exit status 1 if one that runs is not healthy",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """List the drivers, or check their health."""
    return _check(args) if args.check else _list(args)


def _check(args: argparse.Namespace) -> int:
    checked = [
        (path.name.removesuffix(SUFFIX), check_health(partial(connect, path)))
        for path in sorted(directory().glob(f"*{SUFFIX}"))
    ]
    if str(args.json) != "-":
        rows = [
            (name, health.state, f"{health.seconds:.3f} s", health.detail)
            for name, health in checked
        ]
        table(f"drivers in {directory()}", ("name", "health", "time", "detail"), rows)
    write_json(
        args.json, {"devices": [{"name": name, **health._asdict()} for name, health in checked]}
    )
    return 0 if all(health.healthy or not health.running for _, health in checked) else 1


def _list(args: argparse.Namespace) -> int:
    found = devices()
    facts = [
        {
            "name": device.name,
            "version_string": device.version_string,
            "type": device.type.name,
            "feature_level": int(device.feature_level),
            "address": str(device.address),
            "exec_time": {
                "float32": _exec_time(device, OperandType.TENSOR_FLOAT32),
                "quant8": _exec_time(device, OperandType.TENSOR_QUANT8_ASYMM),
            },
            "cache_files": list(device.cache_files),
            "thread_budget": device.thread_budget,
        }
        for device in found
    ]
    if str(args.json) != "-":
        columns = (
            "name",
            "version",
            "type",
            "level",
            "float32",
            "quant8",
            "cache files",
            "threads",
        )
        rows = [
            (
                device.name,
                device.version_string,
                device.type.name,
                int(device.feature_level),
                f"{_exec_time(device, OperandType.TENSOR_FLOAT32):.3g}",
                f"{_exec_time(device, OperandType.TENSOR_QUANT8_ASYMM):.3g}",
                " + ".join(map(str, device.cache_files)),
                device.thread_budget,
            )
            for device in found
        ]
        table(f"drivers in {directory()}", columns, rows)
    write_json(args.json, {"devices": facts})
    return 0


def _exec_time(device: DeviceInfo, kind: OperandType) -> float:
    return lookup(device.capabilities.operand_performance, kind).exec_time
