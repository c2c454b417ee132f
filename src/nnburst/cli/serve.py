"""`nnburst serve`: a driver that many clients connect to by name."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.util import find_spec
from typing import Final, NoReturn

from nnburst.cli.options import Subparsers, cores
from nnburst.cli.output import add_json_option
from nnburst.client.launch import driver_environment
from nnburst.hal.environment import ONNXRUNTIME_PROVIDER
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.serving.options import add_options
from nnburst.serving.options import words as front_words

_NEEDED_BY_FRONT: Final = ("grpc", "grpc_health", "tritonclient")


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "serve", help="run a driver that clients find by name", description=__doc__
    )
    parser.add_argument("name", help="what clients give to connect(): a name, or a path with a '/'")
    parser.add_argument(
        "--executor",
        default="reference",
        help="null, reference, an entry point of nnburst.executors, or module:attribute"
        " (default: %(default)s)",
    )
    parser.add_argument("--cpus", type=cores, help="cores to run on, comma-separated")
    parser.add_argument(
        "--extension",
        action="append",
        default=[],
        metavar="MODULE:ATTRIBUTE",
        help="a vendor extension to have beside those of entry points; may be repeated",
    )
    parser.add_argument(
        "--provider",
        help="what executes graphs if the executor is onnxruntime: CPU, CUDA, or another that the"
        " installed onnxruntime has; clients never choose it",
    )
    parser.add_argument("--any-user", action="store_true", help="serve clients of other users too")
    parser.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="end when standard input does: with the program at its other end, however that ends",
    )
    parser.add_argument(
        "--share-weights",
        choices=("user", "all", "off"),
        default="user",
        help="whose clients share the packed weights of a model that they all prepare: those of one user"
        " (default), all, or off; with all, one user can find out by the time that it takes whether another"
        " has prepared a model that it has, too",
    )
    add_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> NoReturn:
    """Become the driver: it forks, so it starts as a fresh process with a single thread."""
    front = front_words(args)
    if args.grpc is not None and not all(map(find_spec, _NEEDED_BY_FRONT)):
        raise NnburstError("--grpc needs the extra grpc: pip install 'nnburst[grpc]'")
    environment = driver_environment()
    if args.provider is not None:
        if args.executor != "onnxruntime":
            raise InvalidArgument(
                f"--provider: {args.provider}, but the executor is {args.executor}"
            )
        environment[ONNXRUNTIME_PROVIDER.name] = args.provider
    if args.metrics and find_spec("prometheus_client") is None:
        raise NnburstError("--metrics needs the extra metrics: pip install 'nnburst[metrics]'")
    words = ["-m", "nnburst.driver", "--executor", args.executor, "--serve", args.name]
    if args.cpus:
        words += ["--cpus", args.cpus]
    for extension in args.extension:
        words += ["--extension", extension]
    if args.any_user:
        words.append("--any-user")
    if args.until_stdin_ends:
        words.append("--until-stdin-ends")
    words += ["--share-weights", args.share_weights]
    if front:
        words += ["--front", json.dumps(front)]
    if args.json:
        words += ["--json", str(args.json)]
    if sys.stdout is not None:
        sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *words], environment)  # noqa: S606
