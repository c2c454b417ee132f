"""`nnburst delegate`: prints the path of the external delegate for LiteRT.

A program gives the path to LiteRT's `load_delegate`, or to `TfLiteExternalDelegateOptionsDefault`.
"""

from __future__ import annotations

import argparse

from nnburst import litert
from nnburst.cli.options import Subparsers
from nnburst.cli.output import add_json_option, text_for_people, write_json


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "delegate", help="the external delegate for LiteRT", description=__doc__
    )
    parser.add_argument("--path", action="store_true", help="path of the library (the default)")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the path."""
    path = litert.get_library_path()
    with text_for_people(args.json):
        print(path)
    write_json(args.json, {"path": path})
    return 0
