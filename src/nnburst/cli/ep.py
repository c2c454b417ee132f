"""`nnburst ep`: prints the path of the plugin execution provider for onnxruntime.

A program registers the library by its path, and finds the provider's device by its name.
"""

from __future__ import annotations

import argparse

from nnburst import onnxruntime
from nnburst.cli.options import Subparsers
from nnburst.cli.output import add_json_option, text_for_people, write_json


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "ep", help="the plugin execution provider for onnxruntime", description=__doc__
    )
    parser.add_argument("--path", action="store_true", help="path of the library alone")
    parser.add_argument("--name", action="store_true", help="name of the provider alone")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for; name and path without an option."""
    path, name = onnxruntime.get_library_path(), onnxruntime.get_ep_name()
    both = args.path == args.name
    with text_for_people(args.json):
        print(*([name] if both or args.name else []), *([path] if both or args.path else []))
    write_json(args.json, {"name": name, "path": path})
    return 0
