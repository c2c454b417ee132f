"""Runs the command line; each command is a module of this package.

A command module has `prepare_parser(subparsers)`, which adds a parser named like the command, and
`run(args) -> int`, which returns the exit status. Module `bench_burst` is the nested command
`nnburst bench burst`; module `fuzz` nests its commands itself. Only the module of the command that was
asked for is imported; help and a mistyped name import all, for their descriptions. Modules without
`prepare_parser` hold code that several commands use.
"""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import logging
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from typing import Final, Protocol, cast

from nnburst.cli.options import Subparsers
from nnburst.cli.output import also_in_json, printable, text_for_people
from nnburst.hal.environment import LOG, warn_of_unknown_names
from nnburst.hal.errors import NnburstError, as_options
from nnburst.hal.utils import fill_standard_descriptors

#: First words of nested commands and their descriptions.
GROUPS: Final = {
    "bench": "measure latency",
}


#: Benchmark commands that measure nothing themselves: they read the files of others.
_UNMEASURED: Final = frozenset({"compare"})
#: Options that may stand before the command without changing it.
_FLAGS: Final = frozenset({"-v", "-vv", "--verbose"})


class Command(Protocol):
    """The functions of a command module."""

    def prepare_parser(self, subparsers: Subparsers) -> None:
        """Add the command's parser to `subparsers`."""

    def run(self, args: argparse.Namespace) -> int:
        """Carry the command out and return the exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Args:
        argv: the words after `nnburst`; those of this process unless given.

    Returns:
        The command's status; 1 with one line on stderr for an error that has a reason; 130 after
        Ctrl-C; 141 if the reader of the output went away. Wrong usage exits with 2.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        fill_standard_descriptors()
        _write_any_character()
    try:
        args = parser(words).parse_args(words)
        logging.basicConfig(
            level=["INFO", "DEBUG"][min(args.verbose, 2) - 1] if args.verbose else LOG.read(),
            format="%(name)s: %(message)s",
        )
        warn_of_unknown_names()
        command = _load(
            _module_name(args.command, args.subcommand if args.command in GROUPS else "")
        )
        is_measured = args.command == "bench" and args.subcommand not in _UNMEASURED
        with as_options():
            status = _measured(command, args) if is_measured else command.run(args)
        if sys.stdout is not None:  # None if stdout was closed before the start
            sys.stdout.flush()  # here, so that the handler below gets the BrokenPipeError
    except KeyboardInterrupt:
        if argv is None:  # a second Ctrl-C, while threads end, ends the program at once
            signal.signal(signal.SIGINT, _end_at_once)
            # If Ctrl-C interrupted an eval or exec (dataclasses use exec), Python later ends by the signal,
            # although the exception was caught. Another eval resets that.
            eval("None")  # noqa: S307 - a literal of ours
        print("nnburst: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit succeeds
        return 141
    except (NnburstError, OSError) as error:
        print(f"nnburst: {printable(_reason(error))}", file=sys.stderr)
        return 1
    return status


def _reason(error: Exception) -> str:
    """The text of an error; that of a file begins with its name, without the number of the error."""
    if isinstance(error, OSError) and error.filename is not None and error.filename2 is None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def _write_any_character() -> None:
    """Have stdout write escapes for characters that its encoding lacks, such as µ in ASCII; stderr does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _end_at_once(*_: object) -> None:
    os._exit(130)


def _measured(command: Command, args: argparse.Namespace) -> int:
    """Run a benchmark, and report how busy the machine was meanwhile, as text and in the JSON."""
    from nnburst.bench.rounds import Watch

    watch = Watch()
    with also_in_json(lambda: {"conditions": watch.conditions().as_json()}):
        status = command.run(args)
    with text_for_people(getattr(args, "json", None)):
        print(watch.conditions())
    return status


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Build the parser for `words`: with the command that they name, or else with all commands."""
    made = argparse.ArgumentParser(prog="nnburst", description="NNAPI bursts on Linux.")
    made.add_argument("--version", action=_Version, nargs=0, help="show the version")
    made.add_argument("-v", "--verbose", action="count", default=0, help="log more (twice: all)")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    groups: dict[str, Subparsers] = {}
    for name in _wanted(words):
        group = name.partition("_")[0]
        if group in GROUPS and group not in groups:
            nested = commands.add_parser(group, help=GROUPS[group])
            groups[group] = nested.add_subparsers(
                dest="subcommand", required=True, metavar="SUBCOMMAND"
            )
        _load(name).prepare_parser(groups.get(group, commands))
    return made


def _wanted(words: Sequence[str]) -> list[str]:
    """Names of the command modules that parsing `words` needs."""
    if "--version" in words[:1]:
        return []
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    words = list(itertools.dropwhile(lambda word: word in _FLAGS, words))
    for depth in (2, 1):
        exact = _module_name(*words[:depth])
        if exact in names and _is_command(exact):
            return [exact]
    return [name for name in names if _is_command(name)]


def _is_command(name: str) -> bool:
    return hasattr(_load(name), "prepare_parser")


def _module_name(*words: str) -> str:
    return "_".join(word.replace("-", "_") for word in words if word)


def _load(name: str) -> Command:
    return cast("Command", importlib.import_module(f"{__name__}.{name}"))


class _Version(argparse.Action):
    """Prints the version, which is looked up only here because the look-up and its imports take long."""

    def __call__(self, parser: argparse.ArgumentParser, *_ignored: object) -> None:
        from importlib.metadata import version

        print(f"nnburst {version('nnburst')}")
        parser.exit()
