"""`nnburst executor`: prints the paths and flags that an executor in C is built with.

gcc -shared -fPIC $(nnburst executor --cflags) foo.c -o libfoo.so
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import nnburst.executor
from nnburst.capi.installed import for_a_shell
from nnburst.cli.options import Subparsers
from nnburst.cli.output import add_json_option, text_for_people, write_json

_FOLDER: Final = Path(nnburst.executor.__file__).resolve().parent
#: The folder in which the compiler looks for <nnburst/executor.h>.
INCLUDE: Final = _FOLDER / "include"
PKG_CONFIG_FOLDER: Final = _FOLDER / "pkgconfig"


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser("executor", help="flags for executors in C", description=__doc__)
    parser.add_argument("--cflags", action="store_true", help="flags for the compiler (default)")
    parser.add_argument("--header", action="store_true", help="the path of the header")
    parser.add_argument(
        "--pkg-config", action="store_true", help="the folder of nnburst-executor.pc"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for, in one line."""
    header = INCLUDE / "nnburst" / "executor.h"
    cflags = for_a_shell(f"-I{INCLUDE}")
    words = [
        *([cflags] if args.cflags else []),
        *([str(header)] if args.header else []),
        *([str(PKG_CONFIG_FOLDER)] if args.pkg_config else []),
    ]
    with text_for_people(args.json):
        print(" ".join(words) or cflags)
    write_json(
        args.json,
        {"cflags": cflags, "header": str(header), "pkg_config": str(PKG_CONFIG_FOLDER)},
    )
    return 0
