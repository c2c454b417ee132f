"""`nnburst capi`: prints the paths and flags that programs against our C libraries are built with.

gcc main.c $(nnburst capi --cflags --libs)
gcc main.c $(nnburst capi --client --cflags --libs)
"""

from __future__ import annotations

import argparse

from nnburst.capi import installed
from nnburst.cli.options import Subparsers
from nnburst.cli.output import add_json_option, text_for_people, write_json
from nnburst.hal.errors import DeviceUnavailable


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser("capi", help="flags for C programs", description=__doc__)
    parser.add_argument(
        "--client",
        action="store_true",
        help="for the client of served networks (nnburst.h), instead of NNAPI's interface",
    )
    parser.add_argument("--cflags", action="store_true", help="flags for the compiler")
    parser.add_argument("--libs", action="store_true", help="flags for the linker")
    parser.add_argument("--path", action="store_true", help="the folder of the library")
    parser.add_argument(
        "--pkg-config", action="store_true", help="the folder of neuralnetworks.pc and nnburst.pc"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for; flags stand in one line."""
    library = installed.CLIENT_LIBRARY if args.client else installed.LIBRARY
    libs = installed.libs(client=args.client)
    if not library.is_file():
        raise DeviceUnavailable(
            f"{library}: the file does not exist: this nnburst was built without the C interface"
        )
    flags = [
        *([installed.cflags()] if args.cflags else []),
        *([libs] if args.libs else []),
        *([str(installed.LIBRARY_FOLDER)] if args.path else []),
        *([str(installed.PKG_CONFIG_FOLDER)] if args.pkg_config else []),
    ]
    with text_for_people(args.json):
        print(" ".join(flags) or f"{installed.cflags()} {libs}")
    write_json(
        args.json,
        {
            "cflags": installed.cflags(),
            "libs": libs,
            "path": str(installed.LIBRARY_FOLDER),
            "pkg_config": str(installed.PKG_CONFIG_FOLDER),
            "library": str(library),
        },
    )
    return 0
