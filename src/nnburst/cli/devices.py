"""`nnburst devices`: the drivers of this user that answer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nnburst.cli.output import add_json_option, table, write_json
from nnburst.client.connect import devices
from nnburst.control.address import directory

if TYPE_CHECKING:
    from nnburst.cli import Subparsers


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser("devices", help="list drivers that run", description=__doc__)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """List them."""
    found = devices()
    facts = [
        {
            "name": device.name,
            "version_string": device.version_string,
            "type": device.type.name,
            "feature_level": int(device.feature_level),
            "address": str(device.address),
        }
        for device in found
    ]
    if str(args.json) != "-":
        columns = ("name", "version", "type", "level")
        rows = [
            (device.name, device.version_string, device.type.name, int(device.feature_level))
            for device in found
        ]
        table(f"drivers in {directory()}", columns, rows)
    write_json(args.json, {"devices": facts})
    return 0
