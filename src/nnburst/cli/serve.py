"""`nnburst serve`: runs a driver to which many clients connect by name."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.util import find_spec
from typing import Final, NoReturn

from nnburst.cli.options import Subparsers, at_least_one, cores
from nnburst.cli.output import add_json_option
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.utils import AUTO, NO_ENGINE, chosen_executor, driver_environment, python_command
from nnburst.serving.addresses import check_address
from nnburst.serving.options import add_options, from_namespace
from nnburst.serving.options import words as front_words

_GRPC: Final = ("grpc", "grpc_health", "tritonclient")
#: Options that need an extra: its name, and the modules that it brings.
_EXTRAS: Final = {
    "grpc": ("grpc", _GRPC),
    "http": ("http", (*_GRPC, "aiohttp")),
    "spans": ("otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp")),
    "metrics": ("metrics", ("prometheus_client",)),
    "http_metrics": ("metrics", ("prometheus_client",)),
}


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "serve", help="run a driver that clients find by name", description=__doc__
    )
    parser.add_argument("name", help="what clients give to connect(): a name, or a path with a '/'")
    parser.add_argument(
        "--executor",
        default=AUTO,
        help="litert, onnxruntime, reference, null, openvino, an entry point of nnburst.executors,"
        " module:attribute, or the path of a shared library (default: auto, the first of the first"
        " three that is installed, for a whole graph of --model the engine that runs it, for --provider and"
        " --delegate theirs)",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what the executor is opened with: a library's own options, openvino's, a delegate's or a"
        " provider's; may be repeated",
    )
    parser.add_argument(
        "--delegate",
        metavar="LIB",
        help="an external delegate of TFLite's that executor litert gives its graphs to, opened with each"
        " --option; the interpreter runs it",
    )
    parser.add_argument(
        "--device-node",
        action="append",
        default=[],
        metavar="PATH",
        help="a device node that the executor may open for writing, in spite of its sandbox; may be repeated",
    )
    parser.add_argument(
        "--exclusive",
        action="store_true",
        help="have one process open the device, once, and execute for all clients in turns: for devices that"
        " are one process's at a time, or take long to warm up",
    )
    _add_scheduling(parser)
    parser.add_argument(
        "--extension",
        action="append",
        default=[],
        metavar="MODULE:ATTRIBUTE",
        help="a vendor extension to have beside those of entry points; may be repeated",
    )
    parser.add_argument(
        "--provider",
        metavar="NAME",
        help="what executes graphs if the executor is onnxruntime: CPU, CUDA, or another that the installed"
        " onnxruntime or --provider-library has, opened with each --option; clients never choose it",
    )
    parser.add_argument(
        "--provider-library",
        metavar="LIB",
        help="a plugin for onnxruntime, whose first device of --provider executes graphs",
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
    add_json_option(
        parser, "write the driver's address, executor and pid as JSON when clients may come"
    )


def _add_scheduling(parser: argparse.ArgumentParser) -> None:
    """Add the options that set the cores, the priority and the memory locking of workers."""
    parser.add_argument("--cpus", type=cores, help="cores to run on, comma-separated")
    parser.add_argument(
        "--realtime",
        type=at_least_one,
        metavar="PRIORITY",
        help="have workers run before other programs: SCHED_FIFO with this priority, 1 to 99, while they"
        " have a client; refused if the system does not permit it",
    )
    parser.add_argument(
        "--lock-memory",
        action="store_true",
        help="keep workers' memory in place from its first use on; refused if the system does not permit it",
    )


#: Options of this command that are passed on to an executor, by the executor's name.
_OF_EXECUTORS: Final = {"litert": ("delegate",), "onnxruntime": ("provider", "provider_library")}


def _executor(args: argparse.Namespace) -> str:
    """The executor's name; "auto" if the driver is to decide by the networks."""
    if args.executor == AUTO:
        for executor, names in _OF_EXECUTORS.items():
            if any(getattr(args, name) is not None for name in names):
                return executor
        if args.model:  # the driver decides by the networks' formats
            return AUTO
    return chosen_executor(args.executor)


def _executor_options(args: argparse.Namespace) -> list[str]:
    """The options that the executor is opened with.

    Raises:
        InvalidArgument: an option is another executor's.
    """
    found = list(args.option)
    for executor, names in _OF_EXECUTORS.items():
        for name in names:
            value = getattr(args, name)
            if value is None:
                continue
            if args.executor != executor:
                option = f"--{name.replace('_', '-')}"
                raise InvalidArgument(f"{option}: {value}, but the executor is {args.executor}")
            found.append(f"{name}={value}")
    return found


def run(args: argparse.Namespace) -> NoReturn:
    """Replace this process by the driver: it forks, so it must start with a single thread."""
    front = front_words(args)
    for option, (extra, modules) in _EXTRAS.items():
        if getattr(args, option) not in (None, False) and not all(map(_is_installed, modules)):
            raise NnburstError(
                f"--{option.replace('_', '-')} needs the extra {extra}: pip install 'nnburst[{extra}]'"
            )
    for option in ("grpc", "http", "metrics"):
        if address := getattr(args, option):
            check_address(f"--{option}", address)
    options = from_namespace(args, connect="")
    if options is not None and (options.tls is not None or options.token_file is not None):
        from nnburst.serving.credentials import check_credentials  # with ssl, 10 ms

        check_credentials(options)
    environment = driver_environment()
    args.executor = _executor(args)
    words = python_command(
        "-m", "nnburst.driver", "--executor", args.executor, "--serve", args.name
    )
    if args.cpus:
        words += ["--cpus", args.cpus]
    if args.realtime is not None:
        words += ["--realtime", str(args.realtime)]
    for extension in args.extension:
        words += ["--extension", extension]
    for option in _executor_options(args):
        words += ["--option", option]
    for node in args.device_node:
        words += ["--device-node", node]
    for option in ("lock_memory", "exclusive", "any_user", "until_stdin_ends"):
        if getattr(args, option):
            words.append(f"--{option.replace('_', '-')}")
    words += ["--share-weights", args.share_weights]
    if args.model and chosen_executor(args.executor) == chosen_executor() == "reference":
        print(f"nnburst: {NO_ENGINE}", file=sys.stderr)
    for option, value in args.model:
        words += [option, value]
    if front:
        words += ["--front", json.dumps(front)]
    if args.json:
        words += ["--json", str(args.json)]
    if sys.stdout is not None:
        sys.stdout.flush()
    os.execve(words[0], words, environment)  # noqa: S606


def _is_installed(name: str) -> bool:
    """Whether a module and the packages around it are installed."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
